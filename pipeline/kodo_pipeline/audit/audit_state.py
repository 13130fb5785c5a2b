"""State that an audit stores in a landing, so that the next audit can continue from it, and the check whether it can.
Pure.

The rows of the state are in tables (kodo_pipeline.landing.state_tables). This module has the facts in the audit's
commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from kodo_pipeline.landing.landing_commits import AUDIT_RUN, LandingCommit, batches, rows_of
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS, Table
from kodoctl import __version__
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from kodo_pipeline.evidence.partition_history import Key
    from kodo_pipeline.evidence.readings import AuditScope
    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.removal_record import RemovalRecord
    from kodo_pipeline.source.splits import Place
    from kodoctl.pulsar.connection.secret import Secret

_RULES: Final = 6  # what an audit judges by; another number: states of other kodoctls are of no use
JUDGED: Final = (EVENTS, TRANSITIONS)  # tables whose rows are judged once
_CURSOR: Final = ("mark_ledger", "mark_entry", "acknowledged")
_MOST: Final = 10_000  # subscriptions that messages are meant for: whoever produces names them


@dataclass(frozen=True, slots=True)
class SettledTotals:
    """Counts over all rows that audits have judged so far.

    `fates`: number of settled messages by (number of the subscription, rank of the status in RANKS); `contradictions`:
    number of record numbers, by number of the subscription, that have two different records, or that a later record
    shares with a removed one; `newest`: publish time of the newest message, ms since the epoch, None if there is none.
    A first hop is a message on a ready topic that its producer sent there, and neither a worker nor a recall:
    `unnumbered`: number of first hops without a producer's sequence number; `meant`: number of first hops that are
    addressed to one subscription, by (full name of the topic, subscription).

    `since`: when the counts began, rows of settled messages published before this time (ms) had been removed, so that
    `fates` and `contradictions` lack them, None: no rows had been removed. `removal`: run of the last removal before
    the counts began, "" if there was none; rows that later removals took out are counted.
    """

    fates: Mapping[tuple[int, int], int] = field(default_factory=dict)
    contradictions: Mapping[int, int] = field(default_factory=dict)
    newest: int | None = None
    unnumbered: int = 0
    meant: Mapping[tuple[str, str], int] = field(default_factory=dict)
    since: int | None = None
    removal: str = ""

    @classmethod
    def of_removed(cls, record: RemovalRecord | None) -> Self:
        """Totals with which an audit of all rows begins: the counts of removed rows, except `fates` and
        `contradictions`, which begin empty. Everything is empty if `record` is None (no rows were removed).
        """
        if record is None:
            return cls()
        found = record.totals
        return cls(
            newest=found.newest,
            unnumbered=found.unnumbered,
            meant=found.meant,
            since=record.before,
            removal=record.run,
        )

    @property
    def messages(self) -> int:
        """Number of settled messages; a message counts once for each subscription that has settled it."""
        return sum(self.fates.values())


@dataclass(frozen=True, slots=True)
class AuditState:
    """State of an audit, as its commit has it.

    `basis`: result of `basis_of`; `batch`: number of the last landed batch that was judged; `rows`: number of rows of
    `events` and `transitions` that had ever landed by then, removed ones included, by table name; `ends`: result of
    `ends_of`; `totals`: counts over all judged rows; `kept`: number of rows in each table of the state, by table name;
    `number`: number of the commit, -1 before there is one; `dead`: result of `dead_cursors`. A partition is a (full
    name of a topic, number).
    """

    basis: str
    batch: int
    rows: Mapping[str, int]
    ends: Mapping[Key, Place]
    totals: SettledTotals
    kept: Mapping[str, int] = field(default_factory=dict)
    number: int = -1
    dead: Mapping[Key, str] = field(default_factory=dict)

    @classmethod
    def of(cls, commits: Iterable[LandingCommit]) -> Self | None:
        """The state that the last audit committed. None if no audit has committed one, or if that audit used other
        rules than this version of kodoctl. An audit of a small landing commits none.
        """
        found = _last_audit(commits)
        if found is None or found.facts.get("rules") != _RULES:
            return None
        facts = found.facts
        totals = SettledTotals(
            {(family, rank): count for family, rank, count in facts["fates"]},
            dict(facts["contradictions"]),
            facts["newest"],
            facts["unnumbered"],
            {(topic, name): count for topic, name, count in facts["meant"]},
            facts["since"],
            facts["removal"],
        )
        ends = {(topic, part): (ledger, entry) for topic, part, ledger, entry in facts["ends"]}
        dead = {(topic, part): digest for topic, part, digest in facts["dead"]}
        return cls(facts["basis"], facts["batch"], facts["rows"], ends, totals, facts["kept"], found.number, dead)

    def to_facts(self) -> dict[str, Any]:
        """The state as JSON facts of a commit, which `of` reads; without `number`, which the commit itself has."""
        totals = self.totals
        return {
            "rules": _RULES, "basis": self.basis, "batch": self.batch, "rows": dict(self.rows),
            "kept": dict(self.kept), "ends": [[*key, *place] for key, place in self.ends.items()],
            "dead": [[*key, digest] for key, digest in self.dead.items()],
            "fates": [[*key, count] for key, count in totals.fates.items()],
            "contradictions": [list(one) for one in totals.contradictions.items()],
            "newest": totals.newest, "unnumbered": totals.unnumbered,
            "meant": [[*key, count] for key, count in totals.meant.items()], "since": totals.since,
            "removal": totals.removal,
        }  # fmt: skip

    def is_whole(self, files: Mapping[str, Sequence[DataFile]]) -> bool:
        """True if `files` (by name of every table of the state, else KeyError) have as many rows as the audit
        committed. A table that lost its log has only the files of its last commit, and may have fewer.
        """
        return all(sum(one.rows for one in files[name]) == rows for name, rows in self.kept.items())

    @property
    def is_small(self) -> bool:
        """True if the state is small enough for one commit: `totals.meant` has at most 10,000 items (`_MOST`)."""
        return len(self.totals.meant) <= _MOST


def is_of_other_rules(commits: Iterable[LandingCommit]) -> bool:
    """True if the last audit that committed a state used other rules of judgement, or another format of the state, than
    this version of kodoctl; False if there was none.
    """
    found = _last_audit(commits)
    return found is not None and found.facts.get("rules") != _RULES


def _last_audit(commits: Iterable[LandingCommit]) -> LandingCommit | None:
    return next((one for one in commits if one.run == AUDIT_RUN), None)


def basis_of(ground: AuditScope, keys: Secret | None) -> str:
    """Digest of the version of kodoctl, the subscriptions with their audit modes, the names of the lanes (topic,
    partition, subscription, state) and the signing keys (None: no keys). What was read or acknowledged in a lane, and
    its horizon, do not count. If the digest changes, settled messages have to be judged again.
    """
    facts = [
        __version__,
        [[one.number, one.topic, one.subscription, one.mode] for one in ground.families],
        [
            [one[name] for name in ("msg_topic", "msg_partition", "subscription", "state", "family")]
            for one in ground.lanes
        ],
        None if keys is None else hashlib.sha256(keys.reveal().encode()).hexdigest(),
    ]
    return _digest(facts)


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def ends_of(ground: AuditScope) -> dict[Key, Place]:
    """Ends (ledger, entry) of the last ranges that ingests read, by partition (full name of the topic, number). Audit
    topics, and partitions of which no range was read, are left out.
    """
    return {
        (one["msg_topic"], one["msg_partition"]): (one["last_ledger"], one["last_entry"])
        for one in ground.lanes
        if one["last_ledger"] is not None
    }


def dead_cursors(ground: AuditScope) -> dict[Key, str]:
    """Digest of the cursor on each partition of a dead-letter topic, by (full name of the topic, number). If it
    changes, dead letters may have been acknowledged, which no row of `events` or `transitions` shows; they have to be
    judged again.
    """
    return {
        (one["msg_topic"], one["msg_partition"]): _digest([one[name] for name in _CURSOR])
        for one in ground.lanes
        if one["state"] == State.DEAD
    }


def last_batch(commits: Iterable[LandingCommit]) -> int:
    """Number of the last landed batch, with or without messages; -1 if there is none."""
    return max(batches(commits), default=-1)


def landed_rows(commits: Sequence[LandingCommit]) -> dict[str, int]:
    """Number of rows of `events` and of `transitions` that ever landed, by table name; rows that were removed since
    count. `commits`: all commits of the landing.
    """
    return {table.name: rows_of(commits, table) for table in JUDGED}


def fresh_files(
    state: AuditState, files: Mapping[str, Sequence[DataFile]], removed: Mapping[str, int] | None = None
) -> dict[Table, list[DataFile]] | None:
    """Files of `events` and `transitions` that landed after the last batch of the state, by table.

    Returns None if the other files do not have as many rows as had landed at the last audit (`state.rows`), less
    `removed` (number of rows that were ever removed, by table name; None: no rows): then files have been deleted, or
    merged with newer ones, and new rows cannot be told from judged ones.
    """
    found = {table: [one for one in files[table.name] if one.batch > state.batch] for table in JUDGED}
    for table, fresh in found.items():
        before = sum(one.rows for one in files[table.name]) - sum(one.rows for one in fresh)
        if before + (removed or {}).get(table.name, 0) != state.rows[table.name]:
            return None
    return found


def letter_hash(letter: Sequence[object]) -> int:
    """Hash of an entry of the recall ledger, as a signed number of 64 bits."""
    digest = hashlib.blake2b(json.dumps(list(letter)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)

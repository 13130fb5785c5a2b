# adapter: reads the landing
"""Readers of an audit's inputs: the landed tables, with cursors up to the last finished run; the entries of the recall
ledger; and the ledgers of the cluster's partitions. They raise KodoctlError if files of the landing are missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kodo_pipeline.audit.judged_rows import LandedTables, RecalledLetter
from kodo_pipeline.audit.last_audit import landed_scope
from kodo_pipeline.audit.removed_rows import RemovedRows, rows_left
from kodo_pipeline.audit.unbooked_recalls import UnbookedRecalls
from kodo_pipeline.audit.write_offs import NO_BOOKINGS, Bookings, WriteOffs
from kodo_pipeline.evidence.audit_evidence import Cause
from kodo_pipeline.evidence.cluster_check import same_partitions
from kodo_pipeline.evidence.reading_clock import ReadingClock
from kodo_pipeline.landing.data_rewrite import small_rows
from kodo_pipeline.landing.landing_commits import last_reading
from kodo_pipeline.landing.recorded_tables import WRITE_OFFS
from kodo_pipeline.landing.removal_record import RemovalRecord
from kodo_pipeline.landing.state_tables import REMOVALS
from kodo_pipeline.landing.tables import EVENTS, TABLES, TRANSITIONS, Table
from kodo_pipeline.source.partition_stats import each_internal_stats
from kodoctl.errors import KodoctlError, error
from kodoctl.pulsar.admin.topic_stats import read_stats
from kodoctl.pulsar.control.control_namespace import cluster_identity
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.ledger_clusters import check_cluster
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent, latest_status
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import ledger_key, lost_key
from kodoctl.text.formatting import many
from kodoctl.topology.names import WAITING_STATES, State, TopicName, partition_number, whole_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.audit.audit_document import AuditDocument
    from kodo_pipeline.evidence.partition_history import Key
    from kodo_pipeline.evidence.readings import AuditScope
    from kodo_pipeline.landing.landing_store import Landing, LandingSnapshot
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.connection.secret import Secret
    from kodoctl.topology.expand import Expansion

_NAMED: Final = 5  # files that are gone, one by one
_SETTLED: Final = {RecallEvent.SENT: "sent", RecallEvent.DISCARDED: "discarded"}


@dataclass(frozen=True, slots=True)
class AuditInputs:
    """Inputs of an audit as of one commit of the landing (`snapshot`).

    `tables`: all landed rows that no removal covers; `ground`: subscriptions, partitions and lanes to judge; `letters`:
    messages of the topology that a recall, or `kodoctl waiting apply`, sent or discarded; `missing_ledger`: address at
    which there is no recall ledger, "": there is one, or nobody looked; `keys`: keys with which producers sign, None if
    none are known here; `bookings`: write-offs and other facts that no landed row has; `delays`: a function like
    `delayed_lanes` without its `admin`; the default asks no broker and finds nothing.
    """

    snapshot: LandingSnapshot
    tables: LandedTables
    ground: AuditScope
    letters: tuple[RecalledLetter, ...]
    keys: Secret | None
    bookings: Bookings = NO_BOOKINGS
    missing_ledger: str = ""
    delays: Callable[[Collection[str]], frozenset[tuple[str, int, str]]] = lambda _: frozenset()


def with_ledger_note(found: AuditDocument, missing_ledger: str) -> AuditDocument:
    """Adds a note to the audit `found`, in place, and returns the audit. The note is added if one of its findings,
    which are samples, is a dead letter that somebody acknowledged and that no recall explains (Cause.RELEASED), and
    `missing_ledger` is not "".
    """
    if missing_ledger and any(one["cause"] == Cause.RELEASED for one in found["findings"]):
        text = (
            f"no ledger of recalls is at {missing_ledger}: letters that a recall took count as lost unless --ledger names its own. "
            "`kodoctl recall` and `kodoctl waiting` write .kodoctl/recall where they run, unless --ledger says otherwise"
        )
        found["notes"].append(text)
    return found


def load_inputs(
    spark: SparkSession, landing: Landing, expansion: Expansion, admin: Admin, ledger: str, keys: Secret | None
) -> AuditInputs:
    """Reads all inputs of an audit: from the landing, the recall ledger at `ledger`, and the cluster. `keys`: keys with
    which producers sign, None if none are known here. Raises KodoctlError, such as K589 if the landing was read from
    another cluster, or if all partitions were created again since, K557 if the recall ledger is of another cluster or
    cannot be read (a ledger that does not exist is empty), K573 if files of the landing are missing or damaged, and
    ClusterError if the cluster cannot be read.
    """
    stored_from = same_partitions(landing, admin, expansion, _stored_from(admin, expansion))
    tenant = expansion.namespace.tenant
    check_cluster(DeltaLedger(ledger), tenant, cluster_identity(admin, tenant))
    letters = tuple(_letters(expansion, ledger))
    inputs = landed_inputs(spark, landing, expansion, letters, stored_from, keys)
    bookings = replace(inputs.bookings, unbooked=unbooked_recalls(landing, inputs.snapshot, ledger))
    missing = "" if DeltaLedger(ledger).exists() else ledger
    return replace(inputs, missing_ledger=missing, bookings=bookings, delays=partial(delayed_lanes, admin))


def delayed_lanes(admin: Admin, topics: Collection[str]) -> frozenset[tuple[str, int, str]]:
    """Finds subscriptions all of whose unacknowledged messages on a partition wait for the delivery time that their
    senders set (`deliverAt`), by the broker's present statistics. Returns (topic, partition, subscription) of each; the
    partition of a plain topic is -1, and topics that do not exist are left out. Raises ClusterError.

    No client can read `deliverAt` of a message. So a subscription with both delayed and other messages is left out,
    because its delayed messages cannot be identified.
    """
    found = set()
    for topic in topics:
        name = TopicName.parse(topic)
        for part, stats in ((read_stats(admin, name) or {}).get("partitions") or {}).items():
            for subscription, one in (stats.get("subscriptions") or {}).items():
                if 0 < int(one.get("msgBacklog") or 0) <= int(one.get("msgDelayed") or 0):
                    found.add((topic, partition_number(part), subscription))
    return frozenset(found)


def unbooked_recalls(landing: Landing, snapshot: LandingSnapshot, ledger: str) -> UnbookedRecalls | None:
    """Finds messages that landed and that a recall, or `kodoctl waiting apply`, sent, but which have no entry of any
    kind in the recall ledger at `ledger`, as when the recall used another ledger. None if every such message has one.
    `snapshot`: has the table `events`. Raises KodoctlError: K557 for the ledger, K573 for files of the landing.
    """
    landed = landing.table(EVENTS).distinct(snapshot.files[EVENTS.name], "recall", by="topic")
    known = DeltaLedger(ledger).recall_ids() if landed else frozenset()
    missing: dict[str, set[str]] = defaultdict(set)
    for topic, recall_id in landed:
        if recall_id not in known:
            missing[topic].add(recall_id)
    return UnbookedRecalls(ledger, {topic: frozenset(ids) for topic, ids in missing.items()}) if missing else None


def landed_inputs(
    spark: SparkSession,
    landing: Landing,
    expansion: Expansion,
    letters: tuple[RecalledLetter, ...],
    stored_from: Mapping[Key, int],
    keys: Secret | None,
) -> AuditInputs:
    """Reads the inputs that the landing has, as of its newest commit; the result has the default values of
    `missing_ledger` and `delays`, and of `bookings` the write-offs alone. Raises KodoctlError, such as K573 if files
    are missing or damaged.

    Args: spark: session that reads the tables. landing: the landing. expansion: topics and subscriptions of the
    topology. letters: messages that a recall, or `kodoctl waiting apply`, sent or discarded. stored_from: id of the
    oldest ledger that each partition has now, by (full name of a topic, partition); partitions may be missing. keys:
    keys with which producers sign, None if none are known here.
    """
    snapshot = landing.snapshot(*TABLES, *REMOVALS, WRITE_OFFS)
    _check_whole(landing, snapshot)
    removed = _load_removed_rows(spark, landing, snapshot)
    events, transitions = (
        rows_left(spark, landing, table, snapshot.files[table.name], removed) for table in (EVENTS, TRANSITIONS)
    )
    # Also what a run landed that was cut short: it is newer than the last look of one that was not.
    landed_at = max((one.at for one in snapshot.commits if one.batch is not None), default=0)
    reading = last_reading(snapshot.commits)
    clock = ReadingClock.of_facts({} if reading is None else reading.facts)
    tables = LandedTables(events, transitions, landed_at=landed_at, removed=removed, clock=clock)
    settled = booked_write_offs(landing, snapshot)
    scope = landed_scope(landing, snapshot, expansion, stored_from)
    return AuditInputs(snapshot, tables, scope, letters, keys, Bookings(write_offs=settled))


def booked_write_offs(landing: Landing, snapshot: LandingSnapshot) -> WriteOffs:
    """Reads the write-offs of a landing, as of a snapshot, which has the table `write_offs`."""
    return WriteOffs.of(small_rows(landing.table(WRITE_OFFS), snapshot.files[WRITE_OFFS.name]).to_pylist())


def _load_removed_rows(spark: SparkSession, landing: Landing, snapshot: LandingSnapshot) -> RemovedRows | None:
    record = RemovalRecord.of(snapshot.commits)
    if record is None:
        return None
    if not record.is_whole(snapshot.files):
        names = " or ".join(table.name for table in REMOVALS)
        detail = f"{landing.root.uri}: {names} has not the rows that were committed to it; bring its files back, or land elsewhere"
        raise KodoctlError(error("K573", "the landing cannot be used", detail))
    return RemovedRows(record, *(_small(spark, landing, table, snapshot) for table in REMOVALS))


def _small(spark: SparkSession, landing: Landing, table: Table, snapshot: LandingSnapshot) -> DataFrame:
    """Reads a small table into memory and returns it as part of the query plan, so that no job of Spark opens its
    files.
    """
    return spark.createDataFrame(small_rows(landing.table(table), snapshot.files[table.name]), table.spark())


def _check_whole(landing: Landing, snapshot: LandingSnapshot) -> None:
    """Raises KodoctlError (K573) if files of the landing are missing or have another size. No later check would notice
    their rows, because an audit does not read settled messages again; the numbers of rows are compared elsewhere
    (kodo_pipeline.landing.landing_commits.unlike_commits).
    """
    wrong = [one for table in TABLES for one in landing.table(table).damage(snapshot.files[table.name])]
    if wrong:
        more = [f"and {many(len(wrong) - _NAMED, 'file')} more"] if len(wrong) > _NAMED else []
        detail = "\n".join([*wrong[:_NAMED], *more, "bring what is gone back, or land elsewhere with --landing"])
        raise KodoctlError(error("K573", "the landing cannot be used", detail))


_RELEASED: Final = (State.DEAD, *WAITING_STATES)
"""States whose messages a recall, or `kodoctl waiting apply`, sends elsewhere or discards."""


def _letters(expansion: Expansion, ledger: str) -> Iterator[RecalledLetter]:
    book = DeltaLedger(ledger)
    for topic, key, holder in _sources(expansion):
        yield from _settled_letters(book.entries(key), topic, holder)
    lost = {lost_key(topic, holder): (topic, holder) for topic, holder in _losers(expansion)}
    found: dict[str, list[RecallEntry]] = defaultdict(list)
    for entry in book.entries_among(lost):
        found[entry.dead_topic].append(entry)
    for key, entries in found.items():
        for one in _settled_letters(entries, *lost[key]):
            yield one._replace(lost=True)


def _settled_letters(entries: Iterable[RecallEntry], topic: str, holder: str) -> Iterator[RecalledLetter]:
    for recall_id, one in latest_status(entries).items():
        if one.event in _SETTLED:
            yield RecalledLetter(
                topic,
                *Position.parse(one.position),
                published=one.published,
                settled=_SETTLED[one.event],
                recall_id=recall_id,
                sending=f"{one.run} {one.number} {one.lane}" if one.lane else recall_id,
                lane_topic=whole_topic(one.lane),
                lane_part=partition_number(one.lane),
                receipt=one.receipt,
                holder=holder,
            )


def _losers(expansion: Expansion) -> Iterator[tuple[str, str]]:
    """Yields (full name of a topic, subscription) for every pair for which a message can be lost."""
    for topic in expansion.topics:
        if topic.state is not None:
            names = (
                [topic.subscription]
                if topic.subscription
                else expansion.topology.spec.topics[topic.ground].subscriptions
            )
            yield from ((topic.name.full, name) for name in names)


def _sources(expansion: Expansion) -> Iterator[tuple[str, str, str]]:
    """Yields (topic, key of the topic in the recall ledger, holder) for each lane that the recall ledger may have
    entries of. The holder is that of RecalledLetter.holder: a subscription for a backup lane, else "".
    """
    grounds = expansion.topology.spec.topics
    for topic in expansion.topics:
        full = topic.name.full
        if topic.state in _RELEASED:
            yield full, full, ""
        elif topic.state is State.READY and topic.level is not None and topic.level.is_backup:
            for holder in grounds[topic.ground].subscriptions:
                yield full, ledger_key(full, f"{topic.level}/{topic.state}", holder), holder


def _stored_from(admin: Admin, expansion: Expansion) -> dict[Key, int]:
    found: dict[Key, int] = {}
    answers = each_internal_stats(admin, [topic.name for topic in expansion.topics])
    for topic, answer in zip(expansion.topics, answers, strict=True):
        for number, stats in (answer or {}).items():
            ledgers = [int(one["ledgerId"]) for one in stats.get("ledgers") or ()]
            if ledgers:
                found[topic.name.full, number] = min(ledgers)
    return found

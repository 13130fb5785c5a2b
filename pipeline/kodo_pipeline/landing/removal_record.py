"""Record of the removals of rows from a landing, in the facts of a commit: figures about removed rows, which an audit
of all rows needs. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from kodo_pipeline.landing.landing_commits import REMOVAL_RUN, LandingCommit

if TYPE_CHECKING:
    from kodo_pipeline.landing.data_files import DataFile


@dataclass(frozen=True, slots=True)
class RemovedTotals:
    """Counts over removed rows. `messages`, `records`: numbers of removed rows of `events` (messages of audit topics
    included) and of `transitions` (audit records); `newest`: publish time of the newest of these messages in ms, None
    without messages.

    The other two count only messages on a ready topic at hop 0, except recalled ones. `unnumbered`: how many have no
    sequence number of a producer; `meant`: how many, with or without a number, are addressed to one subscription, by
    (full name of the topic, subscription).
    """

    messages: int = 0
    records: int = 0
    newest: int | None = None
    unnumbered: int = 0
    meant: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def with_more(self, other: RemovedTotals) -> RemovedTotals:
        """Returns the sums of these counts and those of `other`; `newest` is the later of both, None if both are."""
        return RemovedTotals(
            self.messages + other.messages,
            self.records + other.records,
            max((one for one in (self.newest, other.newest) if one is not None), default=None),
            self.unnumbered + other.unnumbered,
            dict(Counter(self.meant) + Counter(other.meant)),
        )


@dataclass(frozen=True, slots=True)
class RemovalRecord:
    """Record of the last removal, with sums over all removals. `run`: id of the last removal; `before`: no removal has
    removed rows of messages published at this time, in ms, or later; `batch`: last batch whose rows the last removal
    might remove; `finished`: no file of a table has the removed rows any more (replaced files may still exist);
    `totals`: sums; `kept`: name of a table of removals -> number of rows committed to it so far; `number`: number of
    the commit with the record, -1 before there is one.
    """

    run: str
    before: int
    batch: int
    finished: bool = False
    totals: RemovedTotals = field(default_factory=RemovedTotals)
    kept: Mapping[str, int] = field(default_factory=dict)
    number: int = -1

    @classmethod
    def of(cls, commits: Iterable[LandingCommit]) -> Self | None:
        """The record in the last commit of a removal; None if no removal was ever committed."""
        found = next((one for one in commits if one.run == REMOVAL_RUN), None)
        if found is None:
            return None
        facts = found.facts
        meant = {(topic, name): count for topic, name, count in facts["meant"]}
        totals = RemovedTotals(facts["messages"], facts["records"], facts["newest"], facts["unnumbered"], meant)
        return cls(
            facts["run"], facts["before"], facts["batch"], facts["finished"], totals, facts["kept"], found.number
        )

    def to_facts(self) -> dict[str, Any]:
        """The record as JSON facts of a commit, which `of` reads."""
        totals = self.totals
        return {
            "run": self.run, "before": self.before, "batch": self.batch, "finished": self.finished,
            "messages": totals.messages, "records": totals.records, "newest": totals.newest,
            "unnumbered": totals.unnumbered, "meant": [[*key, count] for key, count in totals.meant.items()],
            "kept": dict(self.kept),
        }  # fmt: skip

    def as_finished(self) -> Self:
        """Copy of the record with `finished` set."""
        return replace(self, finished=True)

    def is_whole(self, files: Mapping[str, Sequence[DataFile]]) -> bool:
        """True if `files` (by table name, with all tables in `kept`) have as many rows as were committed to each."""
        return all(sum(one.rows for one in files[name]) == rows for name, rows in self.kept.items())

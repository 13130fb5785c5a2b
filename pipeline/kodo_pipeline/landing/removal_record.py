"""Record of the removals of rows from a landing, as its commit has it: what an audit of all rows has to know of those that
are gone. Pure.
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
    """Counts over removed rows. `newest`: publish time of the newest message in ms; `unnumbered`: first hops without a
    producer's number; `meant`: first hops that are meant for one subscription, by (topic, subscription).
    """

    messages: int = 0
    records: int = 0
    newest: int | None = None
    unnumbered: int = 0
    meant: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def with_more(self, other: RemovedTotals) -> RemovedTotals:
        """Both."""
        return RemovedTotals(
            self.messages + other.messages,
            self.records + other.records,
            max((one for one in (self.newest, other.newest) if one is not None), default=None),
            self.unnumbered + other.unnumbered,
            dict(Counter(self.meant) + Counter(other.meant)),
        )


@dataclass(frozen=True, slots=True)
class RemovalRecord:
    """The last removal, and the sums of all. `run`: that removed last; `before`: only what was published before that
    was removed, ms; `batch`: the last one whose rows it looked at; `finished`: no file holds the rows any more; `kept`:
    rows of the tables of removals; `number`: of its commit.
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
        """Returns the record that the last removal committed. None if no rows were ever removed."""
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
        """Returns the record as the JSON facts of a commit; `of` reads them."""
        totals = self.totals
        return {
            "run": self.run, "before": self.before, "batch": self.batch, "finished": self.finished,
            "messages": totals.messages, "records": totals.records, "newest": totals.newest,
            "unnumbered": totals.unnumbered, "meant": [[*key, count] for key, count in totals.meant.items()],
            "kept": dict(self.kept),
        }  # fmt: skip

    def as_finished(self) -> Self:
        """The same, with nothing left to do."""
        return replace(self, finished=True)

    def is_whole(self, files: Mapping[str, Sequence[DataFile]]) -> bool:
        """True if these are the tables of removals, with all their rows."""
        return all(sum(one.rows for one in files[name]) == rows for name, rows in self.kept.items())

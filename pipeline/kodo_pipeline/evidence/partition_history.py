"""History of a partition in the landed tables: the ranges that ingests read, and the snapshots of its cursors. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from kodo_pipeline.source.coverage import HOLE
from kodo_pipeline.source.splits import Place, parse_position

Key = tuple[str, int]
"""(full name of a topic, number of a partition)."""


class ReadRange(NamedTuple):
    """A range of entries that an ingest (`run`) planned to read; a row of the table `coverage`. `first`, `last`: its
    ends as (ledger, entry), both included, perhaps of different ledgers; `planned`, `seen`: number of its entries, and
    of those that were read or proved unreadable; `full`: the reading came to the planned end, and no planned entry is
    missing; `state`: a constant of kodo_pipeline.source.coverage, such as COMPLETE or TIMEOUT, never HOLE.
    """

    first: Place
    last: Place
    planned: int
    seen: int
    full: bool
    state: str
    run: str


class CursorSnapshot(NamedTuple):
    """A cursor of a partition at one time; a row of the table `cursors`. `subscription` "": the row of the partition
    itself, whose `mark` is the last entry that was stored. `mark`: (ledger, entry), up to which all entries are
    acknowledged; `acknowledged`: (ledger, first, last) ranges of acknowledged entries after the mark, both ends
    included (`last` may exceed the entries of the ledger); `ttl`: message TTL in ms, 0: none or not readable;
    `first_ledger`: id of the oldest stored ledger, -1: none; `taken`: ms since the epoch; `run`: id of the ingest;
    `created`, `rewrites`: see kodo_pipeline.source.partition_stats.PartitionMetadata, None: unknown; `audit`: on audit
    topics "wait", "best_effort" or "unrecorded" (a column of kodo_pipeline.landing.tables.CURSORS), None on other
    topics and in an older landing.
    """

    subscription: str
    mark: Place
    acknowledged: tuple[tuple[int, int, int], ...]
    ttl: int
    first_ledger: int
    taken: int
    run: str
    created: datetime | None = None
    rewrites: int | None = None
    audit: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """Read ranges and cursors of one partition. `ranges`: in order of positions; `marks`: snapshots of cursors in any
    order; `stored_from`: id of the oldest ledger that exists now, by the cluster, None: not read; `holed`: ids of the
    ingests that recorded a hole: entries that may have been deleted before they were read, or were not read because
    the topic had been taken out of the file.
    """

    ranges: tuple[ReadRange, ...] = ()
    marks: tuple[CursorSnapshot, ...] = ()
    stored_from: int | None = None
    holed: tuple[str, ...] = ()

    @property
    def looks(self) -> list[int]:
        """Times of the cursor snapshots, ms since the epoch, ascending."""
        return sorted({mark.taken for mark in self.marks})

    def at(self, taken: int) -> dict[str, CursorSnapshot]:
        """Cursors by subscription ("": the partition itself), in the snapshot that was taken at `taken` (ms since the
        epoch); {} if none was.
        """
        return {mark.subscription: mark for mark in self.marks if mark.taken == taken}

    @property
    def runs(self) -> dict[str, int]:
        """Time of each ingest's cursor snapshot, ms since the epoch, by id of the ingest; the earliest comes first."""
        return dict(sorted({(mark.run, mark.taken) for mark in self.marks}, key=lambda one: one[1]))


def read_tables(
    coverage: Iterable[Mapping[str, Any]],
    cursors: Iterable[Mapping[str, Any]],
    stored_from: Mapping[Key, int],
) -> dict[Key, PartitionHistory]:
    """Makes the history of each partition from rows of the tables `coverage` and `cursors`. Of several rows of
    `coverage` for one range (`split_id`) the last one counts. `stored_from`: id of the oldest ledger that each
    partition has now; partitions may be missing in it. The result has every partition that any of the three has.
    """
    ranges: dict[Key, dict[str, ReadRange]] = defaultdict(dict)
    marks: dict[Key, list[CursorSnapshot]] = defaultdict(list)
    holed: dict[Key, set[str]] = defaultdict(set)
    for row in coverage:
        if row["state"] == HOLE:  # of a hole nobody knows where it begins and ends
            holed[row["msg_topic"], row["msg_partition"]].add(row["ingest_run"])
            continue
        found = ReadRange(
            parse_position(row["first"]), parse_position(row["last"]), row["entries_planned"], row["entries_seen"], row["full"], row["state"],
            row["ingest_run"],
        )  # fmt: skip
        ranges[row["msg_topic"], row["msg_partition"]][row["split_id"]] = found
    for row in cursors:
        acknowledged = tuple((one["ledger"], one["first"], one["last"]) for one in row["acknowledged"])
        mark = (row["mark_ledger"], row["mark_entry"])
        taken = round(row["taken_ts"].timestamp() * 1000)
        marks[row["msg_topic"], row["msg_partition"]].append(
            CursorSnapshot(
                row["subscription"],
                mark,
                acknowledged,
                row["ttl_ms"] or 0,
                row["first_ledger"],
                taken,
                row["ingest_run"],
                row["created_ts"],
                row["rewrites"],
                row["audit"],
            )
        )
    return {
        key: PartitionHistory(
            tuple(sorted(ranges[key].values())),
            tuple(marks[key]),
            stored_from.get(key),
            tuple(sorted(holed.get(key, ()))),
        )
        for key in {*ranges, *marks, *stored_from, *holed}
    }

"""Choice of the rows of a landing to remove: rows of settled messages older than a time, by the state that the last
audit left, and not by what senders claim. Reads the tables by Arrow, some columns of a few rows at a time.

Whole entries are removed, with all of their messages and records. An entry is removed if all of this is true:

- the last audit judged it, and left neither it nor a record about it open;
- every message of it was published before the time, and is stored before the first one of its partition that was not;
- no producer's mark and no dead letter is in it: an audit settles a letter until it is released, then judges it again;
- the same is true of the entries that records connect to it, and these records are as old.

So no record stays whose message is removed, and no message whose records are removed: an audit of the remaining rows
sees whole histories, and judges all of them as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.data_rewrite import stored_rows
from kodo_pipeline.landing.removal_record import RemovedTotals
from kodo_pipeline.landing.state_tables import OPEN_EVENTS, OPEN_RECORDS
from kodo_pipeline.landing.tables import AUDIT, EVENTS, TRANSITIONS, Table
from kodo_pipeline.upkeep.entry_ranges import (
    EntryColumns,
    NumberRange,
    RangeIndex,
    join_ranges,
    partition_key,
    ranges_of,
)
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.topology.names import State

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing, LandingSnapshot
    from kodo_pipeline.source.splits import Place

_END: Final = (1 << 62, 0)  # behind all that is stored
_EVENT: Final = (
    "msg_topic", "msg_partition", "ledger", "entry", "state", "hop", "recall", "for_subscription", "seq_run", "seq_partition",
    "seq_number", "seq_high", "publish_ts", "ingest_run",
)  # fmt: skip
_RECORD: Final = (
    "worker_run",
    "number",
    "topic",
    "subscription",
    "at_ts",
    "msg_topic",
    "id",
    "target_topic",
    "target_id",
)


@dataclass(frozen=True, slots=True)
class RemovalBounds:
    """Bounds of the rows that may be removed. `before`: only rows of messages published before this time (ms); `batch`:
    the last batch whose rows were judged and counted; `ends`: last position of each partition that had been read then.
    """

    before: int
    batch: int
    ends: Mapping[tuple[str, int], Place]

    def has_judged(self, file: DataFile) -> bool:
        """True if the last audit judged all rows of the file, and they were counted: its batch is not after `batch`."""
        return file.batch <= self.batch

    def may_touch(self, file: DataFile) -> bool:
        """False if certainly no row of the file can be removed: the file is too young, or not judged and counted."""
        return self.has_judged(file) and (file.since is None or file.since < self.before)


@dataclass(slots=True)
class SettledRows:
    """Rows to remove. `places`: ranges of entries by (topic, partition, ledger); `records`: ranges of record numbers by
    (worker run, ground topic, subscription); `producers`: ranges of sequence numbers by (topic, partition, producer's
    run). `totals`: counts over the rows; `left`: number of messages that are as old and stay; `files`: by table,
    (number of files with such rows, number of files with only such rows).
    """

    places: list[NumberRange] = field(default_factory=list)
    records: list[NumberRange] = field(default_factory=list)
    producers: list[NumberRange] = field(default_factory=list)
    totals: RemovedTotals = field(default_factory=RemovedTotals)
    left: int = 0
    files: dict[str, tuple[int, int]] = field(default_factory=dict)


def settled_rows(landing: Landing, snapshot: LandingSnapshot, bounds: RemovalBounds) -> SettledRows:
    """Finds the rows that may be removed; changes nothing. `snapshot`: of `events`, `transitions` and the tables of the
    audit's state.
    """
    reader = _Reader(landing, snapshot)
    kept = _KeptEntries(bounds)
    kept.keep(*reader.open_entries())
    kept.limit(reader)
    kept.close(reader)
    found = SettledRows()
    _choose_events(reader, bounds, kept, found)
    found.places = join_ranges(found.places)
    _choose_records(reader, bounds, RangeIndex(found.places), found)
    found.records, found.producers = join_ranges(found.records), join_ranges(found.producers)
    return found


class _Reader:
    def __init__(self, landing: Landing, snapshot: LandingSnapshot) -> None:
        self._landing, self._snapshot = landing, snapshot

    def files(self, table: Table) -> list[DataFile]:
        return list(self._snapshot.files[table.name])

    def rows(self, table: Table, file: DataFile, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yields rows of a file with these columns. Values of partition columns, which files lack, are taken from its
        path.
        """
        import pyarrow as pa

        schema = pa.schema([table.arrow().field(name) for name in columns if name not in table.partitions])
        for batch in stored_rows(self._landing.table(table), file, schema):
            found = batch
            for name in set(columns).intersection(table.partitions):
                found = found.append_column(name, pa.repeat(pa.scalar(file.partition[name], pa.string()), len(batch)))
            yield found

    def open_entries(self) -> Iterator[pa.Array]:
        """Yields keys of the entries that the audit left open, or that an open record is about or has as its target."""
        for file in self.files(OPEN_EVENTS):
            for rows in self.rows(OPEN_EVENTS, file, ("msg_topic", "msg_partition", "ledger", "entry")):
                yield EntryColumns.stored(rows).keys
        for file in self.files(OPEN_RECORDS):
            for rows in self.rows(OPEN_RECORDS, file, ("msg_topic", "id", "target_topic", "target_id")):
                yield EntryColumns.named(rows, "msg_topic", "id").keys
                yield EntryColumns.named(rows, "target_topic", "target_id").keys

    def ties(self, file: DataFile) -> Iterator[tuple[pa.RecordBatch, EntryColumns, EntryColumns]]:
        """Yields rows of records, each with the entry that it is about, and the entry of its target."""
        for rows in self.rows(TRANSITIONS, file, _RECORD):
            own, target = (("msg_topic", "id"), ("target_topic", "target_id"))
            yield rows, EntryColumns.named(rows, *own), EntryColumns.named(rows, *target)


class _KeptEntries:
    """Entries that stay: all after the limit of their partition, and single ones before it."""

    def __init__(self, bounds: RemovalBounds) -> None:
        self._bounds = bounds
        self._limits = {
            partition_key(*key): (ledger, entry + 1) for key, (ledger, entry) in bounds.ends.items()
        }  # of partitions that were judged, and of audit topics
        self._judged = set(self._limits)
        self._keys: set[str] = set()
        self._found: pa.Array | None = None

    def keep(self, *keys: pa.Array) -> bool:
        """Adds entries by their keys. Returns True if one of them was not kept before."""
        before = len(self._keys)
        for one in keys:
            self._keys.update(key for key in one.to_pylist() if key is not None)
        self._found = None if len(self._keys) > before else self._found
        return len(self._keys) > before

    def limit(self, reader: _Reader) -> None:
        """Sets the limit of each partition: its first message that is younger, or not judged. Before it, marks and dead
        letters are kept, and messages with a publish time later than their landing.
        """
        import pyarrow.compute as pc

        for file in reader.files(EVENTS):
            for rows in reader.rows(EVENTS, file, _EVENT):
                places = EntryColumns.stored(rows)
                young = _is_young(rows, self._bounds.before)
                landed = _landed_before(rows, self._bounds.before)
                audits = pc.fill_null(pc.equal(rows["state"], AUDIT), fill_value=False)
                for name in pc.unique(places.partition.filter(audits)).drop_null().to_pylist():
                    self._limits.setdefault(name, _END)
                stays = pc.and_(young, pc.invert(landed)) if self._bounds.has_judged(file) else pc.is_valid(young)
                for name, ledger, entry in places.first_of(stays):
                    if name in self._limits:
                        self._limits[name] = min(self._limits[name], (ledger, entry))
                dead = pc.fill_null(pc.equal(rows["state"], State.DEAD.value), fill_value=False)
                named = pc.or_(dead, pc.is_valid(rows["seq_high"]))
                self.keep(places.keys.filter(pc.or_(named, pc.and_(young, landed))))

    def close(self, reader: _Reader) -> None:
        """Keeps every row that an audit record ties to a kept row, until no more are added. Rows named by records that
        were not judged yet are kept too, because such a record may name any row.
        """
        for file in reader.files(TRANSITIONS):
            if not self._bounds.has_judged(file):
                for _, own, target in reader.ties(file):
                    self.keep(own.keys, target.keys)
        judged = [one for one in reader.files(TRANSITIONS) if self._bounds.has_judged(one)]
        more = True
        while more:
            more = sum(self._is_tied(*one) for file in judged for one in reader.ties(file)) > 0

    def _is_tied(self, rows: pa.RecordBatch, own: EntryColumns, target: EntryColumns) -> bool:
        import pyarrow as pa
        import pyarrow.compute as pc

        late = pc.fill_null(pc.greater_equal(rows["at_ts"], _moment(self._bounds.before)), fill_value=True)
        judged = pa.array(sorted(self._judged), pa.string())
        stays = []
        for one, other in ((own, target), (target, own)):
            known = pc.is_in(other.partition, value_set=judged)  # what no audit asks for ties nothing
            stays.append(pc.and_(self.goes(one), pc.or_(late, pc.and_(known, pc.invert(self.goes(other))))))
        return self.keep(*(one.keys.filter(found) for one, found in zip((own, target), stays, strict=True)))

    def goes(self, places: EntryColumns) -> pa.Array:
        """True for entries that do not stay, but may be removed."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._found is None:
            self._found = pa.array(self._keys, pa.string())
        limits = [(name, *place) for name, place in self._limits.items()]
        before = pc.fill_null(places.before(limits), fill_value=False)
        return pc.and_(before, pc.invert(pc.is_in(places.keys, value_set=self._found)))


def _choose_events(reader: _Reader, bounds: RemovalBounds, kept: _KeptEntries, found: SettledRows) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    touched = whole = 0
    for file in (one for one in reader.files(EVENTS) if bounds.may_touch(one)):
        gone = 0
        for rows in reader.rows(EVENTS, file, _EVENT):
            goes = kept.goes(EntryColumns.stored(rows))
            old = pc.invert(_is_young(rows, bounds.before))
            found.left += pc.sum(pc.and_(old, pc.invert(goes))).as_py() or 0
            chosen = pa.Table.from_batches([rows.filter(goes)])
            gone += chosen.num_rows
            found.places += ranges_of(chosen, ("msg_topic", "msg_partition", "ledger"), "entry")
            found.totals = found.totals.with_more(_totals(chosen, found))
        touched, whole = touched + (gone > 0), whole + (gone == file.rows)
    found.files[EVENTS.name] = touched, whole


def _totals(rows: pa.Table, found: SettledRows) -> RemovedTotals:
    """Counts of removed messages; ranges of their producers' numbers are added to `found`."""
    import pyarrow.compute as pc

    firsts = rows.filter((pc.field("state") == "ready") & (pc.field("hop") == 0) & pc.field("recall").is_null())
    sequenced = firsts.filter(pc.field("seq_run").is_valid() & pc.field("seq_partition").is_valid())
    numbered = sequenced.filter(pc.field("seq_number") >= 1)
    found.producers += ranges_of(numbered, ("msg_topic", "seq_partition", "seq_run"), "seq_number")
    meant = firsts.filter(pc.field("for_subscription") != NOBODY)
    named = meant.group_by(["msg_topic", "for_subscription"]).aggregate([([], "count_all")]).to_pylist()
    newest = pc.max(rows["publish_ts"]).as_py()
    return RemovedTotals(
        rows.num_rows,
        newest=None if newest is None else round(newest.timestamp() * 1000),
        unnumbered=len(firsts) - len(sequenced),
        meant={(one["msg_topic"], one["for_subscription"]): one["count_all"] for one in named},
    )


def _choose_records(reader: _Reader, bounds: RemovalBounds, places: RangeIndex, found: SettledRows) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    touched = whole = 0
    for file in (one for one in reader.files(TRANSITIONS) if bounds.may_touch(one)):
        gone = 0
        for rows, own, target in reader.ties(file):
            chosen = pa.Table.from_batches([rows.filter(pc.or_(places.contains(own), places.contains(target)))])
            gone += chosen.num_rows
            numbered = chosen.filter(pc.field("number") >= 1)
            found.records += ranges_of(numbered, ("worker_run", "topic", "subscription"), "number")
        found.totals = found.totals.with_more(RemovedTotals(records=gone))
        touched, whole = touched + (gone > 0), whole + (gone == file.rows)
    found.files[TRANSITIONS.name] = touched, whole


def _is_young(rows: pa.RecordBatch, before: int) -> pa.Array:
    """True if a message was published at `before` (ms) or later; an unknown time counts as later."""
    import pyarrow.compute as pc

    return pc.fill_null(pc.greater_equal(rows["publish_ts"], _moment(before)), fill_value=True)


def _landed_before(rows: pa.RecordBatch, before: int) -> pa.Array:
    import pyarrow.compute as pc

    return pc.fill_null(pc.less(rows["ingest_run"], f"{_moment(before):%Y%m%d-%H%M%S}"), fill_value=False)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)

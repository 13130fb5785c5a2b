# adapter: reads and writes tables
"""The recall ledger as a Delta table, by the Rust library `deltalake`: needs neither Spark nor Java."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from kodoctl.errors import KodoctlError, error
from kodoctl.host.extras import needs_extra
from kodoctl.host.private_files import make_private
from kodoctl.recall.ledger.recall_ledger import SETTLED, LedgerSlice, RecallEntry, RecallEvent

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import RecallRunRow

_COLUMNS = (
    "run", "event", "recall_id", "dead_topic", "position", "at", "lane", "number", "receipt", "note", "who",
    "published",
)  # fmt: skip

_NAME = "kodoctl recall ledger"
_COUNTED: Final = ("open", "refused", "unclear", "sent", "discarded")  # member of a run's row, by the rank of an event
_Filter = list[tuple[str, str, Any]]
_STORE: Final = {"AWS_ALLOW_HTTP": "true"}  # the environment names the endpoint, and http:// only on purpose


class DeltaLedger:
    """Implementation of RecallLedger (kodoctl.recall.ledger.recall_ledger) in a folder or an object store. `path`: the
    folder, or a URI (a text with `://`). `create` or the first `append` makes the table, and a new folder on this
    machine, also that of a `file://` URI, is for its owner alone (mode 0700). The constructor opens nothing, and raises
    UsageError without the extra `recall`; the other methods raise KodoctlError (K557) for a table that cannot be read
    or written.
    """

    def __init__(self, path: str) -> None:
        with needs_extra("recall"):
            import deltalake  # noqa: F401
            import pyarrow as pa  # noqa: F401
        self.path = path
        self._writer, self._commits = f"kodoctl-recall-{secrets.token_hex(8)}", 0

    def create(self) -> None:
        """Creates an empty table unless a Delta table exists, whose columns are not checked. Raises KodoctlError
        (K557).
        """
        import deltalake

        try:
            self._make_folder()
            deltalake.DeltaTable.create(self.path, _schema(), mode="ignore", name=_NAME, storage_options=_STORE)
        except deltalake.exceptions.CommitFailedError as problem:
            if not self.exists():  # made meanwhile, or here by a request whose answer was lost
                raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None
        except (deltalake.exceptions.DeltaError, OSError) as problem:
            raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None

    def _make_folder(self) -> None:
        """Creates the folder if it is on a disk. Raises OSError."""
        if "://" not in self.path:
            make_private(Path(self.path))
        elif (uri := urlsplit(self.path)).scheme == "file":
            make_private(Path(unquote(uri.path)))

    def exists(self) -> bool:
        """True if there is a Delta table at the path, whatever its columns. Raises KodoctlError (K557)."""
        import deltalake

        try:
            return deltalake.DeltaTable.is_deltatable(self.path, storage_options=_STORE)
        except (deltalake.exceptions.DeltaError, OSError) as problem:
            raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None

    def append(self, entries: Sequence[RecallEntry]) -> None:
        """Stores all entries or none in one commit; does nothing for no entries. If the write fails, looks in the table
        for the commit, which has a number of its own (of an application transaction of Delta): the answer may be lost.
        Raises KodoctlError (K557) if the commit is not found; if that read failed too, the entries may be stored.
        """
        import deltalake
        import pyarrow as pa

        if not entries:
            return
        columns = dict(zip(RecallEntry._fields, zip(*entries, strict=True), strict=True))
        schema = _schema()
        table = pa.table([pa.array(columns[one.name], one.type) for one in schema], schema=schema)
        self._commits += 1
        numbered = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(self._writer, self._commits)])
        try:
            self._make_folder()
            deltalake.write_deltalake(
                self.path, table, mode="append", name=_NAME, commit_properties=numbered, storage_options=_STORE
            )
        except (deltalake.exceptions.DeltaError, OSError) as problem:
            if not self._has_landed():
                raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None

    def _has_landed(self) -> bool:
        import deltalake

        try:
            return (
                deltalake.DeltaTable(self.path, storage_options=_STORE).transaction_version(self._writer)
                == self._commits
            )
        except (deltalake.exceptions.DeltaError, OSError):
            return False

    def entries(self, dead_topic: str, among: LedgerSlice | None = None) -> list[RecallEntry]:
        """Reads the entries of all runs about one source of letters (`dead_topic`: its `ledger_key`), or only about its
        letters `among`, in any order and with None for payloads; [] if there is no table yet. Raises KodoctlError
        (K557), also for a table without a needed column, and if an entry has an event unknown to this version.
        """
        if among is None:
            return self.entries_among([dead_topic])
        if not among.recall_ids:
            return []
        same: _Filter = [("dead_topic", "=", dead_topic), ("recall_id", "in", list(among.recall_ids))]
        published: _Filter = [("published", ">=", among.since), ("published", "<=", among.until)]
        return self._entries([[*same, *published], [*same, ("published", "=", 0)]])  # files of others are not opened

    def entries_among(self, sources: Collection[str]) -> list[RecallEntry]:
        """Does the same as `entries` for all letters of several sources (their `ledger_key`s); [] for no sources."""
        return (
            self._entries([[("dead_topic", "in", list(sources))]]) if sources else []
        )  # Arrow's empty list has no type

    def recall_ids(self) -> frozenset[str]:
        """Every recall id that has an entry, whatever its event, and the UUIDs of clusters (`record_cluster`); an empty
        set if there is no table yet. Raises KodoctlError (K557).
        """
        found: set[str] = set()
        with self._open_table() as table:
            for batch in () if table is None else table.to_pyarrow_dataset().to_batches(["recall_id"]):
                found.update(batch.column(0).to_pylist())
        return frozenset(found)

    def runs(self, namespace: str) -> list[RecallRunRow]:
        """Runs on topics of a namespace (`tenant/namespace`), oldest first: one row for each run and source of letters,
        with the numbers of letters, copies included, by the furthest event that each came to in that run (order of
        RecallEvent); [] if there is no table yet. Raises KodoctlError (K557), also for an event unknown to this
        version.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        columns, key = ["run", "event", "recall_id", "dead_topic", "at", "who"], ["run", "dead_topic"]
        prefix = f"persistent://{namespace}/"
        with self._open_table() as table:
            if table is None:
                return []
            chosen = pc.starts_with(pc.field("dead_topic"), prefix)
            found = table.to_pyarrow_dataset().to_table(columns, filter=chosen)
            ranks = pc.index_in(found["event"], value_set=pa.array([one.value for one in RecallEvent]))
            if ranks.null_count:
                raise ValueError("it has an event that this version of kodoctl does not know")
            by_letter = found.append_column("rank", ranks).group_by([*key, "recall_id"])
            letters = by_letter.aggregate([("rank", "max"), ("at", "min"), ("who", "max")])
            counts = letters.group_by([*key, "rank_max"]).aggregate(
                [("recall_id", "count"), ("at_min", "min"), ("who_max", "max")]
            )
            return _run_rows(counts.to_pylist(), prefix)

    def highest_numbers(self, dead_topic: str, run: str) -> dict[str, int]:
        """Highest sequence number of a run that is certainly stored, by lane (full name of the target partition); lanes
        without one are absent, and it is {} if there is no table yet. `dead_topic`: `ledger_key` of the source. Raises
        KodoctlError (K557).
        """
        import pyarrow.compute as pc

        wanted = (pc.field("dead_topic") == dead_topic) & (pc.field("run") == run)
        wanted &= pc.field("event").isin([event.value for event in SETTLED]) & (pc.field("lane") != "")
        found: dict[str, int] = {}
        with self._open_table() as table:
            batches = () if table is None else table.to_pyarrow_dataset().to_batches(["lane", "number"], filter=wanted)
            for batch in batches:
                for lane, number in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    found[lane] = max(found.get(lane, 0), number)
        return found

    def _entries(self, filters: list[_Filter]) -> list[RecallEntry]:
        with self._open_table() as table:
            found = () if table is None else table.to_pyarrow_table(columns=list(_COLUMNS), filters=filters).to_pylist()
            return [_entry(row) for row in found]

    @contextmanager
    def _open_table(self) -> Iterator[Any]:
        """Context with the table, None if there is none yet. Converts errors to KodoctlError (K557)."""
        from deltalake.exceptions import DeltaError

        try:
            yield self._load()
        except (DeltaError, OSError, ValueError, KeyError) as problem:
            raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None

    def _load(self) -> Any:
        import deltalake
        from deltalake.exceptions import TableNotFoundError

        try:
            table = deltalake.DeltaTable(self.path, storage_options=_STORE)
        except TableNotFoundError:
            return None
        if missing := set(_COLUMNS) - {one.name for one in table.schema().fields}:
            detail = f"{self.path} has no {', '.join(sorted(missing))}: another version of kodoctl wrote it; finish with that one what it began, then name another"
            raise KodoctlError(error("K557", "the ledger cannot be used", detail))
        return table


def _run_rows(counts: Sequence[dict[str, Any]], prefix: str) -> list[RecallRunRow]:
    """Rows of runs from the numbers of letters by run, source and the rank of the event that each came to."""
    rows: dict[tuple[str, str], RecallRunRow] = {}
    for one in counts:
        began, who = one["at_min_min"], one["who_max_max"] or ""
        row = rows.setdefault((one["run"], one["dead_topic"]), {
            "run": one["run"], "began": began, "who": who, "source": one["dead_topic"].removeprefix(prefix),
            "sent": 0, "discarded": 0, "refused": 0, "unclear": 0, "open": 0,
        })  # fmt: skip
        row[_COUNTED[one["rank_max"]]] += one["recall_id_count"]
        row["began"], row["who"] = min(row["began"], began), row["who"] or who
    return sorted(rows.values(), key=lambda row: (row["began"], row["source"]))


def _entry(row: dict[str, Any]) -> RecallEntry:
    return RecallEntry(**{**row, "event": RecallEvent(row["event"])})


def _schema() -> Any:
    import pyarrow as pa

    numbers = {"at": pa.int64(), "number": pa.int64(), "published": pa.int64(), "payload": pa.binary()}
    return pa.schema([(name, numbers.get(name, pa.string())) for name in (*_COLUMNS, "payload")])

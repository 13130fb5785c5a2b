"""The ledger as a Delta table, by the Rust `deltalake`: no Spark, no Java, readable by both."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.recall.recall_ledger import RecallEntry, RecallEvent

_COLUMNS = (
    "run", "event", "recall_id", "dead_topic", "position", "at", "lane", "number", "receipt", "note", "who",
    "published",
)  # fmt: skip

_NAME = "kodoctl recall ledger"
_STORE: Final = {"AWS_ALLOW_HTTP": "true"}  # the environment names the endpoint, and http:// only on purpose


class DeltaLedger:
    """kodoctl.recall.recall_ledger.RecallLedger in a folder or an object store. Made by the first append. Raises UsageError
    without the libraries, KodoctlError for a table that cannot be read or written.
    """

    def __init__(self, path: str) -> None:
        try:
            import deltalake  # noqa: F401
            import pyarrow as pa  # noqa: F401
        except ImportError:
            detail = "the ledger is a Delta table: pip install '.[recall]' in a clone of kodoctl"
            raise UsageError(error("K556", "deltalake is missing", detail)) from None
        self.path = path
        self._writer, self._commits = f"kodoctl-recall-{secrets.token_hex(8)}", 0

    def create(self) -> None:
        """An empty table where there is none."""
        import deltalake

        try:
            if "://" not in self.path:
                Path(self.path).mkdir(parents=True, exist_ok=True)
            deltalake.DeltaTable.create(self.path, _schema(), mode="ignore", name=_NAME, storage_options=_STORE)
        except deltalake.exceptions.CommitFailedError as problem:
            if not self.exists():  # made meanwhile, or here by a request whose answer was lost
                raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None
        except (deltalake.exceptions.DeltaError, OSError) as problem:
            raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None

    def exists(self) -> bool:
        """True if there is a ledger at the path."""
        import deltalake

        try:
            return deltalake.DeltaTable.is_deltatable(self.path, storage_options=_STORE)
        except (deltalake.exceptions.DeltaError, OSError) as problem:
            raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None

    def append(self, entries: Sequence[RecallEntry]) -> None:
        """Stores all entries or none in one commit. It is numbered as an application's transaction, so that one whose
        answer was lost is known again. Raises KodoctlError (K557).
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
            if "://" not in self.path:
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
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

    def entries(self, dead_topic: str) -> list[RecallEntry]:
        """Every entry about one dead-letter topic, without payloads, in any order; none where there is no table yet.
        Raises KodoctlError (K557), also for a table of another version of kodoctl.
        """
        return self.entries_among([dead_topic])

    def entries_among(self, sources: Collection[str]) -> list[RecallEntry]:
        """The same, about several of them."""
        import deltalake
        from deltalake.exceptions import DeltaError, TableNotFoundError

        if not sources:  # for Arrow an empty list is of no type
            return []
        try:
            table = deltalake.DeltaTable(self.path, storage_options=_STORE)
            if missing := set(_COLUMNS) - {one.name for one in table.schema().fields}:
                detail = f"{self.path} has no {', '.join(sorted(missing))}: another version of kodoctl wrote it; finish with that one what it began, then name another"
                raise KodoctlError(error("K557", "the ledger cannot be used", detail))
            found = table.to_pyarrow_table(columns=list(_COLUMNS), filters=[("dead_topic", "in", list(sources))])
            return [_entry(row) for row in found.to_pylist()]
        except TableNotFoundError:
            return []
        except (DeltaError, OSError, ValueError, KeyError) as problem:
            raise KodoctlError(error("K557", "the ledger cannot be used", f"{self.path}: {problem}")) from None


def _entry(row: dict[str, Any]) -> RecallEntry:
    return RecallEntry(**{**row, "event": RecallEvent(row["event"])})


def _schema() -> Any:
    import pyarrow as pa

    numbers = {"at": pa.int64(), "number": pa.int64(), "published": pa.int64(), "payload": pa.binary()}
    return pa.schema([(name, numbers.get(name, pa.string())) for name in (*_COLUMNS, "payload")])

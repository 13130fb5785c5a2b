"""The landing: Parquet folders that count only once a manifest names them. What writes it and what reads it.

    LANDING/TOPOLOGY/ENVIRONMENT/
      events/ transitions/ coverage/ cursors/   a folder for each batch, or run, and attempt
      rollup/ latencies/                        a folder for each run, and in it one for each day it counted
      _manifests/                                batch-NNNNNNNNN.json, run-RUN.json: written last, whole or not at all
      _checkpoint/                               Spark's own book of what was read
      _work/                                     coverage on its way

A batch that is repeated writes another folder, and its manifest then names that one: readers never see half of
anything.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import KodoctlError, LockedError, UsageError, error
from kodoctl.pipeline.ingest.file_store import Storage
from kodoctl.pipeline.ingest.tables import CURSORS, EVENTS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = 1
FEW: Final = 50_000  # rows for which a light session is enough
DEFAULT: Final = ".kodoctl/landing"
_END: Final = "-end"  # of a run: its second manifest
BASE: Final = "base"  # environment of a file without overlay
_RUN: Final = re.compile(r"\b\d{8}-\d{6}(?=-)")  # when it began, in a run's id
_FILE: Final = "part-0.parquet"  # of what is written without Spark
_OLD: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Entry of one manifest for one table: its folder below the landing, its rows, and the bounds of `publish_ts` in
    ms.
    """

    folder: str
    rows: int
    since: int | None = None
    until: int | None = None

    def touches(self, since: int | None, until: int | None) -> bool:
        """True if the part can hold rows from `since` to before `until` (ms)."""
        late = until is not None and self.since is not None and self.since >= until
        early = since is not None and self.until is not None and self.until < since
        return not late and not early


@dataclass(frozen=True, slots=True)
class Manifest:
    """A batch (`batch` from 0) or the beginning or end of a run (None). `at`: ms since the epoch. `facts`: further
    figures of it.
    """

    run: str
    at: int
    batch: int | None = None
    tables: Mapping[str, TableFiles] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Name of its file in the folder of manifests; batches sort by their numbers."""
        return f"run-{self.run}.json" if self.batch is None else f"batch-{self.batch:09d}.json"

    def to_json(self) -> dict[str, Any]:
        """As it is written."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def of_json(cls, form: Mapping[str, Any]) -> Manifest:
        """The inverse. Raises ValueError with the reason for a text that is no manifest."""
        try:
            if form["format"] != FORMAT:
                raise ValueError(f"a manifest of format {form['format']!r}: a newer kodoctl wrote it")
            tables = {name: TableFiles(**one) for name, one in form["tables"].items()}
            return cls(form["run"], form["at"], form["batch"], tables, form["facts"])
        except (KeyError, TypeError, AttributeError):
            raise ValueError("no manifest of kodoctl's: something else wrote, or changed, it") from None


class Landing:
    """Of one topology in one environment."""

    def __init__(self, uri: str, topology: str, environment: str | None) -> None:
        self.root = Storage(uri) / topology / (environment or BASE)
        self._manifests = self.root / "_manifests"

    @property
    def checkpoint(self) -> Storage:
        """Folder in which Spark keeps the offsets and the state of its stream."""
        return self.root / "_checkpoint"

    def work(self, run: str) -> Storage:
        """Folder for the intermediate files of a run."""
        return self.root / "_work" / run

    def folder(self, table: Table, name: str) -> tuple[str, str]:
        """(below the landing, for Spark)."""
        below = f"{table.name}/{name}"
        return below, f"{self.root.uri}/{below}"

    def manifests(self) -> list[Manifest]:
        """Batches in order, then runs in order. Raises KodoctlError naming a file that is no manifest."""
        return [self._manifest(name, form) for name, form in self._manifests.documents().items()]

    def _manifest(self, name: str, form: Any) -> Manifest:
        try:
            return Manifest.of_json(form)
        except ValueError as problem:
            detail = f"{self._manifests.uri}/{name}: {problem}"
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None

    def is_small(self) -> bool:
        """True if the landing holds few rows."""
        return sum(part.rows for one in self.manifests() for part in one.tables.values()) <= FEW

    def commit(self, manifest: Manifest) -> None:
        """From now on, what it names counts."""
        self._manifests.write(manifest.file, manifest.to_json())

    def write_rows(self, table: Table, name: str, rows: Sequence[Mapping[str, Any]]) -> TableFiles:
        """A few rows, without Spark."""
        import pyarrow as pa
        from pyarrow import parquet

        below, _ = self.folder(table, name)
        made = pa.Table.from_pylist([dict(row) for row in rows], schema=table.arrow())
        with (self.root / below).output(_FILE) as out:
            parquet.write_table(made, out)
        return TableFiles(below, len(rows))

    def read_rows(self, part: TableFiles) -> list[dict[str, Any]]:
        """The rows that `write_rows` wrote, without Spark."""
        from pyarrow import parquet

        with (self.root / part.folder).input(_FILE) as file:
            return list(parquet.read_table(file).to_pylist())

    def read(
        self,
        spark: SparkSession,
        table: Table,
        *,
        since: int | None = None,
        until: int | None = None,
        named: Sequence[Manifest] | None = None,
    ) -> DataFrame:
        """Everything committed, of batches that touch the time (ms of `publish_ts`, `until` excluded); their rows are
        not filtered. No rows where nothing is. `named`: the manifests that count, where several tables are to be of
        one moment.
        """
        manifests = self.manifests() if named is None else named
        parts = files_of(manifests, table)
        return self.read_folders(spark, table, (one.folder for one in parts if one.touches(since, until)))

    def read_folders(self, spark: SparkSession, table: Table, below: Iterable[str]) -> DataFrame:
        """Rows of the table in these folders, named below the landing; no rows if there is no folder."""
        folders = [f"{self.root.uri}/{name}" for name in below]
        if not folders:
            return spark.createDataFrame([], table.spark())
        return spark.read.schema(table.spark()).parquet(*folders)

    def check(self) -> None:
        """Raises KodoctlError when nothing can be written there, or when batches are there and the book of what was
        read is not: they would be read again. Makes the folder.
        """
        self._make()
        landed = self._manifests.exists() and any(one.batch is not None for one in self.manifests())
        if landed and not self.checkpoint.exists():
            detail = (
                f"{self.checkpoint.uri} is gone, so nobody knows what {self.root.uri} holds already; land elsewhere"
            )
            raise KodoctlError(error("K573", "the landing cannot be used", detail))

    def _make(self) -> None:
        if self.root.local is None:
            return
        try:
            self.root.local.mkdir(parents=True, exist_ok=True)
            if not os.access(self.root.local, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.root.local))
        except OSError as problem:
            detail = f"{problem.filename}: {problem.strerror}: name another folder with --landing"
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None

    def sweep(self, tables: Sequence[Table], *, alone: bool) -> None:
        """Removes the files of attempts that were never committed. If another ingest may be running (not `alone`), only
        those of attempts that began more than a day ago.
        """
        named = {part.folder for one in self.manifests() for part in one.tables.values()}
        for folder in (*(table.name for table in tables), "_work"):
            for name in (self.root / folder).folders():
                if f"{folder}/{name}" not in named and (alone or _is_old(name)):
                    (self.root / folder / name).remove()

    @contextlib.contextmanager
    def alone(self, what: str = "ingest") -> Iterator[bool]:
        """One ingest, or rollup, at a time, where the landing is a folder on a file system that has locks: True.
        Elsewhere no lock is possible: False. Of two ingests at once Spark's checkpoint then ends one, unless both
        write the same file between its check and its creation. Raises LockedError.
        """
        if self.root.local is None:
            yield False
            return
        self._make()
        with (self.root.local / (".lock" if what == "ingest" else f".lock-{what}")).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                detail = f"another {what} is running in {self.root.uri}: wait until it has ended"
                raise LockedError(error("K575", "another run is under way", detail)) from None
            except OSError:  # a file system without locks
                yield False
                return
            yield True


def _is_old(name: str) -> bool:
    """True if the name of a folder shows that its run began more than a day ago; False if the name shows no time."""
    begun = _RUN.search(name)
    return begun is not None and datetime.strptime(f"{begun[0]}+0000", "%Y%m%d-%H%M%S%z") < datetime.now(UTC) - _OLD


def finished(manifests: list[Manifest]) -> list[str]:
    """Runs up to the last one that ended by itself."""
    begun = {one.run: one.at for one in manifests if one.batch is None and CURSORS.name in one.tables}
    ended = {one.run.removesuffix(_END) for one in manifests if one.facts.get("complete")}
    last = max((at for run, at in begun.items() if run in ended), default=-1)
    return sorted(run for run, at in begun.items() if at <= last)


def read_at(manifests: list[Manifest]) -> int:
    """Start time of the last run that ended by itself, ms since the epoch; 0 if there is none."""
    runs = finished(manifests)
    return max((one.at for one in manifests if one.batch is None and one.run in runs), default=0)


def must_hold(landing: Landing, typed: str, *, messages: bool = False) -> None:
    """Raises UsageError if no run has ended by itself, or, with `messages`, if no message has landed: a typo in
    --landing or --env must not look like an empty cluster. `typed`: arguments of the command, from
    kodoctl.pipeline.command_hint. Starts no Spark, creates no folder.
    """
    manifests = landing.manifests()
    if holds_messages(manifests) if messages else finished(manifests):
        return
    begun = " but one that was cut off" if manifests and not messages else ""
    others = [] if manifests else Storage(landing.root.uri.rpartition("/")[0]).folders()
    there = f"\nof this topology there is {', '.join(others)}: --env names the environment" if others else ""
    holds = "no messages" if messages else f"no run{begun}"
    detail = f"{landing.root.uri} holds {holds}{there}\nland first: kodoctl pipeline ingest {typed}"
    raise UsageError(error("K801", "nothing has landed", detail))


def holds_messages(manifests: Sequence[Manifest]) -> bool:
    """True if any batch has messages."""
    return bool(files_of(manifests, EVENTS))


def files_of(manifests: Iterable[Manifest], table: Table) -> list[TableFiles]:
    """Folders of a table that the manifests name and that have rows, in order."""
    named = [one.tables[table.name] for one in manifests if table.name in one.tables]
    return [one for one in named if one.rows]

"""Maintenance of a landing: merges small files, writes checkpoints of logs, and removes expired payloads and files that
no table names. Committed rows stay. Needs no Spark.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.data_rewrite import rewrite
from kodo_pipeline.landing.landing_commits import (
    AUDIT_RUN,
    MAINTAIN_RUN,
    ROLLUP_RUN,
    LandingCommit,
    newest_batch,
    next_number,
)
from kodo_pipeline.landing.recorded_tables import RECORDED
from kodo_pipeline.landing.removal_record import RemovalRecord
from kodo_pipeline.landing.state_tables import REMOVALS, STATE
from kodo_pipeline.landing.tables import COMMITS, COUNTED, TABLES, Table
from kodo_pipeline.upkeep.payload_removal import expire, expiry_times
from kodo_pipeline.upkeep.row_removal import finish_removal
from kodo_pipeline.upkeep.unnamed_files import YOUNG, remove_unnamed
from kodoctl.errors import KodoctlError

if TYPE_CHECKING:
    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.landing.payload_policy import PayloadPolicy


TARGET: Final = 128 * 1024 * 1024  # bytes of a file
_WORTH: Final = (
    4  # a file that is so many times the others together stays as it is: a row is rewritten a few times in all
)
RETAIN: Final = 24  # hours that a replaced file stays, for those who read it
_GROUPS: Final = 32  # of a commit
"""Merged files of one commit: a killed maintenance loses at most their work, and a landing with many partitions has few
commits.
"""


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """Request of a maintenance. `retain`: hours for which a replaced file stays, for readers that have it open;
    `target`: bytes of a merged file; `policies`: payload policies by ground topic.
    """

    landing: Landing
    run: str
    retain: int = RETAIN
    target: int = TARGET
    policies: Mapping[str, PayloadPolicy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """Result of a maintenance. `files`: number of files of each table, (before, after); `removed`, `freed`: number and
    bytes of removed files; `expired`: number of expired payloads.
    """

    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    removed: int = 0
    freed: int = 0
    expired: int = 0


def is_due(commits: Sequence[LandingCommit], every: int) -> bool:
    """True if the number of the newest batch with messages is at least `every` higher than at the last maintenance, or
    more than 3 × `every` commits were made (a run with a batch makes three, one without makes two). False if `every` is
    0.
    """
    last = next((one for one in commits if one.run == MAINTAIN_RUN), None)
    batch, number = (-1, -1) if last is None else (last.facts["batch"], last.number)
    most = 3 * every  # a run with a batch is three commits, one without is two
    return every > 0 and (newest_batch(commits) - batch >= every or next_number(commits) - 1 - number > most)


@contextmanager
def record_run(landing: Landing, run: str, what: str, *, alone: bool) -> Iterator[None]:
    """Context for a run that writes files: records its start and its end. First removes the files of killed runs; if
    the block raises an Exception, removes the files of this run. After a KeyboardInterrupt a later run removes them.
    """
    landing.sweep(what, alone=alone)
    landing.start(run, what)
    try:
        yield
    except Exception:
        landing.end(run, what, sweep=True)
        raise
    landing.end(run, what)


def maintain(asked: MaintenanceRequest, report: Callable[[str, int, int], None] = lambda *_: None) -> MaintenanceResult:
    """Maintains a landing: finishes a removal of rows that was killed, expires payloads, merges small files, shortens
    logs, removes files that no table names, and commits the result. Calls `report` with the name of each table, its
    number of files before, and the number after. Raises KodoctlError.

    No ingest may write to the landing at the same time, except in an object store: there a conflicting commit is
    refused, and the next maintenance merges those files.
    """
    landing = asked.landing
    commits = landing.recover()
    finish_removal(landing, asked.run)
    last = next(
        (one for one in commits if one.run == MAINTAIN_RUN), LandingCommit(MAINTAIN_RUN, 0, facts={"batch": -1})
    )
    before = expiry_times(asked.policies, int(time.time() * 1000))
    expired = expire(landing, asked.run, before, last.facts.get("expiry", {}), last.facts["batch"])
    floors = [one.facts["batch"] for one in commits if one.run in (ROLLUP_RUN, AUDIT_RUN)]
    files: dict[str, tuple[int, int]] = {}
    every = (*TABLES, *COUNTED, *RECORDED, *(REMOVALS if RemovalRecord.of(commits) else ()))
    for table in every:
        files[table.name] = _compact(asked, table, floors)
        report(table.name, *files[table.name])
    removed = [size for table in (*every, COMMITS) for size in _tidy(asked, table)]
    for table in STATE:
        with suppress(KodoctlError):  # it may be lost: the next audit makes it anew
            removed += _tidy(asked, table)
    result = MaintenanceResult(files, len(removed), sum(removed), expired)
    facts = {"run": asked.run, "batch": newest_batch(commits), "removed": result.removed, "freed": result.freed}
    facts |= {"expired": expired, "expiry": before}
    landing.commit(LandingCommit(MAINTAIN_RUN, int(time.time() * 1000), facts=facts), behind=last.number)
    return result


def _compact(asked: MaintenanceRequest, table: Table, floors: Sequence[int]) -> tuple[int, int]:
    """Merges small files of a table. Returns its numbers of files (before, after)."""
    place = asked.landing.table(table)
    found = place.version().files
    groups = compaction_groups(found, floors, asked.target)
    for number in range(0, len(groups), _GROUPS):
        some = groups[number : number + _GROUPS]
        gone = [one for group in some for one in group]
        made = [rewrite(place, group, _attempt(group, f"{asked.run}-{number}")) for group in some]
        if not place.exchange(gone, made):
            place.folder.delete(one.path for one in made)  # their folder may have files that count
    return len(found), len(place.version().files) if groups else len(found)


def _tidy(asked: MaintenanceRequest, table: Table) -> list[int]:
    """Shortens the log of a table and removes files that the table does not name. Returns the sizes of the removed
    files.
    """
    asked.landing.table(table).tidy_log()
    return remove_unnamed(asked.landing, table, asked.retain, loose=max(asked.retain, YOUNG))


def _attempt(group: Sequence[DataFile], run: str) -> str:
    """Name of the folder for a merged file; it begins with the number of the last batch in it, if all files are of
    batches.
    """
    last = max(one.batch for one in group)
    return f"compact-{run}" if last < 0 else f"{last:09d}-compact-{run}"


def compaction_groups(
    files: Iterable[DataFile], floors: Sequence[int] = (), target: int = TARGET
) -> list[list[DataFile]]:
    """Groups of at least two files to merge, each in order of batches. Files of half the target or more are left out,
    and those much larger than all others together. `floors`: numbers of batches up to which a rollup or an audit has
    counted: files before and after such a batch are not merged with each other, because counted rows would be read
    again with new ones. `target`: bytes of a merged file.
    """
    apart: dict[tuple[object, ...], list[DataFile]] = defaultdict(list)
    for one in files:
        if one.size < target // 2:
            side = -1 if one.batch < 0 else sum(one.batch > floor for floor in floors)
            apart[(*sorted(one.partition.items(), key=str), side)].append(one)
    return [group for found in apart.values() for group in _pack_files(_worthwhile(found), target)]


def _worthwhile(files: list[DataFile]) -> list[DataFile]:
    """The files without large ones, for which the others together are too small to rewrite them."""
    kept = sorted(files, key=lambda one: one.size)
    rest = sum(one.size for one in kept)
    while kept and kept[-1].size > _WORTH * (rest - kept[-1].size):
        rest -= kept.pop().size
    return sorted(kept, key=lambda one: (one.batch, one.path))


def _pack_files(files: list[DataFile], target: int) -> list[list[DataFile]]:
    groups: list[list[DataFile]] = []
    size = target
    for one in files:
        if size + one.size > target:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one.size
    return [one for one in groups if len(one) > 1]

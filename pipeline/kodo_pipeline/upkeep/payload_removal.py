"""Removal of landed payloads: of those that are older than their policy permits, and of those of one tenant. Identity,
size and digest of each message stay, and so does every proof. One commit replaces the files that contain the payloads;
the old files are then removed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.data_rewrite import rewrite, stored_rows
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import RUN_TIME
from kodo_pipeline.landing.payload_policy import ERASED, EXPIRED, MASKED, PayloadPolicy, without_payloads
from kodo_pipeline.landing.recorded_tables import ERASURES
from kodo_pipeline.landing.tables import AUDIT, EVENTS
from kodo_pipeline.upkeep.unnamed_files import YOUNG, remove_unnamed
from kodoctl.errors import LockedError, error

if TYPE_CHECKING:
    import pyarrow as pa

    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing

_DAY: Final = 86_400_000
_TRIES: Final = 5  # of files that others replace meanwhile
_SEEN: Final = ("state", "tenant", "msg_topic", "publish_ts", "size", "payload_state", "ingest_run")
Choice = Callable[["pa.RecordBatch"], "pa.Array"]  # true for rows that are meant, of those with the columns _SEEN


@dataclass(frozen=True, slots=True)
class PayloadSelection:
    """Payloads to remove. `files`: the files that contain them; `messages`, `bytes`: their number and size; `since`,
    `until`: first and last publish time of their messages, in ms since the epoch, None if no message is selected;
    `topics`: number of messages by full name of the topic.
    """

    files: tuple[DataFile, ...] = ()
    messages: int = 0
    bytes: int = 0
    since: int | None = None
    until: int | None = None
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """Request to erase a tenant's payloads. `topic`: ground topic by its name in the file, None: all; `by`: the user;
    `alone`: a lock ensures that no other run is writing.
    """

    landing: Landing
    run: str
    tenant: str
    topic: str | None
    reason: str
    by: str
    alone: bool = True


def select_tenant(landing: Landing, tenant: str, topic: str | None) -> PayloadSelection:
    """Finds the landed payloads of a tenant; changes nothing. `topic`: ground topic, None: all."""
    files = (one for one in landing.snapshot(EVENTS).files[EVENTS.name] if topic in (None, one.partition["topic"]))
    return _select(landing, files, _of_tenant(tenant))


def erase(asked: ErasureRequest, selected: PayloadSelection) -> tuple[int, int]:
    """Removes the `selected` payloads of a tenant, which are selected anew if others replaced their files, then all
    files that the table `events` no longer names; where others may write, files that it never named stay 24 hours.
    Returns (number of payloads, number of removed files).

    The table `erasures` gets a row before and one after; the second is missing if this call did not end or raised.
    Raises LockedError if others keep replacing the same files.
    """
    landing = asked.landing
    _record(asked, "begin", selected)

    def selection() -> PayloadSelection:
        return select_tenant(landing, asked.tenant, asked.topic)

    found = _remove_payloads(landing, selected, selection, _of_tenant(asked.tenant), ERASED, asked.run)
    removed = remove_unnamed(landing, EVENTS, 0, loose=0 if asked.alone else YOUNG)
    _record(asked, "end", found)
    return found.messages, len(removed)


def expiry_times(policies: Mapping[str, PayloadPolicy], now: int) -> dict[str, int]:
    """Expiry time in ms by ground topic: payloads of messages published before it are to be removed. Times are whole
    days (UTC), so that a file is not rewritten again and again. For a topic whose payloads do not land it is the end of
    today, so that payloads that landed under an earlier policy are removed too. Topics whose payloads stay for ever are
    left out.
    """
    today, keeps = now // _DAY * _DAY, {name: one.keep for name, one in policies.items()}
    return {name: today - keep if keep else today + _DAY for name, keep in keeps.items() if keep is not None}


def expire(landing: Landing, run: str, before: Mapping[str, int], done: Mapping[str, int], batch: int) -> int:
    """Removes payloads of messages older than `before` (see `expiry_times`), and returns their number.

    A message is older than a time if it was published or landed before that time: its sender chooses the publish time,
    and one in the future must not keep a payload for ever. In a file that was rewritten since, rows whose publish times
    are all after that time, and past, stay until the run that rewrote it is as old. `done`: times (`before`) of the
    last expiry, which has examined all files up to the batch `batch`. Raises LockedError as `erase` does, so that the
    caller does not record an expiry as done that left payloads.
    """
    now, expired = int(time.time() * 1000), 0
    for topic, at in before.items():

        def is_due(file: DataFile, topic: str = topic, at: int = at) -> bool:
            seen = 0 <= file.batch <= batch and file.until is not None and file.until < done.get(topic, 0)
            old = file.since is None or file.since < at or (file.until or 0) > now
            run = RUN_TIME.search(file.path)  # of the rows, or a later one that rewrote them
            landed = run is not None and run[0] < _run_time(at)
            return file.partition["topic"] == topic and (old or landed) and not seen

        def selection(is_due: Callable[[DataFile], bool] = is_due, at: int = at) -> PayloadSelection:
            return _select(landing, filter(is_due, landing.snapshot(EVENTS).files[EVENTS.name]), _before(at))

        expired += _remove_payloads(landing, selection(), selection, _before(at), EXPIRED, run).messages
    return expired


def _of_tenant(tenant: str) -> Choice:
    import pyarrow.compute as pc

    return lambda rows: pc.equal(rows.column("tenant"), tenant)


def _before(at: int) -> Choice:
    import pyarrow.compute as pc

    moment = datetime.fromtimestamp(at / 1000, UTC)
    return lambda rows: pc.or_kleene(
        pc.less(rows.column("publish_ts"), moment), pc.less(rows.column("ingest_run"), _run_time(at))
    )


def _run_time(at: int) -> str:
    """A time in ms as the ids of runs begin with it."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y%m%d-%H%M%S}"


def _holders(rows: pa.RecordBatch, choice: Choice) -> pa.Array:
    """True for rows that `choice` means and that have a payload."""
    import pyarrow as pa
    import pyarrow.compute as pc

    state = rows.column("payload_state")
    there = [
        pc.not_equal(rows.column("state"), AUDIT),
        pc.not_equal(rows.column("size"), 0),
        pc.or_kleene(pc.is_null(state), pc.equal(state, MASKED)),
        choice(rows),
    ]
    return pc.fill_null(reduce(pc.and_kleene, there), pa.scalar(value=False))


def _select(landing: Landing, files: Iterable[DataFile], choice: Choice) -> PayloadSelection:
    import pyarrow as pa

    schema = pa.schema([EVENTS.arrow().field(name) for name in _SEEN])
    chosen: dict[str, DataFile] = {}
    topics: Counter[str] = Counter()
    times: list[datetime] = []
    size = 0
    for file in files:
        for batch in stored_rows(landing.table(EVENTS), file, schema):
            for row in batch.filter(_holders(batch, choice)).to_pylist():
                chosen[file.path] = file
                topics[row["msg_topic"]] += 1
                size += row["size"] or 0
                times = [min([row["publish_ts"], *times[:1]]), max([row["publish_ts"], *times[1:]])]
    since, until = (round(one.timestamp() * 1000) for one in times) if times else (None, None)
    return PayloadSelection(tuple(chosen.values()), topics.total(), size, since, until, dict(sorted(topics.items())))


def _remove_payloads(
    landing: Landing,
    found: PayloadSelection,
    selection: Callable[[], PayloadSelection],
    choice: Choice,
    word: str,
    run: str,
) -> PayloadSelection:
    """Removes the payloads of `found` and returns the selection that was removed. Selects anew if another writer
    replaced the files. Raises LockedError if this happens `_TRIES` times.
    """
    for number in range(_TRIES):
        if _replace(landing, found, choice, word, f"{run}-{number}"):
            return found
        found = selection()
    detail = f"others replace files of {landing.root.uri} all the time: run it again when they have ended"
    raise LockedError(error("K575", "another run is under way", detail))


def _replace(landing: Landing, found: PayloadSelection, choice: Choice, word: str, run: str) -> bool:
    """Replaces the selected files by files without the chosen payloads, in one commit. False if one of the selected
    files no longer exists.
    """

    def change(rows: pa.RecordBatch) -> pa.RecordBatch:
        return without_payloads(rows, _holders(rows, choice).to_pylist(), word)

    place = landing.table(EVENTS)
    made = [rewrite(place, [one], _attempt(one, run), change) for one in found.files]
    if not made or place.exchange(found.files, made):
        return True
    place.folder.delete(one.path for one in made)  # their folder may have files that count
    return False


def _attempt(file: DataFile, run: str) -> str:
    return f"payloads-{run}" if file.batch < 0 else f"{file.batch:09d}-payloads-{run}"


def _record(asked: ErasureRequest, event: str, found: PayloadSelection) -> None:
    now = int(time.time() * 1000)
    row = {
        "at_ts": datetime.fromtimestamp(now / 1000, UTC), "run": asked.run, "event": event, "tenant": asked.tenant,
        "topic": asked.topic, "reason": asked.reason, "by": asked.by, "messages": found.messages, "bytes": found.bytes,
    }  # fmt: skip
    name = f"erase-{asked.run}-{event}"
    tables = {ERASURES.name: asked.landing.write_rows(ERASURES, name, [row])}
    asked.landing.commit(LandingCommit(name, now, tables=tables))

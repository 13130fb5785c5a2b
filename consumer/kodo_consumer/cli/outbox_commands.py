"""Commands for the outbox: its table, the relay, and rows that a person lists, holds back or sends again."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kodo_consumer.cli.options import LogOptions, Port, Topology, connects, log_options
from kodo_consumer.outbox.row_filter import RowFilter, RowStatus
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import command, one_line, reading, say
from kodoctl.cli.common.options import gathers, parse_rate
from kodoctl.errors import UsageError, error
from kodoctl.host.end_signals import ending_on_signals
from kodoctl.host.extras import needs_extra
from kodoctl.host.host_facts import working_folder
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from sqlalchemy import URL

    from kodo_consumer.outbox.outbox_store import OutboxScope, OutboxStore
    from kodo_consumer.outbox.relay import Relay
    from kodo_consumer.runtime.settings import Settings

log = logging.getLogger("kodo.outbox")


class Dialect(StrEnum):
    """Databases for which `schema` prints SQL."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


class RowFormat(StrEnum):
    """Format in which rows are printed."""

    TEXT = "text"
    JSON = "json"


def _choice(status: list[RowStatus] | None, **given: Any) -> RowFilter:
    return RowFilter(statuses=tuple(status or ()), **given)


_CHOICE: Final[dict[str, Any]] = {
    "status": Annotated[list[RowStatus] | None, typer.Option("--status", help="Only rows in it (repeatable).")],
    "topic": Annotated[str | None, typer.Option("--topic", help="Only rows for this topic.", metavar="NAME")],
    "key": Annotated[str | None, typer.Option("--key", help="Only rows with this key.", metavar="KEY")],
    "biz_code": Annotated[
        str | None, typer.Option("--biz-code", help="Only rows of this business code.", metavar="CODE")
    ],
    "app": Annotated[str | None, typer.Option("--app", help="Only rows that this application wrote.", metavar="NAME")],
}
_choosing = gathers("choice", _CHOICE, _choice)
Ids = Annotated[list[str] | None, typer.Argument(help="Only these rows.", metavar="ID", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every row that can be, up to --limit; instead of naming some.")]
Limit = Annotated[
    int, typer.Option("--limit", help="Maximum number of rows, oldest first.", min=1, max=2**63 - 1, metavar="N")
]


@command
@connects
@log_options
def run(
    topology: Topology,
    app: Annotated[
        str | None, typer.Option("--app", help="Only rows that this application wrote.", metavar="NAME")
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End when no row is left to send.")] = False,
    port: Port = None,
    *,
    logs: LogOptions,
    place: ConnectionOptions,
) -> None:
    """Send committed messages until SIGTERM.

    Then waits for receipts and exits 0. Several relays may run at once.
    """
    from random import Random

    from kodo_consumer.adapters.metrics.http_server import serving
    from kodo_consumer.adapters.metrics.outbox_metrics import RelaySight
    from kodo_consumer.core.values.clock import SystemClock
    from kodo_consumer.outbox.producers import Senders
    from kodo_consumer.outbox.target_topics import OutboxTopics
    from kodo_consumer.producer import Producer
    from kodo_consumer.running.multi_run import reloading_on_hangup
    from kodo_consumer.runtime.topology_reload import contents
    from kodo_consumer.sending.route_reload import route_reloader

    with needs_extra("database"):
        from kodo_consumer.outbox.outbox_store import OutboxScope
        from kodo_consumer.outbox.relay import Relay

    surroundings, text = Environment.of(**place), contents(Path(topology))
    loaded = surroundings.topology(topology)
    send_targets = OutboxTopics(loaded)
    connection = surroundings.connection()
    settings = _relay_settings()
    store = _store(settings, OutboxScope(send_targets.environment, app))
    senders = Senders(
        send_targets,
        lambda send_target: Producer.to(
            send_target, connection, settings, siblings=partial(send_targets.sibling, send_target)
        ),
    )
    reloader = route_reloader(
        Path(topology), surroundings, (loaded, text), lambda found: OutboxTopics(found).send_targets, senders.follow
    )
    relay = Relay(store, senders, SystemClock(), Random(), _options(settings))  # noqa: S311  # spreads tries, no secret
    logs.apply()
    say(f"relay for {', '.join(send_targets.names)}")
    with (
        closing(store),
        closing(senders),
        serving(RelaySight(relay, store), settings.host, port, log),
        ending_on_signals() as asked,
        reloading_on_hangup([partial(reloader.reload, always=True)]),
        reloader.watching(),
    ):
        empty: Callable[[], bool] = (lambda: store.next_due() is None) if until_empty else (lambda: False)
        relay.serve(asked, drain_timeout=settings.drain_timeout / 1000, until_empty=empty)
    say(_summary(relay))


@reading
def schema(
    dialect: Annotated[Dialect, typer.Option("--dialect", help="The database it is for.")] = Dialect.POSTGRESQL,
) -> None:
    """Print the SQL that makes the table and its indexes.

    It is to be run once.
    """
    with needs_extra("database"):
        from kodo_consumer.outbox.table import schema_sql

    say(schema_sql(dialect))


@reading
@_choosing
def list_rows(
    ids: Ids = None,
    limit: Limit = 50,
    format: Annotated[RowFormat, typer.Option("--format", help="How rows are printed.")] = RowFormat.TEXT,  # noqa: A002
    *,
    choice: RowFilter,
) -> None:
    """Count rows by status, and show the oldest.

    Payloads are not shown.
    """
    with closing(_store(_settings())) as store, usable(store.url):
        chosen = _with_ids(choice, ids)
        counts, rows = store.counts(chosen), store.rows(chosen, limit)
    if format is RowFormat.JSON:
        plain = [{name: _plain(value) for name, value in row.items() if name != "is_due"} for row in rows]
        say(json.dumps({"counts": counts, "rows": plain}, indent=2))
        return
    say(", ".join(f"{name} {count}" for name, count in counts.items()))
    for row in rows:
        say(_row_text(row))
        if row["last_error"]:
            say(f"  {one_line(row['last_error'], 200)}")


@command
@_choosing
def push(
    ids: Ids = None,
    all_rows: All = False,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Not faster than this, such as 100/s.", metavar="RATE")
    ] = None,
    limit: Limit = 1_000,
    *,
    choice: RowFilter,
) -> None:
    """Send rows anew, now, with fresh counters.

    Failed ones, held ones, and those that wait for their first or next try.
    """
    chosen = _choose_rows(choice, ids, all_rows=all_rows)
    spacing = _spacing(rate)
    with closing(_store(_settings())) as store, usable(store.url):
        count = store.push(chosen, limit=limit, spacing=spacing)
    say(
        f"{many(count, 'row')} will be sent{at_limit(count, limit)}{f', over {count * spacing / 1000:.0f} s' if rate else ''}"
    )


@command
@_choosing
def hold(ids: Ids = None, all_rows: All = False, limit: Limit = 1_000, *, choice: RowFilter) -> None:
    """Keep rows from being sent until they are pushed. One that a relay has claimed already is not held."""
    chosen = _choose_rows(choice, ids, all_rows=all_rows)
    with closing(_store(_settings())) as store, usable(store.url):
        count = store.hold(chosen, limit=limit)
    say(
        f"{many(count, 'row')} {'is' if count == 1 else 'are'} held{at_limit(count, limit)}: `kodo-consumer outbox push` sends them"
    )


def at_limit(count: int, limit: int) -> str:
    """Text to add to the report of a changing command if `count` has reached `limit`, so that --limit may have left
    rows out; else "".
    """
    return " (--limit: others may be left)" if count >= limit else ""


@contextmanager
def usable(url: URL) -> Iterator[None]:
    """Context that raises KodoctlError (K721) where the database at `url` does not answer, or refuses a statement, a text
    or a number.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from kodo_consumer.outbox.outbox_store import unusable

    try:
        yield
    except (SQLAlchemyError, UnicodeEncodeError, OverflowError) as problem:
        raise unusable(url, problem) from None


def _settings() -> Settings:
    from kodo_consumer.runtime.settings import read_settings

    return read_settings(os.environ, working_folder())


def _relay_settings() -> Settings:
    """The settings. Raises UsageError (K762) if traces are wanted that no producer of the relay could make."""
    from kodo_consumer.adapters.tracing.setup import sends_of

    settings = _settings()
    sends_of(settings.traces)
    return settings


def _store(settings: Settings, scope: OutboxScope | None = None) -> OutboxStore:
    if settings.outbox_url is None:
        detail = "set `outbox_url` in kodo-consumer.toml, or KODO_CONSUMER_OUTBOX_URL"
        raise UsageError(error("K720", "no database for the outbox", detail))
    with needs_extra("database"):
        from kodo_consumer.outbox.outbox_store import open_store
    return open_store(settings.outbox_url.reveal(), scope)


def _options(settings: Settings) -> Any:
    from kodo_consumer.outbox.backoff import DELAYS, Backoff
    from kodo_consumer.outbox.relay import RelayOptions

    backoff = Backoff({**DELAYS, **(settings.outbox_backoff or {})}, settings.outbox_attempts)
    return RelayOptions(claim=settings.outbox_claim, keep=settings.outbox_keep, backoff=backoff)


def _summary(relay: Relay) -> str:
    names = ("sent", "again", "failed", "late", "overtaken")
    return ", ".join(f"{name} {relay.counts[name]}" for name in names if name == "sent" or relay.counts[name])


def _with_ids(choice: RowFilter, ids: Iterable[str] | None) -> RowFilter:
    return replace(choice, ids=tuple(ids or ()))


def _choose_rows(choice: RowFilter, ids: list[str] | None, *, all_rows: bool) -> RowFilter:
    chosen = _with_ids(choice, ids)
    if chosen.is_everything and not all_rows:
        detail = "name ids, or choose by --status, --topic, --key, --biz-code or --app; --all means every row"
        raise UsageError(error("K725", "no rows named", detail))
    return chosen


def _spacing(rate: str | None) -> float:
    """Milliseconds between two rows at this rate; 0 without a rate."""
    return 1000 / parse_rate("--rate", rate) if rate is not None else 0.0


def _row_text(row: dict[str, Any]) -> str:
    due = " (due)" if row["is_due"] else ""
    parts = [*(_text(row[name]) for name in ("id", "status", "topic")), _time(row["next_push_at"]) + due]
    parts += [f"{name} {_text(row[name], 40)}" for name in ("key", "biz_code") if row[name]]
    return "  ".join([*parts, *([f"tries {_text(row['retry_count'])}"] if row["retry_count"] else [])])


def _text(value: Any, limit: int = 64) -> str:
    """A value of the table for people, on one line. Another writer may have stored any type: Python's repr shows it."""
    return one_line(_plain(value), limit)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else repr(value)


def _time(at: Any) -> str:
    from kodo_consumer.outbox.table import HELD

    if not isinstance(at, int | float):
        return f"no time: {_text(at)}"
    if at >= HELD:
        return "held"
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return _text(at)

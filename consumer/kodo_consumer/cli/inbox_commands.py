"""Commands for the inbox: its table, its depth and causes, and rows that a person lists, retries or discards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kodo_consumer.cli.outbox_commands import All, Dialect, Limit, RowFormat, at_limit, usable
from kodo_consumer.inbox.inbox_filter import NOT_DONE, InboxFilter, InboxStatus
from kodoctl.cli.common.console import command, reading, say
from kodoctl.cli.common.options import gathers
from kodoctl.errors import UsageError, error
from kodoctl.host.extras import needs_extra
from kodoctl.host.host_facts import working_folder
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import age_text, many, time_text

if TYPE_CHECKING:
    from kodo_consumer.inbox.inbox_rows import InboxRows


def _choice(status: list[InboxStatus] | None, **given: Any) -> InboxFilter:
    return InboxFilter(statuses=tuple(status or ()), **given)


Subscription = Annotated[
    str | None,
    typer.Option("--subscription", help="Only rows of it: TENANT/NAMESPACE/TOPIC:SUBSCRIPTION.", metavar="NAME"),
]
_CHOICE: Final[dict[str, Any]] = {
    "status": Annotated[list[InboxStatus] | None, typer.Option("--status", help="Only rows in it (repeatable).")],
    "subscription": Subscription,
    "topic": Annotated[str | None, typer.Option("--topic", help="Only rows from this topic.", metavar="NAME")],
    "tenant": Annotated[str | None, typer.Option("--tenant", help="Only rows of this tenant.", metavar="TENANT")],
    "cause": Annotated[
        str | None, typer.Option("--cause", help="Only rows whose reason contains this text.", metavar="TEXT")
    ],
}
_choosing = gathers("choice", _CHOICE, _choice)
Ids = Annotated[
    list[int] | None,
    typer.Argument(help="Only these rows.", metavar="ID", min=1, max=2**63 - 1, show_default=False),
]
Format = Annotated[RowFormat, typer.Option("--format", help="How rows are printed.")]


@reading
def schema(
    dialect: Annotated[Dialect, typer.Option("--dialect", help="The database it is for.")] = Dialect.POSTGRESQL,
) -> None:
    """Print the SQL that makes the table and its indexes.

    It is to be run once, in place of `Inbox.create_table`.
    """
    with needs_extra("database"):
        from kodo_consumer.inbox.table import TABLE
        from kodo_consumer.outbox.table import schema_sql

    say(schema_sql(dialect, TABLE))


@reading
def status(
    subscription: Subscription = None,
    format: Format = RowFormat.TEXT,  # noqa: A002
) -> None:
    """Show depth, age, workers and causes of each subscription.

    Claimed rows are at work in a worker, or next there. Done rows are counted while they are kept.
    """
    with _rows() as rows:
        found = rows.status(subscription)
    if format is RowFormat.JSON:
        say(json.dumps({"subscriptions": found}, indent=2))
        return
    if not found:
        say("no rows")
    for one in found:
        say("\n".join(_status_lines(one)))


@reading
@_choosing
def list_rows(ids: Ids = None, limit: Limit = 50, format: Format = RowFormat.TEXT, *, choice: InboxFilter) -> None:  # noqa: A002
    """Count rows by status, and show the oldest.

    Payloads are not shown.
    """
    with _rows() as rows:
        chosen = _with_ids(choice, ids)
        counts, found = rows.counts(chosen), rows.rows(chosen, limit)
    if format is RowFormat.JSON:
        say(json.dumps({"counts": _all_counts(counts), "rows": found}, indent=2))
        return
    say(_counts_text(counts))
    for row in found:
        say(_row_text(row))


@command
@_choosing
def retry(ids: Ids = None, all_rows: All = False, limit: Limit = 1_000, *, choice: InboxFilter) -> None:
    """Have rows handled again, now.

    Dead and discarded rows; others only where ids or --status name them. Copies that went to a topic stay there.
    """
    chosen = _choose_rows(choice, ids, all_rows=all_rows)
    with _rows() as rows:
        count = rows.retry(chosen, limit=limit)
    say(f"{many(count, 'row')} will be handled again{at_limit(count, limit)}")


@command
@_choosing
def discard(
    because: Annotated[
        str, typer.Option("--because", help="Why: kept in the row and in its audit record.", metavar="TEXT")
    ],
    ids: Ids = None,
    all_rows: All = False,
    limit: Limit = 1_000,
    *,
    choice: InboxFilter,
) -> None:
    """End waiting rows unhandled, with a reason.

    The next worker that takes such a row ends it, with an audit record. One that a worker has already is not discarded.
    """
    chosen = _choose_rows(choice, ids, all_rows=all_rows)
    if not (text := one_line(because.strip(), 200)):
        raise UsageError(error("K004", "wrong value", "--because: empty; the row and its audit record keep why"))
    with _rows() as rows:
        count, left = rows.discard(chosen, text, limit=limit)
    say(f"{many(count, 'row')} will be discarded{at_limit(count, limit)}: `kodo-consumer inbox retry` takes that back")
    if left:
        say(f"{many(left, 'row')} left out: claimed by a worker")


@contextmanager
def _rows() -> Iterator[InboxRows]:
    """Context with the rows of the configured database, which turns the database's errors into those of the command."""
    from kodo_consumer.runtime.settings import read_settings

    url = read_settings(os.environ, working_folder()).inbox_url
    if url is None:
        detail = "set `inbox_url` in kodo-consumer.toml, or KODO_CONSUMER_INBOX_URL"
        raise UsageError(error("K773", "no database for the inbox", detail))
    with needs_extra("database"):
        from kodo_consumer.inbox.inbox_rows import open_rows
    with closing(open_rows(url.reveal())) as rows, usable(rows.url):
        yield rows


def _with_ids(choice: InboxFilter, ids: Iterable[int] | None) -> InboxFilter:
    return replace(choice, ids=tuple(ids or ()))


def _choose_rows(choice: InboxFilter, ids: list[int] | None, *, all_rows: bool) -> InboxFilter:
    chosen = _with_ids(choice, ids)
    if chosen.is_everything and not all_rows:
        detail = "name ids, or choose by --status, --subscription, --topic, --tenant or --cause; --all means every row"
        raise UsageError(error("K725", "no rows named", detail))
    return chosen


def _all_counts(counts: dict[str, int]) -> dict[str, int]:
    """Counts by status, with those to do always, in the order of statuses."""
    return {one: counts.get(one, 0) for one in InboxStatus if one in NOT_DONE or one in counts}


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in _all_counts(counts).items())


def _status_lines(one: dict[str, Any]) -> Iterable[str]:
    age = (
        ""
        if one["oldest_seconds"] is None
        else f"; the oldest to do was received {age_text(one['oldest_seconds'] * 1000)} ago"
    )
    yield one_line(one["subscription"], 400)
    yield f"  {_counts_text(one['counts'])}{age}"
    for claim, count in sorted(one["workers"].items()):
        yield f"  claimed by {one_line(claim)}: {many(count, 'row')}"
    for dead in one["dead"]:
        tenant = f", tenant {one_line(dead['tenant'])}" if dead["tenant"] else ""
        yield f"  dead: {many(dead['rows'], 'row')}{tenant}: {one_line(dead['cause'] or 'no reason', 100)}"


def _row_text(row: dict[str, Any]) -> str:
    parts = [str(row["id"]), row["status"], one_line(row["topic"], 200), time_text(row["received_at"], seconds=True)]
    parts += [f"tenant {one_line(row['tenant'])}"] if row["tenant"] else []
    parts += [f"retries {row['retries']}"] if row["retries"] else []
    parts += [f"claimed by {one_line(row['claimed_by'])}"] if row["status"] == InboxStatus.CLAIMED else []
    return "  ".join([*parts, *([one_line(row["reason"], 100)] if row["reason"] else [])])

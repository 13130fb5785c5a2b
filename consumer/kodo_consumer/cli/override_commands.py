"""Commands of live orders: pause, resume, weights of tenants, limits, slots, moves, and a list of the orders in force.
Each order ends by itself.
"""

from __future__ import annotations

import json
import socket
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodo_consumer.cli.options import Subscription, Topic, Topology, connects
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import columns, command, say, tell, tell_wait
from kodoctl.cli.common.options import Format
from kodoctl.errors import UsageError, error
from kodoctl.host.host_facts import user_name
from kodoctl.protocol.overrides import STAY, Override, OverrideKind, until_text, why_invalid, with_override
from kodoctl.topology.units import Duration, UnitError

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy
    from kodoctl.pulsar.control.override_store import OverrideStore

Lane = Annotated[str | None, typer.Option("--lane", help="A lane, such as L1/retrying.", metavar="LEVEL/STATE")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="A value of fair_by.", metavar="NAME")]
For = Annotated[str, typer.Option("--for", help="How long, 30 days at most.", metavar="DURATION")]
Reason = Annotated[str, typer.Option("--why", help="Reason, shown to others.", metavar="TEXT")]
Release = Annotated[bool, typer.Option("--release", help="Release at once what waits elsewhere because of the limit.")]
Back = Annotated[bool, typer.Option("--back", help="Take the order back.")]


class WaitingChoice(StrEnum):
    """Choice for the waiting messages of a tenant that is moved: move them, or let them stay."""

    MOVE = "move"
    STAY = "stay"


_FILLS = (
    "Note: this subscription moves nobody aside (isolate). Once messages of paused tenants fill the look-ahead of a"
    " worker, it reads nothing more, of anybody, until they resume."
)


@command
@connects
def pause(
    topology: Topology, topic: Topic, subscription: Subscription, lane: Lane = None, tenant: Tenant = None,
    lasting: For = "1h", why: Reason = "", *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """Let a lane or a tenant rest.

    Its messages stay where they are; everything else goes on.
    """
    with _book(topology, topic, subscription, place) as (policy, book):
        _give(policy, book, _order(OverrideKind.PAUSE, lasting, why, lane=lane or "", tenant=tenant or ""))


@command
@connects
def resume(
    topology: Topology, topic: Topic, subscription: Subscription, lane: Lane = None, tenant: Tenant = None,
    everything: Annotated[bool, typer.Option("--all", help="Take every order back, whatever it is.")] = False,
    *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """End a pause, or (--all) every live order."""
    if sum((lane is not None, tenant is not None, everything)) != 1:
        raise _cannot("name one of --lane, --tenant and --all")
    with _book(topology, topic, subscription, place) as (_, book):
        if everything:
            _show(book.change(lambda _: (), _now(), replace=True))
            return
        _take_back(book, _order(OverrideKind.PAUSE, "1h", "", lane=lane or "", tenant=tenant or ""))


@command
@connects
def weight(
    topology: Topology, topic: Topic, subscription: Subscription,
    tenant: Annotated[str, typer.Option("--tenant", help="A value of fair_by.", metavar="NAME")],
    to: Annotated[int | None, typer.Option("--to", help="Turns while others have one.", metavar="N")] = None,
    lasting: For = "1h", why: Reason = "", back: Back = False, *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """Give a tenant more turns for a while.

    With --to 1 it has as many as others.
    """
    with _book(topology, topic, subscription, place) as (policy, book):
        order = _order(OverrideKind.WEIGHT, lasting, why, tenant=tenant, to=_order_value(to, "1", back=back))
        _take_back(book, order) if back else _give(policy, book, order)


@command
@connects
def limit(
    topology: Topology, topic: Topic, subscription: Subscription,
    kind: Annotated[str, typer.Option("--kind", help="rate, concurrency or quota.", metavar="KIND")],
    by: Annotated[str, typer.Option("--by", help="The limit's `by` in the file.", metavar="PROPERTY")] = "",
    within: Annotated[str, typer.Option("--in", help="The limit's `in`, such as L2/retrying.", metavar="LANES")] = "",
    value: Annotated[str, typer.Option("--value", help="Only for this value; else for all.", metavar="VALUE")] = "",
    to: Annotated[
        str | None, typer.Option("--to", help="Such as 10/s, or 8 for a concurrency.", metavar="LIMIT")
    ] = None,
    lasting: For = "1h", why: Reason = "", back: Back = False, release: Release = False, *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """Change one of the file's limits for a while.

    The change is for one value of the limit's property, or for all.

    Messages already waiting because of the limit come back when due, or with --release within seconds; the new limit
    then applies to them. --release needs the extra `recall` and a pause of the lanes, some seconds each.
    """
    from kodo_consumer.cli.limit_release import release_waiting

    with _book(topology, topic, subscription, place) as (policy, book):
        wanted = _order_value(to, "1" if kind == "concurrency" else "1/s", back=back)
        order = _order(OverrideKind.LIMIT, lasting, why, limit=kind, by=by, within=within, value=value, to=wanted)
        _take_back(book, order) if back else _give(policy, book, order)
    if release:
        of = {"topology": topology, "topic": topic, "subscription": subscription}
        release_waiting(policy, order, of, place, because=_because(order, back=back))


@command
@connects
def concurrency(
    topology: Topology, topic: Topic, subscription: Subscription,
    within: Annotated[str, typer.Option("--in", help="A state, a level or a lane: retrying, L2, L2/retrying.", metavar="LANES")],
    most: Annotated[int | None, typer.Option("--max", min=1, help="At most so many slots of a worker.", metavar="N")] = None,
    least: Annotated[int | None, typer.Option("--min", min=0, help="So many are kept for them; 0: none.", metavar="N")] = None,
    lasting: For = "1h", why: Reason = "", back: Back = False, *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """Change for a while how many slots some lanes may take.

    A worker gives them at most --max slots, and keeps --min for them.

    What is not given stays as the file says. Refused if the slots of the file and of all orders cannot hold together.
    """
    from kodo_consumer.cli.slot_check import check_slots
    from kodoctl.protocol.slot_bounds import SlotBounds

    with _book(topology, topic, subscription, place) as (policy, book):
        wanted = _order_value(str(SlotBounds(most, least)) or None, "max 1", back=back)
        order = _order(OverrideKind.SLOTS, lasting, why, within=within, to=wanted)
        if back:
            _take_back(book, order)
            return
        ground = Environment.of(**place).topology(topology).spec.topics[topic]
        spec, useless = ground.subscriptions[subscription], list[str]()

        def check(orders: tuple[Override, ...]) -> None:
            useless[:] = check_slots(ground, spec, orders, order)

        _give(policy, book, order, check)
        for text in useless:
            tell(f"Note: {text}")


@command
@connects
def move(
    topology: Topology, topic: Topic, subscription: Subscription,
    tenant: Annotated[str, typer.Option("--tenant", help="A value of fair_by.", metavar="NAME")],
    to: Annotated[str | None, typer.Option("--to", help="A level of the topic, such as L2 or S1.", metavar="LEVEL")] = None,
    waiting: Annotated[
        WaitingChoice, typer.Option("--waiting", help="Whether messages sent before the order move as well, or stay.")
    ] = WaitingChoice.MOVE,
    lasting: For = "1h", why: Reason = "", back: Back = False, *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """Send a tenant's messages to another level for a while.

    The level may be above L1 (L2, S1) or below it (B1). While the order lasts, no route of the file takes the
    messages away from it.
    """
    from kodo_consumer.core.upkeep.move_orders import share_lines, why_no_level
    from kodoctl.topology.names import Level

    with _book(topology, topic, subscription, place) as (policy, book):
        wanted = _order_value(to, policy.ground_lane.level, back=back)
        if wanted not in set(Level):  # the order itself would name every level that any topic may have
            raise _cannot(why_no_level(wanted, policy))
        stays = STAY if waiting is WaitingChoice.STAY else ""
        order = _order(OverrideKind.MOVE, lasting, why, tenant=tenant, to=wanted, waiting=stays)
        if back:
            _take_back(book, order)
            return
        _give(policy, book, order)
        for line in share_lines(policy, order):
            tell(line)


@command
@connects
def steer(
    topology: Topology, topic: Topic, subscription: Subscription,
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
    history: Annotated[bool, typer.Option("--history", help="Also the last 20 given and taken back.")] = False,
    *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """Show the live orders in force, who gave them and until when."""
    with _book(topology, topic, subscription, place) as (_, book):
        orders = book.read(_now())
        changes = book.history() if history else ()
    if output is Format.JSON:
        document: dict[str, Any] = {"format_version": 1, "orders": [asdict(order) for order in orders]}
        if history:
            document["history"] = [asdict(change) for change in changes]
        say(json.dumps(document, indent=2))
        return
    _show(orders)
    if history:
        say("History, the oldest first:" if changes else "No order was given or taken back so far.")
    for change in changes:
        for line in textwrap.wrap(
            _plain(f"{change}"), max(20, columns()), initial_indent="  ", subsequent_indent="    "
        ):
            say(line)


@contextmanager
def _book(
    topology: str, topic: str, subscription: str, place: ConnectionOptions
) -> Iterator[tuple[Policy, OverrideStore]]:
    from kodo_consumer.policy_builder import policy_of
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
    from kodoctl.pulsar.control.override_store import OverrideStore

    surroundings = Environment.of(**place)
    policy = policy_of(surroundings.topology(topology), topic, subscription)
    with closing(HttpAdmin(surroundings.connection(), waits=WaitMonitor(tell_wait))) as admin:
        yield policy, OverrideStore(admin, policy.ground_lane.topic, subscription, who=_who())


def _order(what: OverrideKind, lasting: str, why: str, **details: str) -> Override:
    try:
        span = int(Duration.parse(lasting))
    except UnitError as problem:
        raise _cannot(str(problem)) from None
    now = _now()
    order = Override(what, now, now + span, _who(), why[:200], **details)
    if problem_text := why_invalid(order) or ("" if span else "it would be over at once"):
        raise _cannot(problem_text)
    return order


def _who() -> str:
    return f"{user_name()}@{socket.gethostname()}"[:200]


def _because(order: Override, *, back: bool) -> str:
    """Text for a release (`--because`) after an order of a limit was given, or taken back (`back`)."""
    what = f"{replace(order, to='as in the file again')}" if back else f"{order}"
    return f"{what}{f': {order.why}' if order.why else ''}"


def _order_value(to: object, any_value: str, *, back: bool) -> str:
    """Value of an order: `to` as text, or `any_value` for an order that is taken back, where the value does not matter.
    Raises UsageError unless exactly one of `to` and `back` is given.
    """
    if (to is None) is not back:
        raise _cannot("name --to, or --back to take the order back; not both")
    return any_value if to is None else str(to)


def _give(
    policy: Policy,
    book: OverrideStore,
    order: Override,
    check: Callable[[tuple[Override, ...]], object] = lambda _: None,
) -> None:
    """Stores an order on the cluster and prints all orders in force. `check` gets all orders that would be in force, at
    each try to store them, and raises if they conflict. Raises UsageError, ClusterError.
    """
    from kodo_consumer.core.upkeep.override_state import why_not_followed
    from kodoctl.protocol.overrides import active_overrides

    def add_order(orders: tuple[Override, ...]) -> tuple[Override, ...]:
        together = with_override(orders, order)
        check(active_overrides(together, _now()))
        return together

    if reason := why_not_followed(order, policy):
        raise _cannot(reason)
    _show(book.change(add_order, _now()))
    if order.what is OverrideKind.PAUSE and order.tenant and policy.isolation_target(policy.ground_lane.level) is None:
        tell(_FILLS)


def _take_back(book: OverrideStore, like: Override) -> None:
    if all(order.concerns != like.concerns for order in book.read(_now())):
        raise _cannot("there is no such order; `kodo-consumer steer` shows those in force")
    gone: Callable[[Any], Any] = lambda orders: tuple(one for one in orders if one.concerns != like.concerns)  # noqa: E731
    _show(book.change(gone, _now()))


def _show(orders: tuple[Override, ...]) -> None:
    from kodoctl.protocol.overrides import active_overrides

    orders = active_overrides(orders, _now())
    if not orders:
        say("No orders: everything is as the file says.")
    for order in orders:
        for line in _wrap_order(order):
            say(line)


def _wrap_order(order: Override) -> list[str]:
    by = f"until {until_text([order])}, by {order.who}{f': {order.why}' if order.why else ''}"
    return [_plain(f"{order}"), *(f"  {line}" for line in textwrap.wrap(_plain(by), max(20, columns() - 2)))]


def _plain(text: str) -> str:
    """Text without characters that could control a terminal."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _cannot(detail: str) -> UsageError:
    return UsageError(error("K780", "invalid live order", detail))


def _now() -> int:
    return time.time_ns() // 1_000_000

"""Commands of live orders: pause, resume, weights of tenants, limits, slots, moves, and a list of the orders in force.
Each order ends by itself.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from kodo_consumer.cli.live_orders import LiveOrders, cannot, new_order, now_ms, open_orders
from kodo_consumer.cli.options import Subscription, Topic, Topology, connects
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import columns, command, reading, say, tell
from kodoctl.cli.common.options import Format
from kodoctl.protocol.overrides import STAY, Override, OverrideKind, until_text

Lane = Annotated[str | None, typer.Option("--lane", help="A lane, such as L1/retrying.", metavar="LEVEL/STATE")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="A value of fair_by.", metavar="NAME")]
For = Annotated[str, typer.Option("--for", help="How long, 30 days at most.", metavar="DURATION")]
Reason = Annotated[str, typer.Option("--why", help="Reason, shown to others.", metavar="TEXT")]
Release = Annotated[
    bool,
    typer.Option(
        "--release", help="Release at once the messages that wait elsewhere because of this or another limit."
    ),
]
Back = Annotated[bool, typer.Option("--back", help="Take the order back.")]


class WaitingChoice(StrEnum):
    """Choice for the waiting messages of a tenant that is moved: move them, or let them stay."""

    MOVE = "move"
    STAY = "stay"


@command
@connects
def pause(
    topology: Topology, topic: Topic, subscription: Subscription, lane: Lane = None, tenant: Tenant = None,
    lasting: For = "1h", why: Reason = "", *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """Let a lane or a tenant rest.

    Its messages stay where they are; everything else goes on.
    """
    with open_orders(topology, topic, subscription, place) as book:
        _give(book, new_order(OverrideKind.PAUSE, lasting, why, lane=lane or "", tenant=tenant or ""))


@command
@connects
def resume(
    topology: Topology, topic: Topic, subscription: Subscription, lane: Lane = None, tenant: Tenant = None,
    everything: Annotated[bool, typer.Option("--all", help="Take every order back, whatever it is.")] = False,
    *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """End a pause, or (--all) every live order."""
    if sum((lane is not None, tenant is not None, everything)) != 1:
        raise cannot("name one of --lane, --tenant and --all")
    with open_orders(topology, topic, subscription, place) as book:
        if everything:
            _show(book.store.change(lambda _: (), now_ms(), replace=True))
            return
        _show(book.take_back(new_order(OverrideKind.PAUSE, "1h", "", lane=lane or "", tenant=tenant or "").concerns))


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
    with open_orders(topology, topic, subscription, place) as book:
        order = new_order(OverrideKind.WEIGHT, lasting, why, tenant=tenant, to=_order_value(to, "1", back=back))
        _show(book.take_back(order.concerns)) if back else _give(book, order)


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

    with open_orders(topology, topic, subscription, place) as book:
        wanted = _order_value(to, "1" if kind == "concurrency" else "1/s", back=back)
        order = new_order(OverrideKind.LIMIT, lasting, why, limit=kind, by=by, within=within, value=value, to=wanted)
        if release:
            book.check(order)  # an order is also taken back if the file lacks its limit, which then releases nothing
        _show(book.take_back(order.concerns)) if back else _give(book, order)
    if release:
        of = {"topology": topology, "topic": topic, "subscription": subscription}
        release_waiting(book.policy, order, of, place, because=_because(order, back=back))


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

    What is not given stays as the file says. Refused if the slots of the file and of all orders contradict each other.
    """
    from kodo_consumer.cli.slot_check import check_slots
    from kodoctl.protocol.slot_bounds import SlotBounds

    with open_orders(topology, topic, subscription, place) as book:
        wanted = _order_value(str(SlotBounds(most, least)) or None, "max 1", back=back, options="--max or --min")
        order = new_order(OverrideKind.SLOTS, lasting, why, within=within, to=wanted)
        if back:
            _show(book.take_back(order.concerns))
            return
        ground = Environment.of(**place).topology(topology).spec.topics[topic]
        spec, useless = ground.subscriptions[subscription], list[str]()

        def check(orders: tuple[Override, ...]) -> None:
            useless[:] = check_slots(ground, spec, orders, order)

        _give(book, order, check)
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
    with open_orders(topology, topic, subscription, place) as book:
        wanted = _order_value(to, book.policy.ground_lane.level, back=back)
        book.check_level(wanted)
        stays = STAY if waiting is WaitingChoice.STAY else ""
        order = new_order(OverrideKind.MOVE, lasting, why, tenant=tenant, to=wanted, waiting=stays)
        if back:
            _show(book.take_back(order.concerns))
            return
        _give(book, order)


@reading
@connects
def steer(
    topology: Topology, topic: Topic, subscription: Subscription,
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
    history: Annotated[bool, typer.Option("--history", help="Also the last 20 given and taken back.")] = False,
    *, place: ConnectionOptions,
) -> None:  # fmt: skip
    """Show the live orders in force, who gave them and until when."""
    with open_orders(topology, topic, subscription, place) as book:
        orders = book.store.read(now_ms())
        changes = book.store.history() if history else ()
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


def _because(order: Override, *, back: bool) -> str:
    """Text for a release (`--because`) after an order of a limit was given, or taken back (`back`)."""
    what = f"{replace(order, to='as in the file again')}" if back else f"{order}"
    return f"{what}{f': {order.why}' if order.why else ''}"


def _order_value(to: object, any_value: str, *, back: bool, options: str = "--to") -> str:
    """Value of an order: `to` as text, or `any_value` for an order that is taken back, where the value does not matter.
    Raises UsageError, which names the `options` of the value, unless exactly one of `to` and `back` is given.
    """
    if (to is None) is not back:
        raise cannot(f"name {options}, or --back to take the order back; not both")
    return any_value if to is None else str(to)


def _give(book: LiveOrders, order: Override, check: Callable[[tuple[Override, ...]], object] = lambda _: None) -> None:
    """Stores an order on the cluster, and prints all orders in force and notes. `check`: see `LiveOrders.give`."""
    _show(book.give(order, check))
    for line in book.notes(order):
        tell(line)


def _show(orders: tuple[Override, ...]) -> None:
    from kodoctl.protocol.overrides import active_overrides

    orders = active_overrides(orders, now_ms())
    if not orders:
        say("No live orders: everything is as the file says.")
    for order in orders:
        for line in _wrap_order(order):
            say(line)


def _wrap_order(order: Override) -> list[str]:
    by = f"until {until_text([order])}, by {order.who}{f': {order.why}' if order.why else ''}"
    return [_plain(f"{order}"), *(f"  {line}" for line in textwrap.wrap(_plain(by), max(20, columns() - 2)))]


def _plain(text: str) -> str:
    """Text without characters that could control a terminal."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)

"""Plans of live orders for the console: checked and given by the functions of `kodo-consumer pause`, `limit` and
`move`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from kodoctl.cli.common.command_target import TargetOptions, shown_target
from kodoctl.cli.common.extension_points import LIVE_ORDERS, NEW_ORDER, load
from kodoctl.cli.ui.page_names import of_topology
from kodoctl.errors import RefusedError, UsageError, error
from kodoctl.protocol.overrides import Override, OverrideKind, until_text
from kodoctl.text.line import Line
from kodoctl.ui.action_forms import ORDER_WORDS, OrderRequest
from kodoctl.ui.action_pages import OrdersView
from kodoctl.ui.actions import ActionPlan, ActionResult, Confirmation, Watch

if TYPE_CHECKING:
    from kodoctl.ui.first_screen import CommandWords


class OrderActions:
    """Maker of plans of live orders. `confirm`: raises KodoctlError if the context is protected and its name was not
    typed.
    """

    def __init__(
        self, target: TargetOptions, env: str | None, words: CommandWords, confirm: Callable[[Confirmation], None]
    ) -> None:
        self._target, self._env, self._words, self._confirm = target, env, words, confirm

    def view(self, topology: str, ground: str, subscription: str) -> OrdersView:
        """Reads the live orders of a subscription, their history, and the lanes, levels and limits that an order can
        name. Raises KodoctlError.
        """
        with self._open(topology, ground, subscription) as book:
            policy = book.policy
            lanes = list(policy.every_lane)
            return OrdersView(
                book.store.read(_now()),
                book.store.history(),
                list(dict.fromkeys(lane.name for lane in lanes)),
                list(dict.fromkeys(str(lane.level) for lane in lanes)),
                book.limits,
                policy.fair_by,
            )

    def plan(self, request: OrderRequest) -> ActionPlan:
        """Makes the plan of giving an order or taking it back, and stores nothing. If an order of the same subject is
        given, taken back or ends before the plan is carried out, carrying it out raises. Raises KodoctlError.
        """
        with self._open(**request.place) as book:
            order, standing, notes = self._look(book, request)
        digest = _digest(request, standing)
        lines = (
            Line(shown_target(self._target.connection()), "bold"),
            Line(f"{ORDER_WORDS[order.what]}: {request.ground} / {request.subscription}", "bold"),
            Line(),
            *_order_lines(order, request, standing),
            *(Line(f"  {note}", "yellow", hang=4) for note in notes),
        )
        return ActionPlan(
            lines=lines,
            digest=digest,
            commands=(request.command(self._words, order),),
            verb="Take it back" if request.back else "Give this live order",
            confirm=self._confirm,
            carry_out=partial(self._carry_out, request, digest),
        )

    def _carry_out(self, request: OrderRequest, digest: str, _: Confirmation, watch: Watch) -> ActionResult:
        with self._open(**request.place) as book:
            order, standing, notes = self._look(book, request)
            if _digest(request, standing) != digest:
                detail = "an order of this subject was given or taken back meanwhile, or ended: plan again; nothing was written"
                raise RefusedError(error("K533", "the cluster changed since the plan", detail))
            orders = book.take_back(order.concerns) if request.back else book.give(order)
        for note in notes:
            watch.tell(note)
        lines = [Line("In force now:" if orders else "No live orders: everything is as the file says.", "bold")]
        lines += [Line(f"  {one} until {until_text([one])}, by {one.who}", hang=4) for one in orders]
        chosen = ("--topic", request.ground, "--subscription", request.subscription, "--history")
        steer = self._words.line("kodo-consumer steer", request.topology, *chosen)
        return ActionResult(tuple(lines), complete=True, commands=(steer,))

    def _look(self, book: Any, request: OrderRequest) -> tuple[Override, Override | None, list[str]]:
        """The order, the one of the same subject that is in force (None: none), and notes. Raises KodoctlError."""
        details = dict(request.details)
        if request.what is OverrideKind.MOVE and not request.back:
            book.check_level(details.get("to", ""))
        lasting, why = ("1h", "") if request.back else (request.lasting, request.why)
        order: Override = load(NEW_ORDER)(request.what, lasting, why, **details)
        standing = next((one for one in book.store.read(_now()) if one.concerns == order.concerns), None)
        if request.back:
            if standing is None:
                detail = "there is no such order; `kodo-consumer steer` shows those in force"
                raise UsageError(error("K780", "invalid live order", detail))
            return standing, standing, []
        book.check(order)
        return order, standing, book.notes(order)

    def _open(self, topology: str, ground: str, subscription: str) -> AbstractContextManager[Any]:
        place = {**asdict(self._target), "env": self._env}
        file = of_topology(self._words.files, topology)
        opened: AbstractContextManager[Any] = load(LIVE_ORDERS)(file, ground, subscription, place)
        return opened


def _order_lines(order: Override, request: OrderRequest, standing: Override | None) -> Iterator[Line]:
    if request.back:
        yield Line(f"  take back  {order}", hang=13)
        yield Line(
            f"  given      by {order.who}, until {until_text([order])}{f': {order.why}' if order.why else ''}", hang=13
        )
        return
    yield Line(f"  order     {order}", hang=12)
    yield Line(f"  for       {request.lasting}, from the moment it is given", hang=12)
    if request.why:
        yield Line(f"  why       {request.why}", hang=12)
    if standing is not None:
        yield Line(f"  replaces  {standing} until {until_text([standing])}, by {standing.who}", "yellow", hang=12)


def _digest(request: OrderRequest, standing: Override | None) -> str:
    """Hash of an order, and of the order that it replaces."""
    return hashlib.sha256(repr((request, standing)).encode()).hexdigest()


def _now() -> int:
    return time.time_ns() // 1_000_000

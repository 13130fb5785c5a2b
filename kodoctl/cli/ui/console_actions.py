"""Actions of the console's pages: each makes the plan that a command makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kodoctl.cli.apply.apply_flow import Approval, confirm
from kodoctl.cli.common.command_target import TargetOptions
from kodoctl.cli.ui.letter_actions import LetterActions
from kodoctl.cli.ui.order_actions import OrderActions
from kodoctl.cli.ui.page_names import lane_topic, of_topology
from kodoctl.cli.ui.undo_actions import UndoActions
from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.recall.plan.destinations import family_of
from kodoctl.recall.plan.waiting_lanes import waiting_lanes
from kodoctl.topology import defaults
from kodoctl.topology.names import State
from kodoctl.ui.action_forms import LaneFacts, LetterAction, LetterRequest, OrderRequest, UndoRequest

if TYPE_CHECKING:
    from kodoctl.plan.history_document import ApplyRow
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.expand import Expansion
    from kodoctl.ui.action_pages import OrdersView
    from kodoctl.ui.actions import ActionPlan, Confirmation
    from kodoctl.ui.first_screen import CommandWords


class ConsoleActions:
    """Maker of the plans that pages offer (implements `kodoctl.ui.action_pages.ActionMaker`). `env`, `ledger`: values
    of --env and --ledger; None: not given. `protected`: name of a protected context, "" for another.
    """

    def __init__(
        self,
        target: TargetOptions,
        connection: Connection,
        desired: Desired,
        words: CommandWords,
        env: str | None,
        ledger: str | None,
    ) -> None:
        context = connection.context
        self.protected = context.name if context is not None and context.protected else ""
        self._connection = connection
        self._expansions = {one.name: one for one in desired.expansions}
        self._letters = LetterActions(target, env, ledger, words)
        self._orders = OrderActions(target, env, words, self._confirm)
        self._undo = UndoActions(target, words, self._confirm)

    def lane(self, topology: str, topic: str, subscription: str) -> LaneFacts:
        """Facts about a lane as its file declares it: ground topic, lane, the actions that are possible on its
        messages, and the levels or lanes that they can be sent to. `topic`: topic of the lane, without tenant and
        namespace. A lane whose messages workers read at once allows no actions. Raises UsageError for an unknown
        topology, topic or subscription.
        """
        expansion = self._expansion(topology)
        found = lane_topic(expansion, topic)
        ground = expansion.topology.spec.topics[found.ground]
        if subscription not in ground.subscriptions or found.subscription not in (None, subscription):
            there = [found.subscription] if found.subscription is not None else list(ground.subscriptions)
            detail = f"{topic} has {', '.join(there)}, not {subscription!r}"
            raise UsageError(error("K022", "unknown topic", detail))
        if found.state is State.DEAD:
            family_of(expansion.topology, found.ground, subscription)
            levels = tuple(str(level) for level in defaults.active_levels(ground))
            return LaneFacts(found.ground, "", (LetterAction.SEND, LetterAction.DISCARD), levels, ground.fair_by)
        name = f"{found.level}/{found.state}"
        try:
            (waiting,) = waiting_lanes(expansion.topology, found.ground, subscription, [name])
        except KodoctlError:  # a lane that workers read at once
            return LaneFacts(found.ground, name, (), (), ground.fair_by)
        actions = (LetterAction.RELEASE, LetterAction.MOVE, LetterAction.DISCARD)
        targets = tuple(one for one in waiting.writable if one != name)
        return LaneFacts(found.ground, name, actions, targets, ground.fair_by)

    def plan_letters(self, request: LetterRequest) -> ActionPlan:
        """Plans an action on messages of a lane, for its page; sends and acknowledges nothing. Raises KodoctlError."""
        lane = self.lane(request.topology, request.topic, request.subscription)
        return self._letters.plan(request, lane, self._expansion(request.topology))

    def orders(self, topology: str, ground: str, subscription: str) -> OrdersView:
        """Reads the live orders of a subscription, their history, and the lanes, levels and limits that a new order can
        name. `ground`: ground topic, by its name in the file. Raises KodoctlError.
        """
        return self._orders.view(topology, ground, subscription)

    def plan_order(self, request: OrderRequest) -> ActionPlan:
        """Plans to give a live order, or to take one back, for its page; stores nothing. Raises KodoctlError."""
        return self._orders.plan(request)

    def applies(self, topology: str) -> Sequence[ApplyRow]:
        """Reads the applies of a topology's namespace, oldest first. Raises KodoctlError."""
        return self._undo.applies(self._expansion(topology).namespace)

    def plan_undo(self, request: UndoRequest) -> ActionPlan:
        """Plans to take an apply back, for its page; writes nothing. Raises KodoctlError."""
        return self._undo.plan(request, self._expansion(request.topology).namespace)

    def unfinished(self) -> Sequence[str]:
        """Command lines that continue the plans on messages, kept in the working folder, that were not carried out to
        their end.
        """
        return self._letters.unfinished()

    def _confirm(self, typed: Confirmation) -> None:
        """Raises KodoctlError unless the typed name is that of a protected context."""
        confirm(self._connection, Approval(auto_approve=True, names=[typed.context]), question="")

    def _expansion(self, topology: str) -> Expansion:
        return of_topology(self._expansions, topology)

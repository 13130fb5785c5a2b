"""Actions of a console without a cluster, as values for pages and tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kodoctl.errors import KodoctlError, RefusedError, error
from kodoctl.protocol.override_history import OverrideChange
from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.text.line import Line
from kodoctl.ui.action_forms import LaneFacts, LetterAction, LetterRequest, OrderRequest, UndoRequest
from kodoctl.ui.action_pages import OrdersView
from kodoctl.ui.actions import ActionDesk, ActionPlan, ActionResult, Choice, Confirmation, Watch
from kodoctl.ui.sent_outcome import SentOutcome, SentPlace, SentStage
from tests.samples.consoles import NOW


def desk() -> ActionDesk:
    return ActionDesk(lambda problem: error("K599", "a defect of kodoctl", str(problem)))


class SampleActions:
    """Plans of a cluster that does what it is told. `text`: every text of it, "" for those of a shop; `made`: runs when
    a plan is made; `sent`: carried out plans; `go_on`: they end when it is set, by `problem` unless it is None; `verb`:
    text of their button, None: as `text`; `steps`: done before they are refused; `unread`: error because of which it is
    not known what became of the messages.
    """

    def __init__(self, text: str = "", protected: str = "", made: Callable[[], object] = lambda: None) -> None:
        self.text, self.protected, self.made = text, protected, made
        self.sent: list[Confirmation] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.complete = True
        self.problem: KodoctlError | None = None
        self.verb: str | None = None
        self.steps = 0
        self.unread: KodoctlError | None = None

    def lane(self, topology: str, topic: str, subscription: str) -> LaneFacts:
        words = (LetterAction.SEND, LetterAction.DISCARD)
        return LaneFacts(self.text or "orders", "", words, (self.text or "L2",), self.text or "uid")

    def plan_letters(self, request: LetterRequest) -> ActionPlan:
        return self._plan(request)

    def orders(self, topology: str, ground: str, subscription: str) -> OrdersView:
        text = self.text or "bank"
        order = Override(OverrideKind.PAUSE, NOW, NOW + 1, text, text, tenant=text)
        change = OverrideChange(NOW, text, order)
        limits = [("quota", "", "", text, "1500/h"), ("rate", text, text, text, text)]
        lower = Override(OverrideKind.LIMIT, NOW, NOW + 1, text, text, limit="quota", to="500/h")
        return OrdersView([order, lower], [change], [text], [text], limits, text)

    def plan_order(self, request: OrderRequest) -> ActionPlan:
        return self._plan(request)

    def applies(self, topology: str) -> Sequence[Any]:
        text = self.text or "1234abcd"
        return [
            {
                "id": text, "began": NOW, "verb": text, "state": text, "done": [], "changes": 1, "who": text,
                "commit": text,
            }
        ]  # fmt: skip

    def plan_undo(self, request: UndoRequest) -> ActionPlan:
        return self._plan(request)

    def unfinished(self) -> Sequence[str]:
        return [self.text or "kodoctl recall apply p.json"]

    def _plan(self, request: object) -> ActionPlan:
        self.made()
        text = self.text or "3 letters to send"
        parts = tuple(Choice("cause", self.text or name, 1, f"cause = '{name}'") for name in ("a", "b"))
        return ActionPlan(
            lines=(Line(text, "bold", hang=4), Line(repr(request))), digest="d1" * 32, commands=(text,),
            verb=text if self.verb is None else self.verb,
            continuing=self.text or "kodoctl recall apply own.json",
            run=self.text or "20260101-110200", confirm=self._confirm, carry_out=self._carry_out, choices=parts, findings=(error("K561", text, text),),
        )  # fmt: skip

    def _confirm(self, typed: Confirmation) -> None:
        if typed.context != self.protected:
            raise RefusedError(error("K538", "confirmation declined", f"{typed.context!r} is not the context's name"))

    def _carry_out(self, typed: Confirmation, watch: Watch) -> ActionResult:
        self.sent.append(typed)
        if isinstance(self.problem, RefusedError):
            watch.progress(self.steps, 3)
            raise self.problem
        watch.tell(self.text or "the lane is paused")
        watch.progress(1, 3)
        while not self.go_on.wait(0.02) and not watch.stop.is_set():
            pass
        if self.problem is not None:
            raise self.problem
        commands = (self.text or "kodoctl history",)
        return ActionResult((Line(self.text or "Done: 3 sent"),), self.complete, commands, SampleOutcome(self))


class SampleOutcome:
    """Outcome of three letters that are dead again."""

    def __init__(self, maker: SampleActions) -> None:
        self._maker = maker
        self.last: SentOutcome | None = None

    def __call__(self) -> SentOutcome:
        text = self._maker.text
        if self._maker.unread is not None:
            raise self._maker.unread
        dead = SentPlace(SentStage.DEAD, text or "orders-billing-DLQ", text or "dead letters", text)
        self.last = SentOutcome(3, 3, {dead: 3}, complete=True)
        return self.last

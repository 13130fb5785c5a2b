"""Pages on which a person does something: a form makes a plan, a page shows it, and a second form carries it out.

Reading pages only links here. No request but POST changes or begins anything; each POST has a token of its form, and
answers with the address of a page, so that a reload sends nothing again. The address of a form has the query of its
page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kodoctl.errors import KodoctlError, LockedError, RefusedError, UsageError, error
from kodoctl.protocol.overrides import OverrideKind
from kodoctl.ui.action_forms import (
    ACTION_WORDS,
    ORDER_WORDS,
    LetterRequest,
    OrderRequest,
    UndoRequest,
    letter_title,
    order_fields,
)
from kodoctl.ui.actions import ActionDesk, ActionStage, Confirmation, fields_of
from kodoctl.ui.page_gate import PageGate

if TYPE_CHECKING:
    from starlette.requests import Request

    from kodoctl.plan.history_document import ApplyRow
    from kodoctl.protocol.override_history import OverrideChange
    from kodoctl.protocol.overrides import Override
    from kodoctl.ui.action_forms import LaneFacts
    from kodoctl.ui.actions import ActionPlan, PlannedAction

_LARGEST: Final = 100_000  # bytes of a form
_WAITING: Final = (
    "/orders",
    "/undo",
    "/act-outcome",
)  # pages that read the cluster, only some of which are made at once
_FORM: Final = "application/x-www-form-urlencoded"
_APPLIES: Final = 20
_LANE: Final = ("topology", "topic", "subscription")
_READER: Final = ("topology", "ground", "subscription")
_LETTER_FIELDS: Final = ("action", "where", "tenant", "to", "limit", "because", "again")


@dataclass(frozen=True, slots=True)
class OrdersView:
    """Live orders of a subscription. `orders`: those in force; `history`: the last changes, oldest first; `lanes`,
    `levels`: names by the file; `limits`: (kind, property, lanes, title, value) of each limit of the file; `fair_by`:
    property of the tenants, None: there are none.
    """

    orders: Sequence[Override]
    history: Sequence[OverrideChange]
    lanes: Sequence[str]
    levels: Sequence[str]
    limits: Sequence[tuple[str, str, str, str, str]]
    fair_by: str | None

    def limit_now(self, kind: str, by: str, within: str) -> str:
        """Value that a live order gives the limit of this kind, property (`by`) and lanes (`within`), each as in
        `limits`, for everybody; "" if no order does, or only for a single tenant.
        """
        limits = (one for one in self.orders if one.what is OverrideKind.LIMIT and not one.value)
        return next((one.to for one in limits if (one.limit, one.by, one.within) == (kind, by, within)), "")


class ActionMaker(Protocol):
    """Makes plans as the command line does. `protected`: name of the context if it is protected, else "". All methods
    block. Methods with arguments raise KodoctlError for names that the files lack, methods that read the cluster also
    if that fails, and methods that plan also for a request that cannot be planned.
    """

    protected: str

    def lane(self, topology: str, topic: str, subscription: str) -> LaneFacts:
        """Facts about a lane by its file, without reading the cluster. `topic`: the lane's topic without tenant and
        namespace. Raises UsageError for an unknown topology, topic or subscription.
        """

    def plan_letters(self, request: LetterRequest) -> ActionPlan:
        """Plans an action on messages of a lane: reads the lane, and changes nothing."""

    def orders(self, topology: str, ground: str, subscription: str) -> OrdersView:
        """Reads the live orders of a subscription."""

    def plan_order(self, request: OrderRequest) -> ActionPlan:
        """Plans to give a live order, or to take one back; stores nothing."""

    def applies(self, topology: str) -> Sequence[ApplyRow]:
        """Reads the applies of a topology's namespace, oldest first."""

    def plan_undo(self, request: UndoRequest) -> ActionPlan:
        """Plans to take an apply back; writes nothing."""

    def unfinished(self) -> Sequence[str]:
        """Command lines that continue plans on messages that were begun and are not finished, of this console and of
        earlier ones in the same working folder. Reads only files.
        """


class ActionPages:
    """Pages of actions. `show`: makes an answer of a template's name, its values and an HTTP status; `maker`: makes the
    plans; `desk`: keeps the actions. Each page method answers a GET; each method that takes `fields` answers a POST of
    a form, whose token was checked before (`carry_out` and `stop` check that of their plan themselves). KodoctlError
    becomes a page with its findings (`status_of`), any other exception a page with status 500.
    """

    def __init__(
        self, show: Callable[[str, Mapping[str, Any], int], Response], maker: ActionMaker, desk: ActionDesk
    ) -> None:
        self._show, self._maker, self._desk = show, maker, desk
        self._gate = PageGate("pages of orders and applies")

    @property
    def routes(self) -> list[Route]:
        """Routes of all pages and forms. A GET of a form's path leads to the page that has the form, or to the list of
        all actions if the query does not name that page's values.
        """
        pages = {
            "/action": self.lane_form, "/orders": self.orders, "/undo": self.applies, "/acts": self.acts,
            "/act": self.act, "/act-state": self.act_state, "/act-outcome": self.act_outcome,
        }  # fmt: skip
        forms = {
            "/plan-letters": (self.plan_letters, "action", _LANE),
            "/plan-order": (self.plan_order, "orders", _READER),
            "/plan-undo": (self.plan_undo, "undo", ("topology",)),
            "/carry-out": (self.carry_out, "act", ("id",)),
            "/stop": (self.stop, "act", ("id",)),
        }
        return [
            *(Route(path, self._answering(page, gated=path in _WAITING)) for path, page in pages.items()),
            *(Route(path, self._posting(form), methods=["POST"]) for path, (form, _, _) in forms.items()),
            *(Route(path, partial(_lead_back, page, names)) for path, (_, page, names) in forms.items()),
        ]

    def lane_form(self, request: Request) -> Response:
        """Form for an action on messages of a lane."""
        given = {name: request.query_params.get(name, "") for name in (*_LANE, *_LETTER_FIELDS)}
        lane = self._maker.lane(*(given[name] for name in _LANE))
        chosen = given["action"]
        values = {
            "lane": lane,
            "given": given,
            "chosen": chosen if chosen in lane.actions else "",
            "words": ACTION_WORDS,
        }
        return self._page("action_letters.html.j2", values)

    def orders(self, request: Request) -> Response:
        """Live orders of a subscription, and forms for new ones."""
        given = {name: request.query_params.get(name, "") for name in _READER}
        found = self._maker.orders(**given)
        values = {
            "given": given,
            "found": found,
            "fields": order_fields,
            "tenant": request.query_params.get("tenant", ""),
        }
        return self._page("action_orders.html.j2", values)

    def applies(self, request: Request) -> Response:
        """Page with the last 20 applies of a topology's namespace, newest first, to take one of them back."""
        topology = request.query_params.get("topology", "")
        found = [*reversed(self._maker.applies(topology))][:_APPLIES]
        values = {"topology": topology, "applies": found, "chosen": request.query_params.get("id", "")}
        return self._page("action_undo.html.j2", values)

    def acts(self, _: Request) -> Response:
        """All actions of this console, and plans that are not finished."""
        values = {"actions": self._desk.actions(), "unfinished": self._maker.unfinished()}
        return self._page("action_list.html.j2", values)

    def act(self, request: Request) -> Response:
        """Plan, progress or result of an action."""
        return self._act(self._desk.get(request.query_params.get("id", "")))

    def act_state(self, request: Request) -> Response:
        """Part of an action's page that the browser reads again and again while the action is busy."""
        action = self._desk.get(request.query_params.get("id", ""))
        return self._page("action_state.html.j2", {"action": action, "now": _now()})

    def act_outcome(self, request: Request) -> Response:
        """Part of an action's page with the outcome of the messages that it sent, which is read now; a KodoctlError of
        the reading is shown in its place. Empty if nothing was sent.
        """
        action = self._desk.get(request.query_params.get("id", ""))
        values: dict[str, Any] = {"outcome": None, "problems": (), "place": {}, "now": _now()}
        if action.result is not None and action.result.outcome is not None:
            values["place"] = _reader_of(action.back)
            try:
                values["outcome"] = action.result.outcome()
            except KodoctlError as problem:
                values["problems"] = problem.diagnostics
        return self._page("action_outcome.html.j2", values)

    def plan_letters(self, fields: Mapping[str, str]) -> Response:
        """Begins to plan an action on messages, and leads to its page, without waiting for the plan. Raises UsageError
        for fields that cannot be used and for an action that the lane does not allow, LockedError (K037) if the console
        is busy.
        """
        request = LetterRequest.of(fields)
        lane = self._maker.lane(request.topology, request.topic, request.subscription)
        request = request.fit(lane)
        if request.action not in lane.actions:
            detail = f"{request.action} is for other lanes; for {lane.name}: {', '.join(lane.actions) or 'nothing'}"
            raise UsageError(error("K039", "a form that cannot be used", detail))
        back = f"action?{urlencode(request.form)}"
        return self._planned(letter_title(request, lane), back, partial(self._maker.plan_letters, request))

    def plan_order(self, fields: Mapping[str, str]) -> Response:
        """Begins to plan a live order, or the end of one, and leads to its page, without waiting for the plan. Raises
        UsageError for an unknown kind of order, LockedError (K037) if the console is busy.
        """
        request = OrderRequest.of(fields)
        what = f"{'Take back: ' if request.back else ''}{ORDER_WORDS[request.what]}"
        title = f"{what}, {request.ground} / {request.subscription}"
        return self._planned(title, f"orders?{urlencode(request.place)}", partial(self._maker.plan_order, request))

    def plan_undo(self, fields: Mapping[str, str]) -> Response:
        """Begins to plan to take an apply back, and leads to the page of the new action, without waiting for the plan.
        Raises LockedError (K037) if the console is busy.
        """
        request = UndoRequest.of(fields)
        back = f"undo?{urlencode({'topology': request.topology, 'id': request.apply_id})}"
        title = f"Take back apply {request.apply_id} of {request.topology}"
        return self._planned(title, back, partial(self._maker.plan_undo, request))

    def carry_out(self, fields: Mapping[str, str]) -> Response:
        """Begins to carry out a plan and leads to its page; the same form does so once. If that is refused, or the
        typed texts are wrong, the answer is the page of the plan with the findings. Raises UsageError (K038) for an
        unknown action, LockedError (K037) if the console is busy.
        """
        name = fields.get("id", "")
        typed = Confirmation(fields.get("context", "").strip(), fields.get("hash", "").strip())
        try:
            self._desk.carry_out(name, fields.get("token", ""), typed)
        except (RefusedError, UsageError) as problem:
            action = self._desk.get(name)
            return self._act(action, problem, status_of(problem))
        return _see(name)

    def stop(self, fields: Mapping[str, str]) -> Response:
        """Asks a running attempt to end in order, and leads to its page without waiting for the end; does nothing more
        if none runs. Raises UsageError (K038) for an unknown action, RefusedError (K039) for a form of another plan.
        """
        self._desk.stop(fields.get("id", ""), fields.get("token", ""))
        return _see(fields.get("id", ""))

    def _planned(self, title: str, back: str, make: Callable[[], ActionPlan]) -> Response:
        return _see(self._desk.plan(title, back, make).id)

    def _act(self, action: PlannedAction, problem: KodoctlError | None = None, status: int = 200) -> Response:
        values = {
            "action": action, "token": self._desk.token(action), "protected": self._maker.protected, "now": _now(),
            "refusals": problem.diagnostics if problem else (),
        }  # fmt: skip
        return self._page("action_plan.html.j2", values, status)

    def _page(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        return self._show(template, {"form_token": self._desk.form_token, "stages": ActionStage, **values}, status)

    def _answering(self, page: Callable[[Request], Response], *, gated: bool) -> Callable[[Request], Response]:
        def made(request: Request) -> Response:
            with self._gate.place():
                return page(request)

        return partial(self._safely, made if gated else page)

    def _safely(self, make: Callable[[Any], Response], given: object) -> Response:
        """The answer that `make` returns for something given, or the page about its error."""
        try:
            return make(given)
        except KodoctlError as problem:
            return self._show("problem.html.j2", {"problems": problem.diagnostics}, status_of(problem))
        except Exception as problem:  # noqa: BLE001  # a page says what to do about a defect as well
            return self._show("problem.html.j2", {"problems": [self._desk.defect(problem)]}, 500)

    def _posting(self, form: Callable[[Mapping[str, str]], Response]) -> Callable[[Request], Any]:
        """Reads the fields of a form, checks its token, and answers on a thread."""
        checked = form in (self.carry_out, self.stop)  # by a token of the plan

        def answer(body: bytes) -> Response:
            fields = fields_of(body)
            if not checked:
                self._desk.check_form(fields.get("token", ""))
            return form(fields)

        async def receive(request: Request) -> Response:
            body = b""
            if request.headers.get("content-type", "").partition(";")[0].strip() == _FORM:
                try:
                    async for part in request.stream():
                        body += part
                        if len(body) > _LARGEST:
                            body = b"\xff"  # no form
                            break
                except ClientDisconnect:  # a part of a form does nothing
                    return Response(status_code=400)
            return await run_in_threadpool(self._safely, answer, body)

        return receive


def status_of(problem: KodoctlError) -> int:
    """HTTP status of the page of an error: 503 for LockedError, 403 for RefusedError, 400 for UsageError, else 502."""
    match problem:
        case LockedError():
            return 503
        case RefusedError():
            return 403
        case UsageError():
            return 400
        case _:
            return 502


def _see(name: str) -> Response:
    return RedirectResponse(f"act?{urlencode({'id': name})}", 303)


def _reader_of(back: str) -> dict[str, str]:
    """Topology and subscription in the address of a form."""
    given = dict(parse_qsl(urlsplit(back).query))
    return {name: given.get(name, "") for name in ("topology", "subscription")}


def _lead_back(page: str, names: Sequence[str], request: Request) -> Response:
    """Redirects a GET of a form's address to the page that has the form: a refused form leaves its own address in the
    browser's address bar. `names`: names in the page's query.
    """
    given = {name: value for name in names if (value := request.query_params.get(name))}
    return RedirectResponse(f"{page}?{urlencode(given)}" if len(given) == len(names) else "acts", 303)


def _now() -> int:
    return time.time_ns() // 1_000_000

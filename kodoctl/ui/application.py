"""Pages of the console: a Starlette application over the functions that read the cluster."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from kodoctl.errors import KodoctlError, UsageError
from kodoctl.render.html_page import page_templates
from kodoctl.render.recall import recall_counts
from kodoctl.text.escaping import printable
from kodoctl.text.formatting import age_text, lane_meaning, many, time_text
from kodoctl.ui.action_pages import ActionPages, status_of
from kodoctl.ui.actions import JSON_FIELD
from kodoctl.ui.export_response import ExportResponse
from kodoctl.ui.first_screen import CommandWords, ScreenFacts, answers, first_screen
from kodoctl.ui.letter_causes import cause_text
from kodoctl.ui.message_search import SearchText
from kodoctl.ui.message_views import (
    SPANS,
    LaneQuestion,
    MessageQuestion,
    cause_groups,
    export_command,
    history_sentence,
    hit_view,
    hop_places,
    lane_commands,
    message_view,
)
from kodoctl.ui.page_gate import PageGate
from kodoctl.ui.plan_views import apply_views, stopped_apply
from kodoctl.ui.rate_history import RateHistory

if TYPE_CHECKING:
    from starlette.requests import Request

    from kodoctl.errors import Diagnostic
    from kodoctl.status.lane_status import StatusReading
    from kodoctl.ui.action_pages import ActionMaker
    from kodoctl.ui.actions import ActionDesk
    from kodoctl.ui.audit_sentence import Sentence
    from kodoctl.ui.message_search import SearchResult
    from kodoctl.ui.message_views import LaneMessages
    from kodoctl.ui.plan_views import PlanLookup

_PACKAGE: Final = "kodoctl.ui"
FRESH_S: Final = 4.0  # a reading of this age is shown to other windows as well
LEGEND: Final = tuple(
    (name, lane_meaning(level, state))
    for name, level, state in (
        ("L1, L2 … ready", "L1", "ready"),
        ("retrying", None, "retrying"),
        ("pending", None, "pending"),
        ("blocking", None, "blocking"),
        ("B1, B2 … ready", "B1", "ready"),
        ("dead letters", None, "dead"),
    )
)
"""(name, meaning) of the lanes."""
_SLOW_S: Final = 5.0  # a reading that takes longer is made while pages show the one before
_LATE_S: Final = 15.0  # for so long after it became old: a window that is seen asks every 10 seconds
_STYLES: Final = ("page.css", "catalogue.css", "console.css", "action.css")


class MessageLookup(Protocol):
    """Reads messages for the pages: bounded in number and time. All methods block, and raise KodoctlError."""

    def lane(self, question: LaneQuestion) -> LaneMessages:
        """Reads the messages of a lane that its subscription has not acknowledged, as many as a page may read, and
        returns counts of these and the first 50 that meet the condition of the question. Raises UsageError for an
        unknown lane or a condition that is not valid.
        """

    def export(self, question: LaneQuestion, suffix: str) -> Generator[bytes]:
        """Returns the parts of a file with all unacknowledged messages of a lane that meet the condition. `suffix`:
        `jsonl` or `parquet`. Raises UsageError at once; the generator raises KodoctlError if the file stays incomplete.
        It keeps its connection to the broker until it ends or is closed.
        """

    def lane_title(self, question: LaneQuestion) -> str:
        """Names a lane by its file: `orders / billing: L1 retrying`."""

    def find(self, wanted: SearchText, span: str, topology: str) -> SearchResult:
        """Searches the lanes of a topology, "" for all, for messages that meet a condition, or of which a fact equals
        the text. `span`: key of SPANS, the age of the messages that are read.
        """

    def history(self, question: MessageQuestion) -> Mapping[str, Any]:
        """The document of `kodo-consumer why` about a message, with two fields more: `stored`, the message as it is
        stored at its last place, None if it no longer is or cannot be read; `longest_wait`, the longest single wait, in
        ms, that the file declares for the subscription of the question, 0 if the file lacks that.
        """


@dataclass(frozen=True, slots=True)
class ConsoleData:
    """Functions that read the cluster for the pages. `target`: text that names the cluster; `production`: the context
    is protected; `words`: words of command lines on the pages; `read_status`: reads all lanes; `read_audit`: returns
    the sentence about the last audit; `read_facts`: returns at once the facts beside the lanes that were read so far,
    and begins to read changed ones; `messages`, `plans`: read messages, history and drift; `defect`: makes a finding of
    an unexpected exception. All but `read_facts` and `defect` block, and may raise KodoctlError.
    """

    target: str
    production: bool
    words: CommandWords
    read_status: Callable[[], StatusReading]
    read_audit: Callable[[], Sentence]
    read_facts: Callable[[StatusReading], ScreenFacts]
    messages: MessageLookup
    plans: PlanLookup
    defect: Callable[[Exception], Diagnostic]


class _RecentStatus:
    """The last reading of the lanes. However many windows ask, one reads at a time, and the others get its result. If
    that took more than _SLOW_S seconds, as of 20,000 topics, they get the one before, and the next is made meanwhile,
    unless no window has asked for long.
    `history`: this reading and those before it; `known`: the last one to which the cluster answered, None for none.
    """

    def __init__(self, read: Callable[[], StatusReading]) -> None:
        self._read, self._lock = read, threading.Lock()
        self.history = RateHistory()
        self._last: StatusReading | None = None
        self.known: StatusReading | None = None
        self._until = 0.0
        self._took = 0.0

    def __call__(self) -> StatusReading:
        late = time.monotonic() - self._until
        if (last := self._last) is not None and self._took > _SLOW_S and late < max(_LATE_S, self._took):
            if late > 0 and self._lock.acquire(blocking=False):
                threading.Thread(target=self._read_ahead, name="kodo-ui-status", daemon=True).start()
            return last
        with self._lock:
            return self._make() if self._last is None or time.monotonic() > self._until else self._last

    def _read_ahead(self) -> None:
        """Makes the next reading, and releases the lock, which the caller has."""
        try:
            with suppress(Exception):  # the next page reads it itself, and shows the problem
                self._make()
        finally:
            self._lock.release()

    def _make(self) -> StatusReading:
        """Makes and returns the next reading. The caller has the lock."""
        began = time.monotonic()
        try:
            made = self._last = self._read()
        except Exception:
            self._took = 0.0
            raise
        self._took = time.monotonic() - began
        self.history.add(made)
        self.known = made if answers(made) else self.known
        self._until = time.monotonic() + max(FRESH_S, self._took)
        return made


class _Pages:
    """Makes the pages. Each method but `show` answers one path. `desk`: actions of forms to which pages lead, None: none."""

    def __init__(self, data: ConsoleData, desk: ActionDesk | None) -> None:
        self._data, self._status, self._desk = data, _RecentStatus(data.read_status), desk
        self._templates = page_templates(_PACKAGE).overlay(finalize=_visible)
        self._templates.filters |= {"exact": _exact, "field": _field}

    def show(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """Answer with a page."""
        frame: dict[str, Any] = {
            "q": "",
            "span": "24h",
            "topology": "",
            "spans": SPANS,
            "topologies": [*self._data.words.files],
            "target": self._data.target,
            "production": self._data.production,
            "acting": self._desk is not None,
            "clock": _clock,
            "many": many,
            "cause_text": cause_text,
        }
        return HTMLResponse(self._templates.get_template(template).render({**frame, **values}), status)

    def home(self, _: Request) -> Response:
        """First screen."""
        return self.show("home.html.j2", {**self._screen(), "legend": LEGEND})

    def lanes(self, _: Request) -> Response:
        """Part of the first screen that is read again and again."""
        return self.show("home_lanes.html.j2", self._screen())

    def lane(self, request: Request) -> Response:
        """Messages of a lane."""
        question = _lane_question(request)
        found: LaneMessages | None = None
        problems: tuple[Diagnostic, ...] = ()
        try:
            found = self._data.messages.lane(question)
        except UsageError as problem:  # a condition, mostly: its form stays
            problems = problem.diagnostics
        title = question.topic
        with suppress(UsageError):
            title = self._data.messages.lane_title(question)
        views = (
            [message_view(one, _now(), found.longest_wait, found) for one in found.document["messages"]]
            if found
            else []
        )
        commands = lane_commands(self._data.words, question, found) if found else []
        values = {
            "question": question, "found": found, "views": views, "problems": problems,
            "commands": commands, "title": title, "facts": found.facts(_now()) if found else "",
            "groups": cause_groups(question, found.document) if found else [],
            "export": export_command(self._data.words, question, found) if found else "",
        }  # fmt: skip
        return self.show("lane.html.j2", values, 400 if problems else 200)

    def export(self, request: Request) -> Response:
        """File of the messages of a lane that meet a condition."""
        question, suffix = _lane_question(request), request.query_params.get("as", "")
        parts = self._data.messages.export(question, suffix)
        return ExportResponse(parts, question.topic, suffix)

    def find(self, request: Request) -> Response:
        """Result of a search."""
        given = request.query_params
        q, span, topology = given.get("q", ""), given.get("span", "24h"), given.get("topology", "")
        values: dict[str, Any] = {"q": q, "span": span, "topology": topology, "found": None, "hits": []}
        if q.strip():
            wanted = SearchText.of(q, _now())
            found = self._data.messages.find(wanted, span, topology)
            hits = [hit_view(one, _now(), found) for one in found.hits]
            values |= {"found": found, "hits": hits, "wanted": wanted, "title": wanted.title(found.hits, found.counted)}
        return self.show("find.html.j2", values)

    def message(self, request: Request) -> Response:
        """Hops of a message."""
        question = MessageQuestion(**_given(request, "topology", "ground", "subscription", "message", "span"))
        document = self._data.messages.history(question)
        line = self._data.words.line(
            "kodo-consumer why", question.topology, question.message, "--topic", question.ground,
            "--subscription", question.subscription,
        )  # fmt: skip
        copy = document["stored"]
        stored = message_view(copy, _now(), document["longest_wait"]) if copy is not None else None
        values = {
            "question": question, "document": document, "hops": hop_places(document),
            "sentence": history_sentence(document, question.subscription), "line": line, "stored": stored,
            "now": _now(), "age": age_text,
        }  # fmt: skip
        return self.show("message.html.j2", {**values, "span": question.span}, 200 if document["hops"] else 404)

    def plans(self, request: Request) -> Response:
        """History of a topology's namespace, and drift. Drift is read anew if somebody asks for it."""
        given, words = request.query_params, self._data.words
        topology = given.get("topology", "") or next(iter(words.files), "")
        drift = self._data.plans.read_drift() if given.get("drift") == "read" else self._data.plans.last_drift()
        found = self._data.plans.history(topology)
        document = found.document
        acts = self._desk.actions() if self._desk is not None else []
        stopped = stopped_apply(topology, document["namespace"], document["applies"], found.holder)
        values = {
            "chosen": topology, "found": found, "document": document, "applies": apply_views(document["applies"]),
            "drift": drift, "now": _now(), "stopped": stopped, "age": age_text, "counts": recall_counts,
            "runs": {one.plan.run: one for one in acts if one.plan is not None and one.plan.run},
            "drift_line": words.line_of_files("kodoctl drift"),
            "apply": words.line("kodoctl apply", topology), "plan": words.line("kodoctl plan", topology),
        }  # fmt: skip
        return self.show("plans.html.j2", values)

    def read_ahead(self) -> None:
        """Reads the lanes, and begins to read the facts beside them. A problem is reported by the page."""
        with suppress(Exception):
            self._data.read_facts(self._status())

    def _screen(self) -> dict[str, Any]:
        status = self._status()
        facts = self._data.read_facts(status)
        screen = first_screen(status, self._data.words, self._status.history, facts, self._status.known)
        return {"screen": screen, "sentence": self._data.read_audit()}


def console(data: ConsoleData, actions: tuple[ActionMaker, ActionDesk] | None = None) -> Starlette:
    """Makes the application, and begins to read the lanes on a thread, so that the first window need not wait for the
    whole reading. The application refuses nobody: an AccessCheck has to be before it. `actions`: makes plans, and
    carries them out; None: the console only reads.
    """
    pages = _Pages(data, actions[1] if actions else None)
    screens, messages, plans = (PageGate(what) for what in ("first screens", "pages of messages", "pages of plans"))
    threading.Thread(target=pages.read_ahead, name="kodo-ui-first", daemon=True).start()

    def answering(page: Callable[[Request], Response], gate: PageGate) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                with gate.place():
                    return page(request)
            except KodoctlError as problem:
                return pages.show("problem.html.j2", {"problems": problem.diagnostics}, status_of(problem))
            except Exception as problem:  # noqa: BLE001  # a page says what to do about a defect as well
                return pages.show("problem.html.j2", {"problems": [data.defect(problem)]}, 500)

        return answer

    return Starlette(
        routes=[
            Route("/", answering(pages.home, screens)),
            Route("/lanes", answering(pages.lanes, screens)),
            Route("/lane", answering(pages.lane, messages)),
            Route("/export", answering(pages.export, messages)),
            Route("/find", answering(pages.find, messages)),
            Route("/message", answering(pages.message, messages)),
            Route("/plans", answering(pages.plans, plans)),
            *(ActionPages(pages.show, *actions).routes if actions else ()),
            Route("/console.css", lambda _: _asset("text/css", *_STYLES)),
            Route("/console.js", lambda _: _asset("text/javascript", "console.js", "action.js")),
        ],
        exception_handlers={404: lambda *_: pages.show("no_page.html.j2", {}, 404)},
    )


def _visible(value: object) -> object:
    """A value as text, with its control characters made visible; HTML of templates stays as it is."""
    return value if hasattr(value, "__html__") else printable(str(value))


def _exact(value: object) -> str:
    """A value for an attribute that a form sends back: control characters as references, because their visible form
    would be another name. Browsers change some of these characters nevertheless: see `_field`.
    """
    from jinja2.filters import do_mark_safe

    return do_mark_safe("".join(one if one.isprintable() else f"&#{ord(one)};" for one in escape(str(value))))


def _field(value: str, name: str) -> str:
    """Attributes of a hidden field. A value with unprintable characters is sent as JSON (`fields_of`), because browsers
    change line breaks in forms, and HTML has no reference for some control characters.
    """
    from jinja2.filters import do_mark_safe

    if not value.isprintable():
        name, value = f"{JSON_FIELD}{name}", json.dumps(value)
    return do_mark_safe(f'name="{escape(name)}" value="{escape(value)}"')


def _given(request: Request, *names: str) -> dict[str, str]:
    """Values of a query, "" for those that it lacks."""
    return {name: request.query_params.get(name, "") for name in names}


def _lane_question(request: Request) -> LaneQuestion:
    given = _given(request, "topology", "topic", "subscription")
    return LaneQuestion(**given, where=request.query_params.get("where") or "true")


def _now() -> int:
    return int(time.time() * 1000)


def _clock(ms: int) -> str:
    return time_text(ms, seconds=True)


def _asset(kind: str, *names: str) -> Response:
    templates = page_templates(_PACKAGE)
    assert templates.loader is not None
    return Response("".join(templates.loader.get_source(templates, name)[0] for name in names), media_type=kind)

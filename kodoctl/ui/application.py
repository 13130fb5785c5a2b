"""Pages of the console: a Starlette application over the functions that read the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from kodoctl.errors import KodoctlError
from kodoctl.render.html_page import page_templates
from kodoctl.text.escaping import printable
from kodoctl.text.formatting import time_text
from kodoctl.ui.first_screen import CommandWords, Sentence, first_screen

if TYPE_CHECKING:
    from starlette.requests import Request

    from kodoctl.status.lane_status import StatusReading

_PACKAGE: Final = "kodoctl.ui"
_FRESH_S: Final = 4.0  # a reading of this age is shown to other windows as well
_STYLES: Final = ("page.css", "catalogue.css", "console.css")


@dataclass(frozen=True, slots=True)
class ConsoleData:
    """Functions that read the cluster for the pages. `target`: text that names the cluster; `production`: the context
    is protected; `read_status`: reads all lanes; `read_audit`: returns the sentence about the last audit. They block,
    and raise KodoctlError.
    """

    target: str
    production: bool
    words: CommandWords
    read_status: Callable[[], StatusReading]
    read_audit: Callable[[], Sentence]


class _RecentStatus:
    """The last reading of the lanes. However many windows ask, one reads at a time, and the others get its result."""

    def __init__(self, read: Callable[[], StatusReading]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._last: StatusReading | None = None
        self._until = 0.0

    def __call__(self) -> StatusReading:
        with self._lock:
            if self._last is None or time.monotonic() > self._until:
                self._last = self._read()
                self._until = time.monotonic() + _FRESH_S
            return self._last


def console(data: ConsoleData) -> Starlette:
    """Makes the application. It needs an AccessCheck before it: it refuses nobody itself."""
    recent = _RecentStatus(data.read_status)
    pages = page_templates(_PACKAGE).overlay(finalize=_visible)

    def screen() -> dict[str, Any]:
        return {"screen": first_screen(recent(), data.words), "sentence": data.read_audit()}

    def show(template: str, values: Callable[[], Mapping[str, Any]], status: int = 200) -> Response:
        try:
            found = values()
        except KodoctlError as problem:
            failure = {"problems": problem.diagnostics}
            return show("problem.html.j2", lambda: failure, 502)
        text = pages.get_template(template).render(
            target=data.target, production=data.production, clock=_clock, **found
        )
        return HTMLResponse(text, status)

    def home(_: Request) -> Response:
        return show("home.html.j2", screen)

    def lanes(_: Request) -> Response:
        return show("home_lanes.html.j2", screen)

    return Starlette(
        routes=[
            Route("/", home),
            Route("/lanes", lanes),
            Route("/console.css", lambda _: _asset("text/css", *_STYLES)),
            Route("/console.js", lambda _: _asset("text/javascript", "console.js")),
        ]
    )


def _visible(value: object) -> object:
    """A value with its control characters made visible; HTML of templates stays as it is."""
    return printable(value) if type(value) is str else value


def _clock(ms: int) -> str:
    return time_text(ms, seconds=True)


def _asset(kind: str, *names: str) -> Response:
    templates = page_templates(_PACKAGE)
    assert templates.loader is not None
    return Response("".join(templates.loader.get_source(templates, name)[0] for name in names), media_type=kind)

"""Outage requests: outages to simulate in a replay, as users write them. Pure.

tenants=60,state=retrying,duration=8s
tenant=acme,"tenant=a,b",state=ready,duration=20s,begin=5m,length=10m,outcome=done
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kodoctl.errors import Diagnostic, UsageError, error
from kodoctl.topology.units import Duration, UnitError

if TYPE_CHECKING:
    from kodo_pipeline.simulate.simulation_document import SimulatedOutageRow

T = TypeVar("T")
STATES: Final = ("ready", "retrying", "pending", "blocking", "backup")
OUTCOMES: Final = ("failed", "done")


@dataclass(frozen=True, slots=True)
class OutageRequest:
    """An outage to simulate: handlers of some tenants take long in a state. It affects the `count` tenants with most
    messages, or the tenants `names` if `count` is None. `duration`: ms that a handler takes in `state`; `begin`: ms
    after the first arrival; `length`: ms, None: until the last arrival; `done`: True: the handlers succeed, False: they
    fail.
    """

    count: int | None
    names: tuple[str, ...]
    state: str
    duration: int
    begin: int = 0
    length: int | None = None
    done: bool = False

    def tenants_of(self, ordered: Sequence[str], name: str) -> list[str]:
        """Tenants that the outage affects. `ordered`: all tenants, those with most messages first; `name`: name of the
        subscription, for errors. Raises UsageError if there are too few tenants, or one that the outage names is
        missing.
        """
        if self.count is not None and self.count > len(ordered):
            detail = f"{name}: {self.count} tenants are asked for, messages of {len(ordered)} arrived"
            raise UsageError(error("K808", "not an outage", f"--outage: {detail}"))
        if absent := [one for one in self.names if one not in ordered]:
            detail = f"{name}: no message of {', '.join(absent)} arrived"
            raise UsageError(error("K808", "not an outage", f"--outage: {detail}"))
        return list(self.names if self.count is None else ordered[: self.count])

    def check_begin(self, span: int, name: str) -> None:
        """Raises UsageError if the outage has no length and begins at the last arrival or later. `span`: ms from the
        first arrival to the last; `name`: name of the subscription, for errors.
        """
        if self.length is None and self.begin >= max(span, 1):
            detail = (
                f"{name}: it begins after {Duration(self.begin)}, and the last message arrived after {Duration(span)}"
            )
            raise UsageError(error("K808", "not an outage", f"--outage: {detail}"))

    def asked(self, tenants: Sequence[str], until: float) -> dict[str, Any]:
        """The outage in the format of `kodo_consumer.simulation.simulator`, with times in seconds since the first
        arrival. `tenants`: those affected; `until`: time of the last arrival, in seconds since the first.
        """
        begin = self.begin / 1000
        return {
            "tenants": tenants,
            "state": self.state,
            "seconds": self.duration / 1000,
            "since": begin,
            "until": until if self.length is None else begin + self.length / 1000,
            "done": self.done,
        }

    def row(self, tenants: int) -> SimulatedOutageRow:
        """The outage as a row of the JSON document. `tenants`: number of affected tenants."""
        return {
            "tenants": tenants,
            "state": self.state,
            "duration_ms": self.duration,
            "begin_ms": self.begin,
            "length_ms": self.length,
            "outcome": "done" if self.done else "failed",
        }


def outage_of(text: str) -> OutageRequest:
    """Parses an outage as users write it, such as `tenants=60,state=retrying,duration=8s`. Raises UsageError (K808)
    with all errors of the text.
    """
    try:
        pairs = [part.partition("=")[::2] for part in next(csv.reader([text], strict=True), [])]
    except csv.Error as problem:
        raise UsageError(error("K808", "not an outage", f"--outage {text!r}: {problem}")) from None
    read = _OptionReader(text, [(name.strip(), value.strip()) for name, value in pairs])
    request = OutageRequest(
        count=read.one("tenants", _count),
        names=tuple(read.every("tenant")),
        state=read.one("state", _one_of(STATES)) or "",
        duration=read.one("duration", _length) or 0,
        begin=read.one("begin", _time) or 0,
        length=read.one("length", _length),
        done=read.one("outcome", _one_of(OUTCOMES)) == "done",
    )
    read.check()
    return request


class _OptionReader:
    """Reader of the options in one text; it collects all errors."""

    def __init__(self, text: str, pairs: Sequence[tuple[str, str]]) -> None:
        self._text, self._pairs = text, pairs
        self._known: set[str] = set()
        self._wrong: list[str] = []

    def every(self, name: str) -> list[str]:
        """All values of an option, in their order, each once."""
        self._known.add(name)
        values = [value for found, value in self._pairs if found == name]
        self._wrong += [f"{name}: name one" for value in values if not value]
        return list(dict.fromkeys(values))

    def one(self, name: str, parse: Callable[[str], T]) -> T | None:
        """The only value of an option, parsed; None if it is missing or wrong."""
        values = self.every(name)
        if len(values) > 1:
            self._wrong.append(f"{name} is there {len(values)} times")
        try:
            return parse(values[0]) if values and values[0] else None
        except ValueError as problem:
            self._wrong.append(f"{name}: {problem}")
            return None

    def check(self) -> None:
        """Raises UsageError with all errors of the text."""
        names = [name for name, _ in self._pairs]
        for unknown in dict.fromkeys(name for name in names if name not in self._known):
            self._wrong.append(f"{unknown!r} is none of {', '.join(sorted(self._known))}")
        if ("tenants" in names) == ("tenant" in names):
            self._wrong.append("say how many, tenants=60, or which, tenant=acme")
        self._wrong += [f"{name} is missing" for name in ("state", "duration") if name not in names]
        if self._wrong:
            raise UsageError(*(self._finding(one) for one in self._wrong))

    def _finding(self, wrong: str) -> Diagnostic:
        return error("K808", "not an outage", f"--outage {self._text!r}: {wrong}")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise ValueError(f"{text!r} is no number of tenants")
    return int(text)


def _time(text: str) -> int:
    try:
        return int(Duration.parse(text))
    except UnitError as problem:
        raise ValueError(str(problem)) from None


def _length(text: str) -> int:
    if not (found := _time(text)):
        raise ValueError("must be longer than zero")
    return found


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"{text!r} is none of {', '.join(names)}")
        return text

    return parse

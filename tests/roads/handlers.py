"""The application of the test of all roads, run by `kodo-consumer run`: each handler does what its message's plan says, for the
lane it is in. It keeps nothing in memory that it goes by: a worker that was killed goes on where its successor begins.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kodo_consumer import Blocking, Dead, Discard, Message, MoveTo, Pending, Repeat, Retry, Transfer, Unavailable

from tests.roads.ledger import Writer
from tests.roads.plans import HANDLER_TIMEOUT, KNEE, ROADS, SHIPMENTS, Lane

HOME = Path(os.environ["ROADS_HOME"])
WRITERS = {name: Writer(str(HOME / name)) for name in ("orders", "payments", "quotes", "reports", "scales")}
WEIGHING = 0.001  # seconds
FILLING = 0.05
QUICK, SLOW = 0.05, 0.2  # seconds of a quote, and of one beside more than so many others
_quotes = threading.Lock()
_quoting = 0


@contextmanager
def _noted(name: str, message: Message, lane: Lane, what: str) -> Iterator[None]:
    """A line at the start, one at the end, however it ends."""
    properties = message.properties
    fields = (message.topic.rpartition("/")[2], properties.get("n", "-1"), properties.get("road", "-"), *lane, what)
    run = WRITERS[name].start(*fields)
    try:
        yield
    finally:
        WRITERS[name].end(run)


def bill(message: Message) -> None:
    """Orders: what the road asks for in this lane; done, where the lane is not on the road, which the ledger shows."""
    lane = Lane(message.level.value, message.state.value)
    what = ROADS[message.properties["road"]].asks.get(lane, "done")
    with _noted("orders", message, lane, what):
        _act(message, what)


def _act(message: Message, what: str) -> None:
    match what.split():
        case ["done"]:
            return
        case ["work"]:
            time.sleep(0.02)
        case ["sleep"]:
            time.sleep(HANDLER_TIMEOUT + 0.5)
        case ["json"]:
            message.json()
        case ["error"]:
            raise ConnectionError("the bank does not answer")
        case ["move", level]:
            raise MoveTo(level)
        case ["transfer"]:
            raise Transfer("shipments", b"for " + message.data, key="k", properties={"by": "ship"})
        case [word]:
            signal = _SIGNALS[word]()
            raise signal
        case _:
            raise AssertionError(what)


_SIGNALS: dict[str, Callable[[], BaseException]] = {
    "discard": lambda: Discard("not wanted"),
    "repeat": Repeat,
    "dead": lambda: Dead("of no use"),
    "retry": lambda: Retry("700ms"),
    "code": lambda: Retry(code="busy"),
    "pending": lambda: Pending("later"),
    "blocking": lambda: Blocking("much later"),
}


def ship(message: Message) -> None:
    """Shipments: what a transfer made, checked against what was asked for."""
    with _noted("orders", message, SHIPMENTS, "done"):
        assert message.properties["by"] == "ship"
        assert message.key == "k"
        assert message.data.startswith(b"for ")


def report(message: Message) -> None:
    """Reports: all in time; the quota is what is looked at."""
    with _noted("reports", message, Lane(message.level.value, message.state.value), "done"):
        assert message.data == b"x"


def pay(message: Message) -> None:
    """Payments: the bank is down until the test says that it is up."""
    what = "done" if (HOME / "bank-is-up").exists() else "down"
    with _noted("payments", message, Lane(message.level.value, message.state.value), what):
        if what == "down":
            raise Unavailable("bank")


def quote(message: Message) -> None:
    """Quotes: as quick beside fifteen others as alone, and four times as slow beside more."""
    global _quoting  # noqa: PLW0603  # how many of this process are at work
    with _noted("quotes", message, Lane(message.level.value, message.state.value), "done"):
        with _quotes:
            _quoting += 1
            crowded = _quoting > KNEE
        time.sleep(SLOW if crowded else QUICK)
        with _quotes:
            _quoting -= 1


def weigh(message: Message) -> None:
    """Scales: before the test says that all are there, one takes as long as keeps most of them waiting; then each takes as
    long as any other. Longer ones would be a debt of the lane, as lanes share slot time.
    """
    with _noted("scales", message, Lane(message.level.value, message.state.value), "done"):
        time.sleep(WEIGHING if (HOME / "all-lanes-wait").exists() else FILLING)

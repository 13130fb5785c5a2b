"""Nothing is written by an apply that has lost its lease: asked where each request that changes something goes out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kodoctl.apply.fenced_admin import FencedAdmin
from kodoctl.errors import LockedError, error
from kodoctl.pulsar.admin.admin import Reply, RequestCount
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.confirmed_write import write_confirmed
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.pulsar.control.lease import HEARTBEAT_S, Lease
from kodoctl.pulsar.control.topic_lock import Lock
from kodoctl.topology.names import NamespaceName
from tests.services.polling import eventually
from tests.services.servers import Answer, Request, answer_json, serving

FINE = answer_json({})
HERE = NamespaceName("acme", "ns")


class Line:
    """An admin port that answers 503, and takes its time."""

    def __init__(self, clock: list[float], slow: float) -> None:
        self.traffic, self.sent, self._clock, self._slow = RequestCount(), [""] * 0, clock, slow
        self.waits = WaitMonitor(pause=lambda _: None)

    def call(self, method: str, path: str, *_: Any, condition: Callable[[], None], **__: Any) -> Reply:
        condition()
        self.sent.append(method)
        self._clock[0] += self._slow
        return Reply(method, path, 503, None, "busy")


class Fenced:
    """A hold that somebody else has by now."""

    def beat(self) -> None:
        raise LockedError(error("K541", "the lease was lost"))

    write = note = settle = close = beat


def _leased(slow: float) -> tuple[FencedAdmin, Line]:
    clock = [0.0]
    line = Line(clock, slow)
    fenced: Any = Fenced()
    lease = Lease({NamespaceName("acme", "ns"): fenced}, lambda: clock[0])
    return _fenced(line, lease.check), line


def _fenced(line: Any, check: Callable[[], None]) -> FencedAdmin:
    """An admin port that asks nothing of the one below but `call`."""
    return FencedAdmin(line, check)


def test_a_write_that_is_repeated_after_the_lease_was_lost_is_not_sent() -> None:
    admin, line = _leased(HEARTBEAT_S)
    with pytest.raises(LockedError):
        write_confirmed(admin, "PUT", "x", done=lambda: False)
    assert line.sent == ["PUT"]
    assert admin.call("GET", "x").status == 503  # whoever may no longer write may look
    assert line.sent == ["PUT", "GET"]


def test_within_a_heartbeat_nobody_asks() -> None:
    admin, line = _leased(HEARTBEAT_S / 10)
    for _ in range(10):
        admin.call("POST", "x")
    with pytest.raises(LockedError):
        admin.call("POST", "x")
    assert len(line.sent) == 10
    assert admin.traffic is line.traffic


class Question:
    """Whether the lease is held; counts how often it was asked."""

    def __init__(self, *, times: int = 10_000) -> None:
        self.times, self.asked = times, 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked > self.times:
            raise LockedError(error("K541", "the lease was lost"))


def test_a_write_that_waited_for_room_while_the_lease_was_lost_is_not_sent() -> None:
    go_on, lost = threading.Event(), threading.Event()

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            go_on.wait(20)
        return FINE

    def check() -> None:
        if lost.is_set():
            raise LockedError(error("K541", "the lease was lost"))

    with serving(answer) as server, ThreadPoolExecutor() as pool:
        admin = HttpAdmin(Connection(server.url))
        for _ in range(5):  # a broker that had no time: one request at a time
            admin._concurrency.throttled()
            admin._concurrency._since = 99
        assert admin._concurrency.limit == 1
        reading = pool.submit(admin.call, "GET", "x")
        eventually(lambda: server.requests)
        writing = pool.submit(FencedAdmin(admin, check).call, "DELETE", "y")
        eventually(lambda: admin._concurrency.waiting)
        lost.set()
        go_on.set()
        assert reading.result(20).ok
        with pytest.raises(LockedError):
            writing.result(20)
    assert [request.method for request in server.requests] == ["GET"]


def test_a_redirect_goes_to_the_other_broker_only_while_the_lease_is_held() -> None:
    for times, reached in ((1, 0), (2, 1)):
        question = Question(times=times)
        with serving(lambda _: FINE) as owner:
            listed, location = [owner.host], {"Location": f"{owner.url}/admin/v2/x"}

            def answer(request: Request, listed: list[str] = listed, location: dict[str, str] = location) -> Answer:
                return answer_json(listed) if request.path.endswith("/brokers") else Answer(307, b"", location)

            with serving(answer) as first:
                leased = FencedAdmin(HttpAdmin(Connection(first.url)), question)
                if reached:
                    assert leased.call("PUT", "x", {}).ok
                else:
                    with pytest.raises(LockedError):
                        leased.call("PUT", "x", {})
        assert len(owner.requests) == reached


def test_a_write_that_waited_for_a_token_asks_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question()
    with serving(lambda _: FINE) as server:
        admin = HttpAdmin(Connection(server.url))

        def slow() -> None:
            """An issuer that takes its time, during which the lease goes."""
            question.times = 0

        monkeypatch.setattr(admin._bearer_token, "token", slow)
        with pytest.raises(LockedError):
            FencedAdmin(admin, question).call("POST", "x", {})
        assert not server.requests


def test_a_question_that_is_a_request_itself_needs_no_room_of_its_own() -> None:
    """Without the binary port the lease is asked for by GET: with room for one the write would wait for itself."""
    with serving(lambda _: answer_json({"token": "ours"})) as server:
        admin = HttpAdmin(Connection(server.url))
        for _ in range(5):
            admin._concurrency.throttled()
            admin._concurrency._since = 99
        lease = Lease({HERE: Lock(admin, HERE, "ours")}, since=float("-inf"))
        with ThreadPoolExecutor() as pool:
            assert pool.submit(FencedAdmin(admin, lease.check).call, "PUT", "x", {}).result(20).ok
    assert [request.method for request in server.requests] == ["GET", "PUT"]


def test_whether_a_thread_has_sent_anything_that_changes_something_is_known() -> None:
    clock, checks = [0.0], [""] * 0

    def check() -> None:
        checks.append("")
        if len(checks) > 1:
            raise LockedError(error("K541", "the lease was lost"))

    admin = _fenced(Line(clock, 0.0), check)
    admin.call("GET", "x")
    assert admin.sent_here == 0
    admin.call("PUT", "x")
    with pytest.raises(LockedError):
        admin.call("PUT", "y")
    assert admin.sent_here == 1
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: admin.sent_here).result() == 0

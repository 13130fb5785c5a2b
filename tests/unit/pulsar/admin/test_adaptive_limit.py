"""Fewer requests side by side for a broker that has no time, and slowly more again."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kodoctl.pulsar.admin.adaptive_limit import AdaptiveConcurrencyLimit
from kodoctl.pulsar.admin.admin_http import CONNECTIONS, HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from tests.services.polling import eventually
from tests.services.servers import Answer, Request, serving


def _rounds(room: AdaptiveConcurrencyLimit, number: int) -> None:
    for _ in range(number):
        with room:
            pass
        room.succeeded()


def test_a_busy_broker_halves_it_and_every_round_of_answers_adds_one() -> None:
    room = AdaptiveConcurrencyLimit(12)
    room.throttled()
    assert room.limit == 6
    for _ in range(5):  # the others that were under way when it said so
        room.throttled()
    assert room.limit == 6
    _rounds(room, 7)
    assert room.limit == 7
    room.throttled()
    assert room.limit == 3
    _rounds(room, 200)
    assert room.limit == 12


def test_requests_that_ran_at_the_same_time_halve_the_limit_only_once() -> None:
    room, began, turn = AdaptiveConcurrencyLimit(12), threading.Barrier(12), threading.Lock()

    def ask(_: int) -> None:
        with room:
            began.wait(10)
            turn.acquire()  # they end one after the other
        room.throttled()
        turn.release()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(ask, range(12)))
    assert room.limit == 6
    for _ in range(6):
        with room:
            pass
    room.throttled()
    assert room.limit == 3


def test_a_request_that_is_interrupted_while_it_waits_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    room, end = AdaptiveConcurrencyLimit(1), threading.Event()

    def ask() -> None:
        with room:
            end.wait(10)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(ask)
        eventually(lambda: room._under_way)
        with monkeypatch.context() as waits:
            waits.setattr(room._changed, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                room.__enter__()
        assert room.waiting == 0
        end.set()
        other.result()
    with room:
        assert room._under_way == 1, "it counts as any other"


def test_one_always_may() -> None:
    room = AdaptiveConcurrencyLimit(2)
    for _ in range(8):
        with room:
            room.throttled()
    assert room.limit == 1
    with room:
        pass


def test_a_broker_that_takes_three_at_a_time_is_soon_asked_so_and_every_read_succeeds() -> None:
    lock, under_way, refused = threading.Lock(), [0], [0]

    def answer(request: Request) -> Answer:
        with lock:
            under_way[0] += 1
            many = under_way[0] > 3
            refused[0] += many
        time.sleep(0.004)
        with lock:
            under_way[0] -= 1
        return Answer(429) if many else Answer(200, b"{}")

    with serving(answer) as server, ThreadPoolExecutor(CONNECTIONS) as pool:
        admin = HttpAdmin(Connection(server.url), pause=lambda _: None, limit=600.0)
        replies = list(pool.map(lambda _: admin.call("GET", "clusters"), range(300)))
        admin.close()
    assert all(reply.ok for reply in replies)
    assert refused[0] < len(replies) / 2

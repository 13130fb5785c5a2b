"""A lease counts as ours only as long as the broker has just said so; not to know who holds one is never "nobody"."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kodoctl.errors import ClusterError, LockedError, StoppedError, error
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.binary.exclusive_producer import UnconfirmedError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control import lease as leases
from kodoctl.pulsar.control.lease import HEARTBEAT_S, Lease, break_lease, held_by, hold
from kodoctl.pulsar.control.topic_lock import lock_holder
from kodoctl.topology.names import NamespaceName
from tests.services.servers import Answer, Request, answer_html, answer_json, serving

HERE = NamespaceName("acme", "ns")


class Held:
    """A lease; each question takes `takes` seconds of the clock, the last one for all that follow."""

    def __init__(self, clock: list[float], *takes: float) -> None:
        self.clock, self.takes, self.asked = clock, list(takes), [0.0][:0]
        self.answer: Callable[[], None] = lambda: None

    def beat(self) -> None:
        self.asked.append(self.clock[0])
        self.clock[0] += self.takes.pop(0) if len(self.takes) > 1 else self.takes[0]
        self.answer()

    def write(self, entry: Mapping[str, Any]) -> None:
        """Nothing."""

    note = write

    def settle(self) -> None:
        """Nothing."""

    close = settle


def _lease(*takes: float, since: float | None = None) -> tuple[Lease, Held, list[float]]:
    clock = [1000.0]
    held = Held(clock, *takes)
    return Lease({HERE: held}, lambda: clock[0], since=since), held, clock


def test_within_a_heartbeat_of_an_answer_nobody_asks() -> None:
    lease, held, clock = _lease(0.1)
    for _ in range(100):
        clock[0] += HEARTBEAT_S / 10
        lease.check()
    assert 9 <= len(held.asked) <= 10


def test_an_answer_that_was_read_long_after_the_question_is_asked_for_again() -> None:
    """The broker confirmed; then the process was stopped for ten minutes, the answer waiting in its socket."""
    lease, held, clock = _lease(600.0, 0.1)
    clock[0] += HEARTBEAT_S
    lease.check()
    assert held.asked == [1005.0, 1605.0]


def test_who_was_fenced_while_it_was_stopped_writes_nothing_after_waking() -> None:
    lease, held, clock = _lease(600.0, 0.1)

    def fenced_by_now() -> None:
        if clock[0] > 1700.0 or len(held.asked) > 1:
            raise LockedError(error("K541", "the lease was lost"))

    held.answer = fenced_by_now
    clock[0] += HEARTBEAT_S
    with pytest.raises(LockedError):
        lease.check()


def test_a_broker_whose_answers_are_always_too_old_is_given_up_and_how_slow_it_is_told() -> None:
    lease, held, clock = _lease(HEARTBEAT_S + 1)
    clock[0] += HEARTBEAT_S
    with pytest.raises(LockedError, match=r"acme/ns: the broker needs 6\.0 s to say .* older than 5 s"):
        lease.check()
    assert len(held.asked) == 3


def test_a_lease_whose_question_nobody_answers_counts_as_lost() -> None:
    lease, held, clock = _lease(0.1)

    def away() -> None:
        raise ClusterError(error("K514", "no broker answers", "Connection refused"))

    held.answer = away
    clock[0] += HEARTBEAT_S
    with pytest.raises(
        LockedError,
        match=r"could not be confirmed.*it could not be asked for: Connection refused; nothing was written meanwhile",
    ):
        lease.check()


def test_after_one_check_in_vain_nobody_else_waits_and_who_asks_at_the_end_may_still_be_told() -> None:
    lease, held, clock = _lease(0.1)

    def away() -> None:
        raise ClusterError(error("K514", "no broker answers", "Connection refused"))

    held.answer = away
    clock[0] += HEARTBEAT_S
    for _ in range(3):
        with pytest.raises(UnconfirmedError):
            lease.check()
    for waits in (lease.settle, lambda: lease.write(HERE, {})):
        with pytest.raises(UnconfirmedError):
            waits()
    assert len(held.asked) == 1
    assert lease.ever_lost
    held.answer = lambda: None
    lease.ask()
    lease.check()


def test_waiting_for_a_second_lease_does_not_make_the_first_one_fresh() -> None:
    lease, held, _ = _lease(0.1, since=400.0)
    lease.check()
    assert held.asked == [1000.0]


def test_who_must_know_now_asks_in_any_case() -> None:
    lease, held, _ = _lease(0.1)
    lease.check()
    assert held.asked == []
    lease.ask()
    assert held.asked == [1000.0]


def test_many_leases_are_asked_for_in_parallel_and_one_loss_is_the_loss_of_all() -> None:
    together = threading.Barrier(8, timeout=5)
    clock = [1000.0]
    holds = {NamespaceName("acme", f"n{number}"): Held(clock, 0.0) for number in range(8)}

    def wait_for_all() -> None:
        together.wait()

    for held in holds.values():
        held.answer = wait_for_all
    lease = Lease(holds, lambda: clock[0])
    lease.ask()
    assert all(len(held.asked) == 1 for held in holds.values())

    def fenced() -> None:
        raise LockedError(error("K541", "the lease was lost"))

    for held in holds.values():
        held.answer = lambda: None
    holds[NamespaceName("acme", "n5")].answer = fenced
    with pytest.raises(LockedError):
        lease.ask()


class Taking:
    """Takes leases; `others` has those of another command, of which the last is free after the wait for it."""

    def __init__(self, holds: dict[NamespaceName, Any], *others: str) -> None:
        self.holds, self.others, self.waits = holds, set(others), list[tuple[str, list[str]]]()

    def attempt(self, namespace: NamespaceName, holds: dict[NamespaceName, Any]) -> None:
        if namespace.namespace not in self.others:
            holds[namespace] = Held([0.0], 0.0)

    def acquire(self, namespace: NamespaceName, *, grace: float = 0.0) -> Held:
        self.waits.append((namespace.namespace, sorted(one.namespace for one in self.holds)))
        self.others.discard(namespace.namespace)
        return Held([0.0], grace)


def test_leases_are_taken_in_parallel_and_while_it_waits_for_one_a_command_holds_earlier_ones_only() -> None:
    spaces = [NamespaceName("acme", name) for name in "abcdefgh"]
    holds: dict[NamespaceName, Any] = {}
    taking: Any = Taking(holds, "c", "f")
    leases._take_all(taking, spaces, holds)  # the rule that keeps two commands from waiting for each other
    assert sorted(holds) == spaces
    assert taking.waits == [("a", []), ("c", ["a", "b"]), ("f", ["a", "b", "c", "d", "e"])]


# --- who holds it

UNKNOWN = [
    answer_json({"reason": "no rights"}, 403), answer_json({"reason": "x"}, 500), Answer(503), Answer(401, b"{}"),
    answer_json("busy"), answer_json({}), answer_json({"publishers": None}), Answer(204), answer_html("<html>", 502),
]  # fmt: skip


def _stats(answer: Answer) -> Callable[[Request], Answer]:
    """A broker that has the lock's namespace and no lock, and answers so to who asks for the lease topic's producers."""
    made: list[Answer] = []

    def answered(request: Request) -> Answer:
        if request.path.endswith("/stats"):
            return answer
        if "/lock-" in request.path and request.is_write:
            made[:] = [] if request.method == "DELETE" else [answer_json(_properties(request))]
            return Answer(204)
        if "/lock-" in request.path:
            return made[0] if made else Answer(404)
        return answer_json({"partitions": 0})

    return answered


def _properties(request: Request) -> Any:
    return json.loads(request.body)["properties"]


def _admin(url: str) -> HttpAdmin:
    return HttpAdmin(Connection(url), limit=0.0)


def _hold(admin: HttpAdmin, url: str) -> None:
    with hold(admin, BrokerClient(Connection(url)), [HERE], who="me", plan="p", timeout=0.0):
        pytest.fail("taken, though nobody knows who has it")


@pytest.mark.parametrize("answer", UNKNOWN)
def test_a_broker_that_does_not_say_who_holds_a_lease_has_not_said_nobody(answer: Answer) -> None:
    with serving(_stats(answer)) as server:
        admin = _admin(server.url)
        with pytest.raises(ClusterError):
            held_by(admin, HERE)
        with pytest.raises(ClusterError):
            break_lease(admin, BrokerClient(Connection(server.url)), HERE, "me")
        with pytest.raises(ClusterError):
            _hold(admin, server.url)
        assert lock_holder(admin, HERE) is None  # its own was given back


def test_no_topic_and_no_producer_are_nobody() -> None:
    for answer in (Answer(404), answer_json({"publishers": []})):
        with serving(_stats(answer)) as server:
            assert held_by(_admin(server.url), HERE) is None
            with hold(
                _admin(server.url), BrokerClient(Connection(server.url)), [HERE], who="me", plan="p", timeout=0.0
            ):
                assert "me" in str(lock_holder(_admin(server.url), HERE))


def test_who_holds_it_is_named_and_where_that_cannot_be_read_it_is_still_held() -> None:
    producer = {"metadata": {"holder": "anna", "since": "now"}, "address": "/10.0.0.1:5"}
    with (
        serving(_stats(answer_json({"publishers": [producer]}))) as server,
        pytest.raises(LockedError, match=r"acme/ns is being applied by anna \(10\.0\.0\.1:5\), since now"),
    ):
        _hold(_admin(server.url), server.url)

    with serving(_stats(answer_json({"reason": "no rights"}, 403))) as server:
        named = leases._holder_text(_admin(server.url), HERE)
    assert named.startswith("somebody (who it is cannot be read:")


def test_an_interruption_ends_the_wait_for_somebody_elses_lease_before_anything_is_written() -> None:
    producer = {"metadata": {"holder": "anna", "since": "now"}, "address": "/10.0.0.1:5"}
    stop = threading.Event()
    with serving(_stats(answer_json({"publishers": [producer]}))) as server:
        client = BrokerClient(Connection(server.url))
        threading.Timer(0.5, stop.set).start()
        began = time.monotonic()
        with (
            pytest.raises(
                StoppedError, match=r"K538.*while it waited for the lease of acme/ns; nothing of the plan"
            ) as found,
            hold(_admin(server.url), client, [HERE], who="me", plan="p", timeout=600.0, stop=stop),
        ):
            pytest.fail("taken, though anna has it")
    assert time.monotonic() - began < 100
    assert found.value.exit_code == 130


def test_a_lock_without_properties_is_somebodys() -> None:
    with serving(lambda _: Answer(200, b"null", {"Content-Type": "application/json"})) as server:
        assert str(lock_holder(_admin(server.url), HERE)) == "an unknown client"

"""The exclusive producer of a lease: what counts as a receipt, and how long anybody waits for one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from kodoctl.errors import ExitCode, LockedError
from kodoctl.pulsar.binary import exclusive_producer as module
from kodoctl.pulsar.binary.deadlines import AFTER_STOP_S, Patience
from kodoctl.pulsar.binary.exclusive_producer import ExclusiveProducer, UnconfirmedError
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.pulsar.control.lease import Lease
from kodoctl.topology.names import NamespaceName
from tests.services.polling import eventually

HERE = NamespaceName("acme", "ns")
OK, FENCED = pulsar.Result.Ok, pulsar.Result.ProducerFenced
Receipt = tuple[Any, int | None]


class Producer:
    """The client library's producer: answers each entry with the next of `receipts` (result, ledger), and none after them."""

    def __init__(self, *receipts: Receipt) -> None:
        self.receipts = list(receipts)
        self.sent: list[tuple[int, dict[str, Any]]] = []
        self.waiting: list[Callable[[Any, Any], None]] = []

    def send_async(self, data: bytes, heard: Callable[[Any, Any], None], sequence_id: int) -> None:
        self.sent.append((sequence_id, json.loads(data)))
        if self.receipts:
            receive(heard, self.receipts.pop(0))
        else:
            self.waiting.append(heard)

    def close(self) -> None:
        """Waits for a broker that never answers."""
        threading.Event().wait(2)


def receive(heard: Callable[[Any, Any], None], receipt: Receipt) -> None:
    result, ledger = receipt
    heard(result, None if ledger is None else SimpleNamespace(ledger_id=lambda: ledger))


def _exclusive(
    producer: Producer, others: Callable[[], object] = lambda: None, stop: threading.Event | None = None
) -> ExclusiveProducer:
    return ExclusiveProducer(HERE, producer, Patience(WaitMonitor(), stop), others)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(module, "RECEIPT_S", 0.2)
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    monkeypatch.setattr(module, "CLOSE_S", 0.2)
    return 0.2


def test_an_entry_is_written_when_it_has_a_place_in_a_ledger_and_each_has_a_number_of_its_own() -> None:
    exclusive = _exclusive(producer := Producer((OK, 7), (OK, 7), (OK, 7)))
    exclusive.write({"kind": "begin"})
    exclusive.note({"kind": "after"})
    exclusive.beat()
    exclusive.settle()
    assert [number for number, _ in producer.sent] == [1, 2, 3]
    assert [entry["kind"] for _, entry in producer.sent] == ["begin", "after", "lease"]


@pytest.mark.parametrize("nowhere", [-1, None])
def test_an_ok_without_a_ledger_is_no_receipt_and_the_entry_is_sent_again_by_another_number(
    nowhere: int | None,
) -> None:
    exclusive = _exclusive(producer := Producer((OK, nowhere), (OK, nowhere), (OK, 7)))
    exclusive.write({"kind": "before"})
    assert producer.sent == [(1, {"kind": "before"}), (2, {"kind": "before"}), (3, {"kind": "before"})]


def test_settling_sends_again_what_nobody_waited_for() -> None:
    exclusive = _exclusive(producer := Producer((OK, -1), (OK, 7), (OK, 7)))
    exclusive.note({"kind": "after", "n": 1})
    exclusive.note({"kind": "after", "n": 2})
    exclusive.settle()
    assert [entry["n"] for _, entry in producer.sent] == [1, 2, 1]


def test_an_entry_that_is_confirmed_again_and_again_and_never_stored_ends_it() -> None:
    exclusive = _exclusive(producer := Producer(*[(OK, -1)] * 9))
    exclusive.note({"kind": "after"})
    with pytest.raises(
        LockedError, match=r"acme/ns: the broker confirmed an entry of the journal 3 times, and stored it"
    ):
        exclusive.settle()
    assert len(producer.sent) == 3


def test_who_is_fenced_is_told_so_and_writes_nothing_more() -> None:
    exclusive = _exclusive(producer := Producer((FENCED, -1), (OK, 7)))
    for attempt in (exclusive.beat, exclusive.beat, exclusive.settle, lambda: exclusive.write({})):
        with pytest.raises(
            LockedError, match=r"the lease was lost.*another apply, or `kodoctl unlock`, took it over"
        ) as found:
            attempt()
        assert found.value.exit_code == ExitCode.LOCKED
    exclusive.note({"kind": "after"})
    assert len(producer.sent) == 1


def test_a_producer_that_takes_nothing_is_a_lost_lease() -> None:
    class Closed(Producer):
        def send_async(self, data: bytes, heard: Callable[[Any, Any], None], sequence_id: int) -> None:
            raise pulsar.AlreadyClosed(pulsar._pulsar.Result.AlreadyClosed)

    exclusive = _exclusive(Closed())
    exclusive.note({"kind": "end"})
    with pytest.raises(LockedError, match=r"the journal takes no entry: .*AlreadyClosed"):
        exclusive.settle()


def test_settling_waits_for_every_receipt() -> None:
    exclusive = _exclusive(journal := Producer())
    exclusive.note({"kind": "end"})
    exclusive.note({"kind": "end"})

    def receipts() -> None:
        while journal.waiting:
            receive(journal.waiting.pop(), (OK, 7))

    threading.Timer(0.05, receipts).start()
    exclusive.settle()
    assert not journal.waiting


def test_a_broker_that_never_answers_ends_every_wait_and_nobody_is_accused(limit: float) -> None:
    exclusive = _exclusive(Producer())
    exclusive.note({"kind": "after"})
    began = time.monotonic()
    with pytest.raises(UnconfirmedError):
        exclusive.beat()
    first = time.monotonic() - began
    for attempt in (exclusive.beat, lambda: exclusive.write({}), exclusive.settle):
        began = time.monotonic()
        with pytest.raises(
            UnconfirmedError, match=r"acme/ns: the broker stored no entry of the journal for .* nobody is known"
        ):
            attempt()
        assert time.monotonic() - began < limit + 45
    assert first >= limit
    began = time.monotonic()
    exclusive.close()
    assert time.monotonic() - began < 45


def test_a_broker_that_answers_late_has_the_lease_go_on(limit: float) -> None:
    exclusive = _exclusive(producer := Producer())
    with pytest.raises(UnconfirmedError):
        exclusive.write({"kind": "after"})
    receive(producer.waiting.pop(), (OK, 7))
    producer.receipts.append((OK, 7))
    exclusive.settle()
    exclusive.beat()


def test_a_long_wait_is_reported() -> None:
    reports: list[str] = []
    monitor = WaitMonitor(lambda what, _seconds, _limit: reports.append(what), clock=lambda: time.monotonic() * 50)
    exclusive = ExclusiveProducer(HERE, producer := Producer(), Patience(monitor))
    writing = threading.Thread(target=exclusive.write, args=({},), daemon=True)
    writing.start()
    eventually(lambda: reports)
    assert reports[0] == "the journal of acme/ns to store an entry"
    receive(producer.waiting.pop(), (OK, 7))
    writing.join(60)
    monitor.close()


def test_an_interruption_leaves_receipts_a_moment_and_then_ends_all_waits_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, now = threading.Event(), [100.0]

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    exclusive = ExclusiveProducer(HERE, producer := Producer(), Patience(WaitMonitor(), stop, clock=clock))
    stop.set()
    with pytest.raises(UnconfirmedError, match="interrupted, the broker stored no entry"):
        exclusive.write({})
    assert AFTER_STOP_S <= now[0] - 100 < AFTER_STOP_S + 3
    before = now[0]
    with pytest.raises(UnconfirmedError, match="interrupted"):
        exclusive.settle()
    assert now[0] - before < 3
    receive(producer.waiting.pop(), (OK, 7))
    producer.receipts.append((OK, 7))
    exclusive.write({})  # who has its receipt does not wait


def test_after_a_long_wait_who_took_the_lease_without_a_producer_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def others() -> object:
        looks.append("")
        return "anna"

    exclusive = _exclusive(Producer((OK, 7), (OK, 7), (OK, 7)), others)
    exclusive.beat()
    assert not looks
    monkeypatch.setattr(module, "LONG_S", 0.0)
    for _ in range(2):
        with pytest.raises(LockedError, match="acme/ns: anna took it while no broker answered"):
            exclusive.beat()
    assert len(looks) == 1


def test_a_lease_whose_producer_answers_after_a_fail_over_goes_on_by_itself() -> None:
    now = [0.0]
    producer = Producer()
    lease = Lease({HERE: _exclusive(producer)}, lambda: now[0])
    now[0] += 60
    passed = threading.Event()
    checking = threading.Thread(target=lambda: (lease.check(), passed.set()), daemon=True)
    checking.start()
    eventually(lambda: producer.waiting)
    now[0] += 50  # the broker is dead for so long; what its answer says is older than a heartbeat
    receive(producer.waiting.pop(), (OK, 7))
    eventually(lambda: producer.waiting)
    assert not passed.is_set()
    receive(producer.waiting.pop(), (OK, 7))
    eventually(passed.is_set)
    assert not lease.ever_lost

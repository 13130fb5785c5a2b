"""Results of acknowledgements: the option of the client library, and the way of results to their sinks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar import ack_receipts, client_consumer
from kodo_consumer.adapters.pulsar.ack_receipts import acknowledge_list, check_receipts, with_receipts
from kodo_consumer.adapters.pulsar.ack_results import AckResults, BindingResults
from kodo_consumer.adapters.pulsar.client_consumer import ClientConsumer, NativeConsumer, Subscriber

from kodoctl.errors import ClusterError
from tests.contract.worlds import Sink
from tests.services.polling import eventually
from tests.unit.consumer.adapters.pulsar.test_client_consumer import REQUEST, Border, Reader
from tests.unit.consumer.client_library import Client

IDS = [pulsar._pulsar.MessageId(-1, 3, entry, -1) for entry in range(4)]
NOT_OPEN = pulsar.Result.ConsumerNotInitialized.value


class ConfirmingReader(Reader):
    """A reader of the border that knows numbers, and reports nothing."""

    def acknowledge_with(self, tokens: Any, tickets: Any, sender: Any, number: int) -> list[int]:
        self.acked += [(token, ticket, sender, number) for token, ticket in zip(tokens, tickets, strict=True)]
        return [at for at, token in enumerate(tokens) if not isinstance(token, int)]


class Binding:
    """A consumer of the client library that was never opened, which refuses each acknowledgement at once."""

    def __init__(self) -> None:
        self._consumer = pulsar._pulsar.Consumer()


def _native(results: AckResults, reader: Reader) -> NativeConsumer:
    return NativeConsumer(Binding(), REQUEST, Border(reader))  # type: ignore[arg-type]


def test_the_option_is_set_in_the_configuration_of_each_consumer_and_of_no_other() -> None:
    check_receipts()
    client = pulsar.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=1)
    view = with_receipts(client)
    assert view._consumers is client._consumers
    assert view._client.get_topic_partitions is not None, "everything else goes to the binding"
    with pytest.raises(pulsar.PulsarException):
        view.subscribe("t", "s")
    client.close()


@pytest.mark.parametrize(
    ("name", "replacement", "detail"),
    [
        ("_SET", "no_such_function", "no_such_function"),
        ("_ACKNOWLEDGE", "no_such_function", "no_such_function"),
        ("_SET", ack_receipts._IS_SET, "does not keep the option"),
        ("_LEDGER", "_ZNK6pulsar9MessageId7entryIdEv", "other message ids"),
    ],
)
def test_a_client_library_without_the_option_or_the_call_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, replacement: str, detail: str
) -> None:
    monkeypatch.setattr(ack_receipts, name, replacement)
    ack_receipts._receipts.cache_clear()
    try:
        with pytest.raises(ClusterError, match=rf"K772.*{detail}"):
            check_receipts()
    finally:
        ack_receipts._receipts.cache_clear()


def test_a_list_has_one_result() -> None:
    results: list[int] = []
    acknowledge_list(pulsar._pulsar.Consumer(), IDS, results.append)
    assert results == [NOT_OPEN]
    with pytest.raises(AttributeError):
        acknowledge_list(pulsar._pulsar.Consumer(), [*IDS, "of nobody"], results.append)
    with pytest.raises(ValueError, match="PyCapsule"):
        acknowledge_list(pulsar._pulsar.Consumer(), [pulsar._pulsar.Message()], results.append)
    assert results == [NOT_OPEN]


def test_a_list_beyond_the_numbers_is_sent_and_its_result_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_receipts._receipts(), "_free", deque())
    results: list[int] = []
    acknowledge_list(pulsar._pulsar.Consumer(), IDS, results.append)
    assert results == [-1]


def test_results_come_to_the_sink_of_their_number_in_bundles() -> None:
    problems: list[BaseException] = []
    results = AckResults(None, problems.append)
    first, second = Sink(), Sink()
    assert (results.add(first), results.add(second)) == (0, 1)
    results.binding.put(1, [1, 3], 0)
    results.binding.put(0, [2], NOT_OPEN)
    eventually(lambda: len(first.unknown) + len(second.confirmed) == 3)
    assert (first.unknown, second.confirmed, first.confirmed, second.unknown) == ([2], [1, 3], [], [])
    results.close()
    assert problems == []


def test_a_wait_without_results_ends() -> None:
    results = BindingResults()
    assert results.receipts(1, 0) == []
    results.wake()
    assert results.receipts(10_000, 0) == []


def test_tokens_of_either_kind_have_results() -> None:
    sender, reader = SimpleNamespace(), ConfirmingReader()
    results = AckResults(SimpleNamespace(reader=ConfirmingReader, sender=lambda: sender), lambda _: None)  # type: ignore[arg-type]
    _native(results, reader).acknowledge_with([1, IDS[0], 2, IDS[1]], [7, 8, 9, 10], results, 3)
    assert [one[:2] for one in reader.acked] == [(1, 7), (IDS[0], 8), (2, 9), (IDS[1], 10)]  # type: ignore[index]
    assert all(one[2:] == (sender, 3) for one in reader.acked)  # type: ignore[index]
    ((number, _, found),) = results.binding.receipts(1_000, 0)
    assert (number, [one[:2] for one in found]) == (3, [(8, NOT_OPEN), (10, NOT_OPEN)])


def test_with_an_earlier_border_the_binding_reads_what_is_to_be_confirmed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_consumer, "with_receipts", lambda client: client)
    border: Any = Border(Reader())
    results = AckResults(border, lambda _: None)
    assert results.native is None
    subscriber = Subscriber(Client(), border, results)
    assert type(subscriber.subscribe(replace(REQUEST, confirms=True))) is ClientConsumer
    assert caplog.messages == ["t: read without the native border: it gives no results of acknowledgements"]
    assert type(subscriber.subscribe(REQUEST)) is NativeConsumer
    border = SimpleNamespace(reader=ConfirmingReader, sender=SimpleNamespace)
    subscriber = Subscriber(Client(), border, AckResults(border, lambda _: None))
    assert type(subscriber.subscribe(replace(REQUEST, confirms=True))) is NativeConsumer


def test_results_that_come_while_others_are_handed_over_at_the_end_are_handed_over_too() -> None:
    class Slow(Sink):
        def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
            super().on_acknowledged(confirmed, unknown)
            gate.wait(20)

    gate, problems = threading.Event(), list[BaseException]()
    results, sink = AckResults(None, problems.append), Slow()
    results.add(sink)
    results.binding.put(0, [1], 0)
    eventually(lambda: sink.confirmed == [1])
    results.binding.put(0, [2], 0)
    closing = threading.Thread(target=results.close)
    closing.start()
    eventually(lambda: results._over)
    gate.set()
    closing.join(20)
    assert (sink.confirmed, problems) == ([1, 2], [])


def test_sinks_that_are_added_at_once_have_numbers_of_their_own() -> None:
    results, found = AckResults(None, lambda _: None), list[int]()
    start = threading.Barrier(16)

    def add() -> None:
        start.wait()
        found.append(results.add(Sink()))

    threads = [threading.Thread(target=add) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.close()
    assert sorted(found) == list(range(16))
    assert len(results._threads) == 1

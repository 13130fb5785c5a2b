"""Results of acknowledgements: the option of the client library, and the way of results to their sinks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar import ack_receipts
from kodo_consumer.adapters.pulsar.ack_receipts import check_receipts, with_receipts
from kodo_consumer.adapters.pulsar.ack_results import AckResults, BindingResults
from kodo_consumer.adapters.pulsar.client_consumer import NativeConsumer

from kodoctl.errors import ClusterError
from tests.contract.worlds import Sink
from tests.services.polling import eventually
from tests.unit.consumer.adapters.pulsar.test_client_consumer import REQUEST, Border, Reader

OK, CLOSED = pulsar.Result.Ok, pulsar.Result.AlreadyClosed


class ConfirmingReader(Reader):
    """A reader of the border that knows numbers, and reports nothing."""

    def acknowledge_with(self, tokens: Any, tickets: Any, sender: Any, number: int) -> list[int]:
        self.acked += [(token, ticket, sender, number) for token, ticket in zip(tokens, tickets, strict=True)]
        return [at for at, token in enumerate(tokens) if not isinstance(token, int)]


class Binding:
    """The binding's consumer: each acknowledgement gets the result in its token."""

    def __init__(self) -> None:
        self._consumer = self

    def acknowledge_async(self, token: Any, call: Any) -> None:
        call(CLOSED if token == "lost" else OK)


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


def test_a_client_library_without_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_receipts, "_SET", "no_such_function")
    ack_receipts._enabler.cache_clear()
    try:
        with pytest.raises(ClusterError, match=r"K772.*no_such_function"):
            check_receipts()
    finally:
        ack_receipts._enabler.cache_clear()


def test_results_come_to_the_sink_of_their_number_in_bundles() -> None:
    problems: list[BaseException] = []
    results = AckResults(None, problems.append)
    first, second = Sink(), Sink()
    assert (results.add(first), results.add(second)) == (0, 1)
    for ticket, result in enumerate([OK, CLOSED, OK], 1):
        results.binding.put(ticket % 2, ticket, result)
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
    _native(results, reader).acknowledge_with([1, "kept", 2, "lost"], [7, 8, 9, 10], results, 3)
    assert [one[:2] for one in reader.acked] == [(1, 7), ("kept", 8), (2, 9), ("lost", 10)]  # type: ignore[index]
    assert all(one[2:] == (sender, 3) for one in reader.acked)  # type: ignore[index]
    ((number, _, found),) = results.binding.receipts(1_000, 0)
    assert (number, [one[:2] for one in found]) == (3, [(8, 0), (10, 1)])


def test_with_an_earlier_border_the_binding_acknowledges() -> None:
    results = AckResults(Border(Reader()), lambda _: None)  # type: ignore[arg-type]
    assert results.native is None
    _native(results, Reader()).acknowledge_with([1, 2], [7, 8], results, 0)
    ((_, _, found),) = results.binding.receipts(1_000, 0)
    assert [one[0] for one in found] == [7, 8]

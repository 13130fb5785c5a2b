"""The consumer of a recall, as the broker shows it to others."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest
from kodo_pipeline.evidence.cursors import _is_unrecorded

from kodoctl.errors import ClusterError
from kodoctl.pulsar.binary import recall_transport
from kodoctl.pulsar.binary.recall_transport import DeadLetterConsumer, _lock_subscription
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor


def test_it_says_that_it_records_what_it_acknowledges() -> None:
    said: dict[str, Any] = {}
    opened = SimpleNamespace(subscribe=lambda *_, **options: said.update(options))
    client: Any = SimpleNamespace(ask=lambda call, *_, **__: call(opened))
    _lock_subscription(client, "persistent://kodo/trade/orders-billing-RETRYING-partition-0", "billing")
    part = {"subscriptions": {"billing": {"consumers": [{"metadata": said["properties"]}]}}}
    assert not _is_unrecorded(part, "billing"), "an ingest beside `waiting apply` would begin every proof anew"


class Stored:
    """A message of the client's."""

    def __init__(self, entry: int) -> None:
        self.entry = entry

    def message_id(self) -> int:
        return self.entry


def consumer(
    entries: int, monkeypatch: pytest.MonkeyPatch, silent: float = 0, stop: threading.Event | None = None
) -> Any:
    """Holds so many entries, of which the first comes after so many seconds."""
    left, now = [Stored(entry) for entry in range(entries)], [0.0]

    def receive(limit: int) -> Stored:
        if not left or now[0] < silent:
            now[0] += limit / 1000
            if stop is not None and now[0] > 20:
                stop.set()
            raise pulsar.Timeout
        return left.pop(0)

    monkeypatch.setattr(recall_transport, "position_of", lambda token, number: (number, 1, token, -1))
    monkeypatch.setattr(recall_transport, "copy_message", lambda _message, token, where: (token, where))
    opened = SimpleNamespace(subscribe=lambda *_, **__: SimpleNamespace(receive=receive))
    patience = SimpleNamespace(waits=WaitMonitor(clock=lambda: now[0]))
    client: Any = SimpleNamespace(ask=lambda call, *_, **__: call(opened), patience=patience)
    return DeadLetterConsumer(client, "persistent://kodo/trade/orders-billing-DLQ-partition-2", "kodo-hold", stop)


def test_letters_of_a_further_segment_go_on_behind_those_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    found = consumer(7, monkeypatch)
    came: list[Any] = [[token for token, _ in found.letters((1, until), ())] for until in (2, 3, 5)]
    assert came == [[0, 1, 2], [3], [4, 5]]
    assert list(found.letters((1, 3), ())) == [], "what is behind stays for later"
    assert [token for token, _ in found.letters((1, 6), ())] == [6]


def test_what_is_held_of_a_further_segment_is_found_behind_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    found = consumer(6, monkeypatch)
    assert set(found.unacknowledged((1, 2), [(2, 1, 1, -1), (2, 1, 2, -1), (2, 1, 1, 7)])) == {
        (2, 1, 1, -1),
        (2, 1, 2, -1),
    }
    found.forget()
    assert [token for token, _ in found.letters((1, 3), ())] == [3], "not beside the subscription"
    assert set(found.unacknowledged((1, 5), [(2, 1, 3, -1), (2, 1, 5, -1)])) == {(2, 1, 5, -1)}


def test_a_fail_over_is_waited_for_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [token for token, _ in consumer(2, monkeypatch, silent=60).letters((1, 1), ())] == [0, 1]
    with pytest.raises(ClusterError, match=r"K561.*no letter came within 90 s"):
        list(consumer(2, monkeypatch, silent=120).letters((1, 1), ()))
    stop = threading.Event()
    assert list(consumer(2, monkeypatch, silent=60, stop=stop).letters((1, 1), ())) == []

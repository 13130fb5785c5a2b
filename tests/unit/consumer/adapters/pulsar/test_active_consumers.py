"""Who the active consumers are, asked while a broker is silent: those of the other brokers' partitions are known all the same."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kodo_consumer.adapters.pulsar.active_consumers import ActiveConsumerReader

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin import Reply
from tests.services.polling import eventually

TOPIC, PATH = "persistent://p/n/t", "persistent/p/n/t"


def _of(name: str) -> dict[str, Any]:
    return {"subscriptions": {"s": {"activeConsumerName": name}}}


class Silent:
    """An admin API: one request for all partitions, or one for each; what is in `silent` does not answer."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.asked: list[str] = []
        self.gone = False
        self.gate = threading.Event()

    def call(self, method: str, path: str, **_: Any) -> Reply:
        self.asked.append(path.removeprefix(PATH))
        number = path.removesuffix("/stats").rpartition("-")[2]
        if self.gone:
            return Reply(method, path, 404)
        if path.endswith("partitioned-stats"):
            if self.silent:
                raise ClusterError(error("K514", "no answer", "of anybody"))
            parts = {f"{TOPIC}-partition-{one}": _of(f"w{one}") for one in range(3)}
            return Reply(method, path, 200, {"partitions": parts})
        if path.endswith("partitions"):
            return Reply(method, path, 200, {"partitions": 3})
        if number in self.silent:
            self.gate.wait(20)
            raise ClusterError(error("K514", "no answer", "of its broker"))
        return Reply(method, path, 200, _of(f"w{number}"))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Silent:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.active_consumers._LATEST", 2.0)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.active_consumers._SOON", 1.0)
    return Silent()


def test_while_a_broker_is_silent_each_partition_is_asked_for_and_those_that_do_not_answer_are_left_out(
    silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    reader = ActiveConsumerReader(silent, clock)  # type: ignore[arg-type]
    assert reader.read(TOPIC, "s") == {"0": "w0", "1": "w1", "2": "w2"}
    assert silent.asked == ["/partitioned-stats"], "one request, as long as it is answered"
    silent.silent = {"1"}
    assert reader.read(TOPIC, "s") == {"0": "w0", "2": "w2"}
    silent.asked.clear()
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.active_consumers._LATEST", 20.0)
    assert reader.read(TOPIC, "s") == {"0": "w0", "2": "w2"}, "nobody waits for it again"
    assert "/partitioned-stats" not in silent.asked, "it would take as long again"
    assert silent.asked[0] == "/partitions"
    silent.gate.set()
    assert reader.read(TOPIC, "s") == {"0": "w0", "2": "w2"}, "refused is not told either"
    silent.silent.clear()
    clock.now += 31
    silent.asked.clear()
    assert reader.read(TOPIC, "s") == {"0": "w0", "1": "w1", "2": "w2"}
    assert silent.asked == ["/partitioned-stats"]
    silent.gone = True
    with pytest.raises(ClusterError):
        reader.read(TOPIC, "s")
    eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("kodo-active")])


def test_a_partition_that_answered_late_is_waited_for_again(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ActiveConsumerReader(silent, Clock())  # type: ignore[arg-type]
    silent.silent, answered = {"1"}, threading.Event()
    call = silent.call

    def slow(method: str, path: str, **more: Any) -> Reply:
        if path.endswith("-1/stats"):
            silent.gate.wait(20)
            answered.wait(20)
            return Reply(method, path, 200, _of("w1"))
        return call(method, path, **more)

    monkeypatch.setattr(silent, "call", slow)
    assert reader.read(TOPIC, "s") == {"0": "w0", "2": "w2"}
    silent.gate.set()
    answered.set()
    eventually(lambda: not reader._under_way)
    answered.clear()
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.active_consumers._GRACE", 0.0)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.active_consumers._LATEST", 20.0)
    threading.Timer(0.5, answered.set).start()
    assert reader.read(TOPIC, "s") == {"0": "w0", "1": "w1", "2": "w2"}


def test_a_partition_whose_last_request_is_under_way_is_not_asked_for_again(silent: Silent) -> None:
    reader = ActiveConsumerReader(silent, Clock())  # type: ignore[arg-type]
    silent.silent = {"1", "2"}
    for _ in range(3):
        assert reader.read(TOPIC, "s") == {"0": "w0"}
    assert silent.asked.count("-partition-0/stats") == 3
    assert silent.asked.count("-partition-1/stats") == silent.asked.count("-partition-2/stats") == 1
    silent.gate.set()
    eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("kodo-active")])
    silent.silent.clear()
    assert reader.read(TOPIC, "s") == {"0": "w0", "1": "w1", "2": "w2"}


def test_if_no_partition_answered_last_all_are_waited_for(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ActiveConsumerReader(silent, Clock())  # type: ignore[arg-type]
    silent.silent = {"0", "1", "2"}
    silent.gate.set()
    assert reader.read(TOPIC, "s") is None
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.active_consumers._LATEST", 20.0)
    silent.silent.clear()
    call = silent.call

    def slow(method: str, path: str, **given: Any) -> Reply:
        threading.Event().wait(0.3 if path.endswith("/stats") else 0.0)
        return call(method, path, **given)

    monkeypatch.setattr(silent, "call", slow)
    assert reader.read(TOPIC, "s") == {"0": "w0", "1": "w1", "2": "w2"}


def test_an_answer_for_all_that_comes_late_counts(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is slow, and nobody is silent."""
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.active_consumers._LATEST", 20.0)
    call, first = silent.call, threading.Event()

    def slow(method: str, path: str, **given: Any) -> Reply:
        if path.endswith("/stats"):
            first.set()
            silent.gate.wait(20)
        if path.endswith("partitioned-stats"):
            first.wait(20)
        return call(method, path, **given)

    monkeypatch.setattr(silent, "call", slow)
    reader = ActiveConsumerReader(silent, Clock())  # type: ignore[arg-type]
    assert reader.read(TOPIC, "s") == {"0": "w0", "1": "w1", "2": "w2"}
    silent.gate.set()


class PlainTopic:
    """An admin API with one plain topic; `slow`: the requests for the whole topic do not answer."""

    def __init__(self) -> None:
        self.slow = False

    def call(self, method: str, path: str, query: dict[str, str] | None = None, **_: Any) -> Reply:
        if self.slow and query:
            raise ClusterError(error("K514", "no answer", "of anybody"))
        if path.endswith("partitioned-stats"):
            return Reply(method, path, 404)
        return Reply(method, path, 200, {"partitions": 0} if path.endswith("/partitions") else _of("w0"))


def test_a_plain_topic_has_one_active_consumer(silent: Silent) -> None:
    admin = PlainTopic()
    assert ActiveConsumerReader(admin).read(TOPIC, "s") == {"-1": "w0"}  # type: ignore[arg-type]
    admin.slow = True
    assert ActiveConsumerReader(admin).read(TOPIC, "s") == {"-1": "w0"}  # type: ignore[arg-type]

"""An apply records what it is about to do before it does it, and what came of it, also where it is stopped."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from kodoctl.apply.executor import Executor
from kodoctl.apply.journal import Journal
from kodoctl.apply.report import ChangeStatus
from kodoctl.pulsar.admin import confirmed_write
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control.lease import Lease
from kodoctl.pulsar.session import Session
from kodoctl.pulsar.values import ledger as ledgers
from kodoctl.topology.names import TopicName
from tests.samples.inventories import HERE, applied, planned, topology, wanted
from tests.services.servers import Answer, Request, answer_json, serving

K = TopicName(HERE, "K")
READ_BY_ANNA = "{subscriptions: {s: {workers: [anna], states: [], dead_letter: false}}}"


class RecordingLease:
    """A lease that nobody takes, and the entries of its journal: (kind, kind of object, status)."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, str]] = []

    def write(self, entry: Mapping[str, Any]) -> None:
        self.entries.append((entry["kind"], entry["address"].partition(".")[0], entry.get("status", "")))

    note = write

    def beat(self) -> None:
        """Nothing."""

    settle = close = beat


class Cluster:
    """A namespace with the topic K; `stop` is set when K is deleted, which the broker refuses if it is to."""

    def __init__(self, stop: threading.Event, *, refuses: bool) -> None:
        self.stop, self.refuses, self.there = stop, refuses, True
        self.properties: dict[str, str] = {}

    def __call__(self, request: Request) -> Answer:
        path = request.path.partition("?")[0].removeprefix("/admin/v2/")
        if request.method == "DELETE":
            assert path == f"persistent/{HERE}/K/partitions"
            self.stop.set()
            self.there = self.refuses
            return answer_json({"reason": "no"}, 403) if self.refuses else Answer(204)
        if request.method == "PUT":
            self.properties |= json.loads(request.body)
            return Answer(204)
        if path.startswith("namespaces/"):
            return answer_json({"properties": self.properties, "auth_policies": {}})
        if path in (f"persistent/{HERE}/partitioned", f"persistent/{HERE}"):
            return answer_json([])
        if not self.there:
            return Answer(404)
        subscriptions = {"s": {"subscriptionProperties": {"kodoctl": "trade"}}}
        part = {f"{K}-partition-0": {"subscriptions": subscriptions}}
        return answer_json({"metadata": {"partitions": 1, "properties": {"kodoctl": "trade"}}, "partitions": part})


@pytest.mark.parametrize("refuses", [False, True])
def test_what_goes_with_a_topic_is_recorded_before_the_topic_goes_and_has_its_result_though_the_apply_is_stopped(
    refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An undo of a destroy that was interrupted made the topics again without their subscriptions."""
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 0.0)
    live = applied(wanted(topology(f"{{J: {{}}, K: {READ_BY_ANNA}}}")))
    plan, held, stop = planned(wanted(topology("{J: {}}")), live), RecordingLease(), threading.Event()
    cluster = Cluster(stop, refuses=refuses)
    with serving(cluster) as server, Session(Connection(server.url)) as session:
        report = Executor(session, plan, live, Journal(Lease({HERE: held}), [HERE]), stop=stop).run()
    kinds = {outcome.address.partition(".")[0]: outcome.status for outcome in report.outcomes}
    whole, rest = (ChangeStatus.FAILED, ChangeStatus.SKIPPED) if refuses else (ChangeStatus.DONE, ChangeStatus.DONE)
    assert kinds == {"topic": whole, "subscription": rest, "grant": rest}
    before, after = held.entries[:3], held.entries[3:]
    assert before == [("before", "grant", ""), ("before", "subscription", ""), ("before", "topic", "")]
    assert after[0] == ("after", "topic", whole.value)
    assert sorted(after[1:]) == [("after", "grant", rest.value), ("after", "subscription", rest.value)]
    kept = {name.rpartition("/")[2]: ledgers.decode("trade", HERE, text) for name, text in cluster.properties.items()}
    assert [(sorted(one.owned), one.grants) for one in kept.values()] == (
        [] if refuses else [([f"namespace.{HERE}", f"topic.{TopicName(HERE, 'J')}"], {})]
    )

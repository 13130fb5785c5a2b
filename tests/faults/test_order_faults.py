"""Order of keys on a real broker whose connections break while nothing has a receipt, and that hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.topics import create_topics
from tests.faults.machine import Machine
from tests.faults.ordered_traffic import TOPICS, OrderedTraffic, await_traffic

pytestmark = [pytest.mark.broker, pytest.mark.timed]
_NAMESPACE = "public/ordered"


def _deafen(machine: Machine) -> None:
    """Nothing arrives at the broker for longer than a lost connection may do without a receipt; then it is lost."""
    machine.wire.set(deaf=True)
    time.sleep(3.0)
    machine.wire.set(refuses=True)
    machine.wire.reset()
    time.sleep(2.0)
    machine.wire.set()


def _freeze(machine: Machine) -> None:
    """The broker hangs, and its clients lose their connections meanwhile."""
    machine.freeze()
    time.sleep(3.0)
    machine.wire.reset()
    time.sleep(2.0)
    machine.thaw()


FAULTS: tuple[Callable[[Machine], None], ...] = (_deafen, _freeze)


@pytest.mark.full
@pytest.mark.timeout(1_200)
def test_a_key_keeps_its_order_from_producer_and_outbox_through_a_move_to_the_handler(tmp_path: Path) -> None:
    machine, file = Machine(tmp_path / "broker"), tmp_path / "ordered.yaml"
    tenant, namespace = _NAMESPACE.split("/")
    file.write_text(
        f"version: 1\nname: ordered\ntenant: {tenant}\nnamespace: {namespace}\ntopics:{TOPICS}", encoding="utf-8"
    )
    try:
        machine.start(within=300.0)
        assert machine.broker.admin("PUT", f"namespaces/{_NAMESPACE}").ok
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        assert machine.broker.admin("POST", f"namespaces/{_NAMESPACE}/retention", kept).ok
        create_topics(machine.broker, str(file))
        place = {"admin_url": machine.broker.admin_url, "broker_url": machine.broker.broker_url, "environ": {}}
        traffic = OrderedTraffic(file, tmp_path, _NAMESPACE, place)
        with traffic.running():
            for fault in 2 * FAULTS:
                await_traffic(traffic)
                fault(machine)
            await_traffic(traffic)
            traffic.settle()
        assert traffic.problems == []
        assert traffic.verdict() == {}
        assert traffic.handled > 5 * 20
    finally:
        machine.close()

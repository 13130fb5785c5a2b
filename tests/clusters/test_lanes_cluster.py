"""Workers while a broker dies: the partitions of the other brokers are handled as ever, nothing is lost, little is handled twice."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.brokers.cluster import Cluster
from tests.clusters.traffic import PARTITIONS, Traffic, handle_while_one_is_dead
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", ["shared", "failover"])
def test_partitions_of_other_brokers_go_on_while_one_broker_is_dead(
    cluster: Cluster, namespace: str, tmp_path: Path, kind: str
) -> None:
    handle_while_one_is_dead(cluster, namespace, tmp_path, kind)


def test_a_worker_that_starts_while_a_broker_is_dead_reads_what_has_a_broker_and_the_rest_later(
    cluster: Cluster, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The dead one is the first of every list of addresses."""
    traffic = Traffic(cluster, namespace, tmp_path, "shared")
    everything = range(PARTITIONS)
    with ExitStack() as stack:
        stack.enter_context(traffic.sending())
        traffic.send(*everything)
        eventually(lambda: all(traffic.stored[one] for one in everything))
        cluster.kill("broker-1")
        stack.enter_context(traffic.worker())
        eventually(lambda: traffic.done(*everything), within=120)
    assert not traffic.twice()

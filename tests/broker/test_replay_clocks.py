"""Replays on a broker of its own that notes when it stores messages: no clock of a producer matters."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator

import platformdirs
import pytest

from kodoctl.dev import node_config, service
from kodoctl.dev.instance import EngineName, Homes
from kodoctl.dev.resolve import UpFlags
from kodoctl.dev.up import up
from tests.broker.replays import Replays, moment, published
from tests.brokers.broker import Broker
from tests.brokers.wire_producer import WireProducer
from tests.brokers.workspace import Workspace
from tests.services.ports import unusual_ports

pytestmark = [pytest.mark.broker, pytest.mark.full]  # a broker of its own
NOTES = (
    "\nbrokerEntryMetadataInterceptors=org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor\n"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that notes the time of each entry."""
    homes = Homes(tmp_path_factory.mktemp("noting"), platformdirs.user_cache_path("kodoctl"))
    packaged = node_config.packaged_text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            node_config, "packaged_text", lambda name: packaged(name) + (NOTES if name == "standalone.conf" else "")
        )
        asked = UpFlags("noting", "4.2", engine=EngineName.JAVA, preferred=unusual_ports())
        instance = up(homes, os.environ, asked).instance
    yield Broker(instance.admin_url, instance.broker_url)
    service.down(homes, os.environ, "noting")


def test_the_time_of_storing_counts_where_the_broker_notes_it(workspace: Workspace) -> None:
    replays = Replays(workspace)
    part = f"{workspace.full('orders')}-partition-0"
    with WireProducer(workspace.broker.broker_url, part) as producer:
        for number in range(6):
            published(producer, number, time.time() - 3600)
        time.sleep(0.1)
        since = moment()
        for number in range(6, 11):
            published(producer, number, time.time() - 3600)
        time.sleep(0.1)
        until = moment()
        for number in range(11, 20):
            published(producer, number, time.time() - 3600)
    assert replays.take() == Counter(range(20))
    plan = replays.plan("--from", since, "--until", until)
    assert (plan["clocks"], plan["summary"]["again"], plan["summary"]["by_place"]) == ("broker", 5, 5)
    replays.apply()
    assert replays.take() == Counter(range(6, 11))

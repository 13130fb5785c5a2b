"""The bars of plan and apply on 300 live topics: what they ask of the broker, counted by a proxy that stands between."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import pytest

from tests.brokers.broker import Broker
from tests.brokers.workspace import Workspace, isolated
from tests.services.servers import Proxy

pytestmark = pytest.mark.broker

TOPICS = 300
BUDGET = 1.2  # requests a topic
TRAFFIC = re.compile(r"(\d+) reads, (\d+) writes, .*topic policies read (.*)")
POLICIES = "{retention: {time: 1d, size: 100MiB}, backlog_quota: {size: 10MiB}, ttl: 14d, max_producers: 50}"


@pytest.fixture(scope="module")
def proxy(broker: Broker) -> Iterator[Proxy]:
    found = Proxy(broker.admin_url)
    yield found
    found.close()


@pytest.fixture(scope="module")
def crowd(broker: Broker, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """300 topics with a subscription and four policies each, applied to nothing in one go; kodoctl talks through the proxy."""
    tenant = f"t-crowd-{secrets.token_hex(3)}"
    broker.tenant(tenant)
    folder = tmp_path_factory.mktemp("crowd")
    with isolated(folder):
        workspace = Workspace(broker, folder, tenant)
        small = "{subscriptions: {s: {states: [], dead_letter: false}}}"
        topics = "\n".join(f"t{number:03}: {small}" for number in range(TOPICS))
        workspace.topology(topics, f"defaults: {{policies: {POLICIES}}}\n")
        workspace.apply()
    workspace.options = ["--admin-url", proxy.url, "--broker-url", broker.broker_url]
    return workspace


@pytest.fixture
def counted(proxy: Proxy, crowd: Workspace) -> Iterator[Proxy]:
    """The proxy, with nothing counted yet, in the crowd's folder."""
    proxy.requests.clear()
    proxy.redirected.clear()
    with isolated(crowd.folder):
        yield proxy


def test_apply_made_every_topic_with_its_subscription_and_policies(crowd: Workspace) -> None:
    names = crowd.admin("GET", f"persistent/{crowd.namespace}/partitioned")
    assert len(names) == TOPICS
    for local in ("t000", "t150", "t299"):
        assert crowd.subscriptions(local) == [{"s"}]
        assert crowd.policy(local, "messageTTL") == 14 * 86_400
        assert crowd.policy(local, "retention") == {"retentionTimeInMinutes": 1440, "retentionSizeInMB": 100}
        assert crowd.policy(local, "backlogQuotaMap")["destination_storage"]["limitSize"] == 10 << 20
        assert crowd.policy(local, "maxProducers") == 50


def test_a_plan_of_live_topics_stays_within_its_request_budget_and_tells_the_truth(
    crowd: Workspace, counted: Proxy
) -> None:
    plan = crowd.plan("--verbose")
    assert plan.summary.startswith("No changes")
    assert counted.writes == []
    assert len(counted.requests) <= BUDGET * TOPICS, counted.counted()
    told = TRAFFIC.search(plan.err)
    assert told is not None, plan.err
    again = len(counted.redirected)  # on a cluster: asked again of another broker, past the proxy
    assert (int(told[1]) - again, int(told[2]), told[3]) == (len(counted.requests), 0, "in bulk")


def test_an_apply_with_nothing_to_change_writes_nothing(crowd: Workspace, counted: Proxy) -> None:
    assert crowd.apply().summary.startswith("No changes")
    assert counted.writes == []
    assert len(counted.requests) <= BUDGET * TOPICS, counted.counted()


def test_drift_asks_once_more_for_each_topic_without_a_producer(crowd: Workspace, counted: Proxy) -> None:
    """Nothing else tells that a topic was terminated."""
    assert "No drift." in crowd.run("drift").out
    assert counted.writes == []
    assert len(counted.requests) <= (BUDGET + 1) * TOPICS, counted.counted()


def test_one_changed_topic_of_300_writes_to_that_topic_and_to_the_ledger_only(crowd: Workspace, counted: Proxy) -> None:
    file = crowd.folder / "topologies" / "trade.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("t007: {", "t007: {policies: {ttl: 20d}, "), encoding="utf-8")
    assert crowd.apply().summary.startswith("Plan: 0 to create, 1 to update, 0 to delete")
    kodoctls_own = (f"/{crowd.tenant}/kodoctl", f"/{crowd.namespace}/properties")
    written = [(one.method, one.path) for one in counted.writes]
    theirs = [path for _, path in written if not path.partition("?")[0].endswith(kodoctls_own)]
    assert len(theirs) == 1, written
    assert f"/{crowd.namespace}/t007/messageTTL?" in theirs[0]
    assert crowd.policy("t007", "messageTTL") == 20 * 86_400
    assert len(counted.requests) <= BUDGET * TOPICS + 40, (
        counted.counted()
    )  # under the lease only that topic is read again

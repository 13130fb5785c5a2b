"""What the console asks of the broker: counted by a proxy that stands between, on several topologies at once."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing

import pytest

from tests.broker.test_console import console
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.services.servers import Proxy

pytestmark = pytest.mark.broker
TOPOLOGIES, GROUNDS = 5, 4
SUBSCRIPTION = "{in_place: [], retrying: {delays: [1m], attempts: 3}, limits: [{kind: rate, limit: 5/s}]}"
GROUND = f"{{partitions: 2, subscriptions: {{work: {SUBSCRIPTION}}}}}"


def test_a_screen_costs_one_request_a_topic_and_windows_share_it(workspace: Workspace) -> None:
    for number in range(TOPOLOGIES):
        grounds = "\n".join(f"t{ground}: {GROUND}" for ground in range(GROUNDS))
        workspace.topology(grounds, name=f"c{number}", namespace=f"ns{number}")
    workspace.apply()
    for number in range(30):
        workspace.publish(f"persistent://{workspace.tenant}/ns0/t{number % 3}-work-RETRYING", 1)
    with closing(Proxy(workspace.broker.admin_url)) as proxy:
        workspace.options[:] = ["--admin-url", proxy.url, "--broker-url", workspace.broker.broker_url]
        with console(workspace) as ui:
            ui.get("/")
            topics = Counter(filter(None, (_topic(one.path) for one in proxy.requests)))
            every = [one for one in proxy.requests if re.search(r"/ns\d/", one.path)]
            assert len(every) <= 2 * len(topics), "marks of producers, journals and causes of letters included"
            assert len(topics) == TOPOLOGIES * GROUNDS * 5
            assert max(topics.values()) == 1, topics.most_common(3)
            eventually(lambda: sum("stats" in one.path and "/kodoctl/" in one.path for one in proxy.requests))
            proxy.requests.clear()
            for _ in range(20):
                ui.get("/lanes")
            asked = sum(1 for one in proxy.requests if _topic(one.path))
            assert asked <= 2 * len(topics), "one reading in four seconds, whoever asks"


def _topic(path: str) -> str:
    """The topic of a request for its figures; "" for another request, such as for the journal."""
    found = re.search(r"/(ns\d/[^/]+)/partitioned-stats", path)
    return found[1] if found else ""

"""In which order writes reach the broker, seen by a proxy between: a namespace's own never overlap, grants are never taken first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.brokers.workspace import Workspace
from tests.services.servers import Answer, Proxy, Request

pytestmark = pytest.mark.broker

SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"
TOPICS = "\n".join(f"t{number}: {SMALL}" for number in range(8))
POLICIES = "namespace_policies: {{ttl: {0}d, max_producers: {0}, max_consumers: {0}, retention: {{time: {0}d, size: {0}GiB}}}}\n"


class Overlaps(Proxy):
    """Holds every write for a moment, and keeps how many of a kind were on their way at once: of the namespace's own policies and
    grants, which the broker keeps in one record, and of topics.
    """

    def __init__(self, admin_url: str) -> None:
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._guard = threading.Lock()
        super().__init__(admin_url)

    def _forward(self, request: Request) -> Answer:
        if not request.is_write:
            return super()._forward(request)
        kind = "namespace" if "/permissions/" in request.path or "/v2/namespaces/" in request.path else "topic"
        with self._guard:
            self._now[kind] += 1
            self.most[kind] = max(self.most[kind], self._now[kind])
        try:
            time.sleep(0.02)
            return super()._forward(request)
        finally:
            with self._guard:
                self._now[kind] -= 1


@pytest.fixture
def overlaps(workspace: Workspace) -> Iterator[Overlaps]:
    found = Overlaps(workspace.broker.admin_url)
    workspace.options = ["--admin-url", found.url, "--broker-url", workspace.broker.broker_url]
    yield found
    found.close()


def permissions(proxy: Proxy) -> list[tuple[str, str]]:
    """Method and role of every write of a grant, in order."""
    return [(one.method, one.path.rpartition("/")[2]) for one in proxy.writes if "/permissions/" in one.path]


def test_a_namespace_is_written_by_one_at_a_time_and_no_grant_is_taken_before_it_is_given_anew(
    workspace: Workspace, overlaps: Overlaps
) -> None:
    def grants(ben: str, ann: str) -> str:
        roles = "".join(f", r{number}: [consume]" for number in range(6))
        return f"namespace_grants: {{ben: {ben}, ann: {ann}{roles}}}\n"

    workspace.topology(TOPICS, POLICIES.format(3) + grants("[consume]", "[consume, produce]"))
    workspace.apply()
    assert overlaps.most["namespace"] == 1
    assert overlaps.most["topic"] > 1, "the proxy does see writes that overlap"

    overlaps.requests.clear()
    workspace.topology(f"{TOPICS}\nt8: {SMALL}", POLICIES.format(5) + grants("[consume, produce]", "[consume]"))
    workspace.apply()
    assert overlaps.most["namespace"] == 1
    assert sorted(permissions(overlaps)) == [("POST", "ann"), ("POST", "ben")]
    held = workspace.dump()["auth_policies"]["namespace_auth"]
    assert (sorted(held["ben"]), held["ann"]) == (["consume", "produce"], ["consume"])


def test_what_the_control_namespace_keeps_is_kept_for_good(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    kept = workspace.dump("kodoctl")
    assert kept["retention_policies"] == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert kept["message_ttl_in_seconds"] == 0
    assert kept["inactive_topic_policies"]["deleteWhileInactive"] is False

"""The pause of a lane while its messages are moved: given, confirmed by who is connected, ended or kept."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kodoctl.errors import LockedError, RefusedError
from kodoctl.protocol.overrides import Override, OverrideKind, parse, printed
from kodoctl.pulsar import override_store
from kodoctl.pulsar.admin import Reply
from kodoctl.pulsar.override_store import OverrideStore
from kodoctl.recall.lane_pause import LASTS_MS, LanePause, PauseClock
from kodoctl.recall.sends_in_flight import SendReport
from tests.unit.recall.making import NOW
from tests.unit.recall.test_plan_file import PLAN

WAITING = replace(
    PLAN, lane="L1/retrying", holder="billing", dead_topic="persistent://kodo/trade/orders-billing-RETRYING"
)


class Cluster:
    """An admin API with the properties of a subscription, and consumers that leave one after the other as time passes."""

    def __init__(self, *consumers: str) -> None:
        self.properties: dict[str, str] = {"kodoctl": "trade"}
        self.consumers, self.now = list(consumers), NOW

    def call(self, method: str, path: str, body: Any = None, **_: Any) -> Reply:
        if path.endswith("/partitioned-stats"):
            consumers = [{"consumerName": name, "address": "/10.0.0.7:1"} if name else {} for name in self.consumers]
            part = {"subscriptions": {"billing": {"consumers": consumers}}}
            stats = {"metadata": {"partitions": 1}, "partitions": {f"{WAITING.dead_topic}-partition-0": part}}
            return cast("Reply", SimpleNamespace(missing=False, ok=True, status=200, data=stats))
        if method == "PUT":
            self.properties = dict(body)
        return cast("Reply", SimpleNamespace(missing=False, ok=True, status=200, data=dict(self.properties)))

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1000)
        self.consumers = self.consumers[1:]

    @property
    def orders(self) -> tuple[Override, ...]:
        return parse(self.properties["kodo-steer"]) if "kodo-steer" in self.properties else ()

    def order(self, until: int, why: str = "") -> Override:
        order = Override(OverrideKind.PAUSE, NOW - 1, until, "me@here", why, lane="L1/retrying")
        self.properties["kodo-steer"] = printed([order])
        return order


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(override_store.time, "sleep", lambda _: None)


def pause(cluster: Any) -> LanePause:
    store = OverrideStore(cluster, "persistent://kodo/trade/orders", "billing", Random(1))
    return LanePause(WAITING, cluster, store, "me", PauseClock(lambda: cluster.now, cluster.sleep))


def test_the_lane_is_paused_until_the_attempt_is_complete() -> None:
    cluster = Cluster("w1", "w2")
    made = pause(cluster)
    made.begin(10_000)
    (order,) = cluster.orders
    assert (order.what, order.lane, order.until - order.since) == (OverrideKind.PAUSE, "L1/retrying", LASTS_MS)
    assert WAITING.run in order.why
    assert cluster.consumers == []
    assert made.end(SendReport(sent=3, refused=["too large"])) == ""
    assert cluster.orders == ()
    assert cluster.properties == {"kodoctl": "trade"}


def test_who_still_reads_is_named_and_the_pause_is_taken_back() -> None:
    cluster = Cluster(*(f"w{number}" for number in range(6)), "", "")
    with pytest.raises(RefusedError) as caught:
        pause(cluster).begin(0)
    detail = caught.value.diagnostics[0].detail
    assert "w0 at /10.0.0.7:1" in detail
    assert "a consumer at an unknown address" in detail
    assert "and 2 more" in detail
    assert "Nothing was sent" in detail
    assert cluster.orders == ()


@pytest.mark.parametrize("report", [{"interrupted": True}, {"in_doubt": 1}, {"unacknowledged": 1}, {"unclear": ["x"]}])
def test_the_pause_stays_while_messages_may_be_stored_twice(report: dict[str, Any]) -> None:
    cluster = Cluster()
    made = pause(cluster)
    made.begin(0)
    assert "L1/retrying stays paused until " in made.end(SendReport(**report))
    assert len(cluster.orders) == 1
    cluster.consumers = ["w1"]
    with pytest.raises(RefusedError):
        pause(cluster).begin(0)  # the next attempt at the same plan
    assert len(cluster.orders) == 1, "its own order, which an earlier attempt needs"
    cluster.consumers = []
    again = pause(cluster)
    again.begin(0)
    assert again.end(SendReport()) == ""
    assert cluster.orders == ()


def test_the_pause_of_a_person_is_neither_changed_nor_ended() -> None:
    cluster = Cluster()
    mine = cluster.order(NOW + 3_600_000, "their bank is down")
    made = pause(cluster)
    made.begin(0)
    assert made.end(SendReport()) == ""
    assert cluster.orders == (mine,)
    cluster.order(NOW + 60_000)
    with pytest.raises(RefusedError, match="a pause that ends too soon"):
        pause(cluster).begin(0)


def test_what_another_run_paused_is_for_that_run_to_end() -> None:
    cluster = Cluster()
    other = cluster.order(NOW + 3_600_000, "kodoctl waiting apply, run 20260101-000000-aaaaaaaa")
    with pytest.raises(LockedError) as caught:
        pause(cluster).begin(0)
    assert "run 20260101-000000-aaaaaaaa of me@here" in caught.value.diagnostics[0].detail
    assert cluster.orders == (other,)


def test_an_attempt_that_could_not_begin_ends_its_own_new_order_and_no_older_one() -> None:
    cluster = Cluster()
    made = pause(cluster)
    made.begin(0)
    again = pause(cluster)
    again.begin(0)
    assert "stays paused" in again.give_up()
    assert made.give_up() == ""
    assert cluster.orders == ()


def test_an_order_that_cannot_be_read_does_not_hide_what_went_wrong() -> None:
    cluster = Cluster()
    made = pause(cluster)
    made.begin(0)
    cluster.properties["kodo-steer"] = "garbage"
    assert made.keep().startswith("L1/retrying stays paused: run")


def test_a_pause_that_somebody_ended_is_not_said_to_stand() -> None:
    cluster = Cluster()
    assert pause(cluster).keep().startswith("L1/retrying stays paused: run")

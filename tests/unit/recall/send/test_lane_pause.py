"""The pause of a lane while its messages are moved: given, confirmed by who is connected, ended or kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kodoctl.documents.recall_document import SendReport
from kodoctl.errors import ClusterError, LockedError, RefusedError, error
from kodoctl.protocol.overrides import LEAVE, MAX_SPAN, Override, OverrideKind, overrides_text, parse
from kodoctl.pulsar.admin.admin import Reply
from kodoctl.pulsar.control.override_store import OverrideStore
from kodoctl.recall.send.lane_pause import (
    LASTS_MS,
    REPLAY_APPLY,
    REPLAY_UNDO,
    WAITING_APPLY,
    LanePause,
    PauseClock,
    PauseWords,
)
from tests.unit.recall.letters import NOW
from tests.unit.recall.plan.test_plan_file import PLAN

WAITING = replace(
    PLAN, lane="L1/retrying", holder="billing", source_topic="persistent://kodo/trade/orders-billing-RETRYING"
)


class Cluster:
    """An admin API with the properties of a subscription, and consumers that leave one after the other as time passes."""

    def __init__(self, *consumers: str) -> None:
        self.properties: dict[str, str] = {"kodoctl": "trade"}
        self.consumers, self.now = list(consumers), NOW
        self.told: list[str] = []
        self.calls = 0
        self.before: dict[int, Callable[[], object]] = {}  # what others do before a call, by its number

    def call(self, method: str, path: str, body: Any = None, **_: Any) -> Reply:
        self.calls += 1
        if self.calls in self.before:
            self.before[self.calls]()
        if path.endswith("/partitioned-stats"):
            consumers = [{"consumerName": name, "address": "/10.0.0.7:1"} if name else {} for name in self.consumers]
            part = {"subscriptions": {"billing": {"consumers": consumers}}}
            stats = {"metadata": {"partitions": 1}, "partitions": {f"{WAITING.source_topic}-partition-0": part}}
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

    def order(self, until: int, why: str = "", to: str = "") -> Override:
        order = Override(OverrideKind.PAUSE, NOW - 1, until, "me@here", why, lane="L1/retrying", to=to)
        self.properties["kodo-steer"] = overrides_text([order])
        return order


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.pulsar.control.override_store.time.sleep", lambda _: None)


def pause(cluster: Any, words: PauseWords = WAITING_APPLY) -> LanePause:
    store = OverrideStore(cluster, "persistent://kodo/trade/orders", "billing", Random(1))
    clock = PauseClock(lambda: cluster.now, cluster.sleep)
    return LanePause(WAITING, cluster, store, "me", clock, cluster.told.append, words)


def test_a_replay_has_workers_leave_its_lane_and_takes_no_pause_of_a_person_for_its_own() -> None:
    cluster = Cluster("w1")
    made = pause(cluster, REPLAY_APPLY)
    made.begin(10_000)
    (order,) = cluster.orders
    assert (order.to, order.why) == (LEAVE, f"kodoctl replay apply, run {WAITING.run}")
    assert "workers would handle messages again that the replay leaves out" in made.keep()
    with pytest.raises(LockedError, match="run its `replay apply` again"):
        LanePause(
            replace(WAITING, run="another-run"),
            cast("Any", cluster),
            made._store,
            "me",
            made._clock,
            cluster.told.append,
        ).begin(0)
    assert made.finish() == ""
    mine = cluster.order(NOW + 3_600_000, "their bank is down")
    with pytest.raises(RefusedError, match="resume it first"):
        made.begin(0)
    assert cluster.orders == (mine,)


def test_the_lane_is_paused_until_the_attempt_is_complete() -> None:
    cluster = Cluster("w1", "w2")
    made = pause(cluster)
    made.begin(10_000, LASTS_MS - 10_000 - 600_000)
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
    assert "Nothing was changed" in detail
    assert (cluster.orders, cluster.told) == ((), [])


@pytest.mark.parametrize("report", [{"interrupted": True}, {"in_doubt": 1}, {"unacknowledged": 1}, {"unclear": ["x"]}])
def test_the_pause_stays_while_messages_may_be_stored_twice(report: dict[str, Any]) -> None:
    cluster = Cluster()
    made = pause(cluster)
    made.begin(0)
    assert "L1/retrying stays paused until " in made.end(SendReport(**report))
    assert len(cluster.orders) == 1
    cluster.consumers = ["w1"]
    with pytest.raises(RefusedError, match="This attempt changed nothing"):
        pause(cluster).begin(0)  # the next attempt at the same plan
    assert "L1/retrying stays paused until " in cluster.told.pop()
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
    assert made.give_up() == ""
    assert made.end(SendReport(interrupted=True)).startswith(
        "L1/retrying is paused until 2027-01-15 09:00 UTC by me@here: run"
    )
    for until, wait, sending in ((600_000, 1, 0), (600_000, 0, 1), (599_999, 0, 0)):
        mine = cluster.order(NOW + until)
        with pytest.raises(RefusedError, match="a pause that ends too soon"):
            pause(cluster).begin(wait, sending)
        assert cluster.orders == (mine,)
    cluster.order(NOW + 600_000)
    pause(cluster).begin(0, 0)
    assert cluster.told == []


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
    made = pause(cluster)
    made.begin(0)
    cluster.properties = {}
    assert made.keep().startswith("L1/retrying is not paused: workers may handle messages a second time")


def test_an_order_lasts_as_long_as_the_attempt_may_take() -> None:
    cluster = Cluster()
    pause(cluster).begin(1_000, 3 * LASTS_MS)
    assert cluster.orders[0].until == NOW + 1_000 + 3 * LASTS_MS + 600_000
    cluster.now += 1_000
    pause(cluster).begin(0, 4 * LASTS_MS)
    assert cluster.orders[0].until == NOW + 1_000 + 4 * LASTS_MS + 600_000, "an earlier attempt's is made longer"
    pause(cluster).begin(0)
    assert cluster.orders[0].until == NOW + 1_000 + 4 * LASTS_MS + 600_000, "and never shorter"
    slow = Cluster()
    pause(slow).begin(0, 99 * LASTS_MS)
    assert slow.orders[0].until == NOW + MAX_SPAN, "longer ones cannot be read"


def test_another_run_that_paused_the_lane_at_the_same_time_keeps_its_order() -> None:
    cluster = Cluster()
    others: list[Override] = []
    # Calls: the first look; two reads before the write, the write, and the read that follows.
    cluster.before[5] = lambda: others.append(cluster.order(NOW + LASTS_MS, "kodoctl waiting apply, run r9"))
    made = pause(cluster)
    with pytest.raises(LockedError):
        made.begin(0)
    assert cluster.orders == tuple(others)
    assert (made.give_up(), cluster.told) == ("", [])


def test_of_two_attempts_at_a_plan_at_the_same_time_none_ends_the_pause_of_the_other() -> None:
    cluster = Cluster()
    first, second = pause(cluster), pause(cluster)
    first.begin(0)
    cluster.now += 1
    second.begin(0)
    assert "stays paused" in first.give_up(), "the second has it as well"
    assert "stays paused" in second.give_up(), "which came second"
    assert len(cluster.orders) == 1
    crossed = Cluster()
    late = pause(crossed)
    other = crossed.order(NOW + LASTS_MS, cluster.orders[0].why)
    crossed.properties = {}
    crossed.before[5] = lambda: crossed.properties.update(
        {"kodo-steer": overrides_text([replace(other, since=NOW + 1)])}
    )
    late.begin(0)
    assert (len(crossed.orders), crossed.orders[0].since) == (1, NOW + 1)
    assert "stays paused" in late.give_up(), "its order was written over"


def away() -> None:
    raise ClusterError(error("K500", "no answer"))


def test_a_pause_that_was_stored_without_an_answer_is_taken_back_or_said_to_stand() -> None:
    cluster = Cluster()
    cluster.before[5] = away  # the read after the write
    with pytest.raises(ClusterError):
        pause(cluster).begin(0)
    assert (cluster.orders, cluster.told) == ((), [])
    cluster = Cluster()
    cluster.before = dict.fromkeys(range(5, 20), away)
    with pytest.raises(ClusterError, match="no answer"):
        pause(cluster).begin(0)
    assert len(cluster.orders) == 1
    assert [text[:27] for text in cluster.told] == ["L1/retrying stays paused: r"]


def test_an_order_that_cannot_be_taken_back_does_not_hide_who_still_reads() -> None:
    cluster = Cluster("w1")
    cluster.before = dict.fromkeys(range(7, 20), away)  # 6: who reads
    with pytest.raises(RefusedError, match="w1 at"):
        pause(cluster).begin(0)
    assert cluster.told[0].startswith("L1/retrying stays paused: run")


def test_an_attempt_knows_since_when_an_earlier_one_of_its_run_has_paused_the_lane() -> None:
    cluster = Cluster()
    first, undo = pause(cluster, REPLAY_APPLY), pause(cluster, REPLAY_UNDO)
    first.begin(0)
    assert (first.lane, first.since, first.stood) == ("L1/retrying", NOW, None)
    cluster.now += 1
    undo.begin(0)
    assert (undo.since, undo.stood, undo.began) == (NOW + 1, NOW, NOW)
    assert cluster.orders[0].why == f"kodoctl replay undo, run {WAITING.run}", "which is told what to run again"
    third = pause(cluster, REPLAY_APPLY)
    cluster.now += 1
    third.begin(0)
    assert (third.since, third.stood, third.began) == (NOW + 2, NOW, NOW), (
        "it is one pause, whose begin the journal has"
    )
    again = pause(cluster, REPLAY_APPLY)
    cluster.before[cluster.calls + 2] = lambda: cluster.properties.pop("kodo-steer")  # resumed meanwhile
    cluster.now += 1
    again.begin(0)
    assert (again.stood, again.began) == (None, NOW + 3)


def test_a_pause_of_a_person_has_one_begin_for_all_attempts_under_it() -> None:
    cluster = Cluster()
    cluster.order(NOW + 3_600_000 * 24 * 2, "look at it", to=LEAVE)
    for _ in range(2):
        cluster.now += 1
        attempt = pause(cluster, REPLAY_APPLY)
        attempt.begin(0)
        assert (attempt.since, attempt.began) == (cluster.now, cluster.orders[0].since)


def test_a_replay_that_finds_the_pause_of_another_run_says_that_no_cursor_moved() -> None:
    cluster = Cluster()
    order = cluster.order(NOW + 3_600_000, "kodoctl replay undo, run r9")
    with pytest.raises(LockedError, match="no cursor was moved") as caught:
        pause(cluster, REPLAY_APPLY).begin(0)
    assert "run its `replay undo` again" in str(caught.value)
    cluster.properties["kodo-steer"] = overrides_text([replace(order, why="", to=LEAVE, until=NOW + 1)])
    with pytest.raises(RefusedError, match=r"ends too soon[^!]*no cursor was moved"):
        pause(cluster, REPLAY_APPLY).begin(0)


def test_nothing_is_said_of_a_pause_that_was_never_given() -> None:
    cluster = Cluster()
    cluster.before[1] = away
    with pytest.raises(ClusterError):
        pause(cluster).begin(0)
    assert (cluster.told, cluster.orders) == ([], ())


def test_the_order_of_a_killed_attempt_ends_and_no_order_of_others() -> None:
    cluster = Cluster()
    made = pause(cluster)
    assert made.end_left() == ""
    mine = cluster.order(NOW + 3_600_000, "their bank is down")
    assert made.end_left() == ""
    assert cluster.orders == (mine,)
    del cluster.properties["kodo-steer"]
    pause(cluster).begin(0)
    assert pause(cluster).end_left() == ""
    assert cluster.orders == ()


@pytest.mark.parametrize(("call", "stays"), [(1, False), (2, True)])
def test_an_order_that_cannot_be_ended_is_named_if_there_is_one(call: int, *, stays: bool) -> None:
    cluster = Cluster()
    pause(cluster).begin(0)
    cluster.before = {cluster.calls + call: away}
    assert ("stays paused until" in pause(cluster).end_left()) is stays
    assert len(cluster.orders) == 1

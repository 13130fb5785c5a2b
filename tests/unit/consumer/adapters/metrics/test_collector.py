"""Metrics and health over real HTTP, of workers with threads on a broker in memory."""

from __future__ import annotations

import json
import re
import time
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.adapters.metrics.collector import EXPORTED
from kodo_consumer.adapters.metrics.http_server import HttpEndpoint
from kodo_consumer.adapters.metrics.metric import BASE
from kodo_consumer.adapters.metrics.worker_view import WorkerView
from kodo_consumer.core import COMPILED
from kodo_consumer.core.upkeep.backlog_trend import BacklogAdvice, BacklogTrend
from kodo_consumer.core.upkeep.tenant_backlog import TenantCause
from kodo_consumer.core.values.broker import BorderStatus, LaneStats
from kodo_consumer.core.values.lane_selection import LaneSelection, select_lanes
from kodo_consumer.testing.memory_topics import MemoryLane
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from kodoctl.errors import UsageError
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import L1, policy
from tests.unit.consumer.watching import Watched, get, series, watched

ROOT = Path(__file__).parents[5]


def test_what_happened_is_counted_by_lane_rule_and_reason() -> None:
    with watched(policy(in_place=(), fair_by="uid")) as place:
        for number in range(50):
            place.send(uid=f"u{number % 2}")
        place.send(b"fail", uid="u0")
        ready = {"level": "L1", "state": "ready"}
        eventually(lambda: place.value("kodo_consumer_done_total", **ready) == 50)
        eventually(lambda: place.value("kodo_consumer_rerouted_total", rule="retrying", **ready) == 1)
        assert place.value("kodo_consumer_failed_total", reason="ValueError", **ready) == 1
        assert place.value("kodo_consumer_started_total", **ready) == 51
        assert place.value("kodo_consumer_received_total") == 51
        eventually(lambda: place.value("kodo_consumer_held_messages") == 0)
        for histogram in ("receive_to_done", "origin_to_done", "wait", "handler"):
            count = place.value(f"kodo_consumer_{histogram}_seconds_count", state="ready")
            assert count in (50, 51), histogram
        assert place.value("kodo_consumer_attempts_bucket", state="ready", le="1.0") == 50
        eventually(lambda: place.value("kodo_consumer_tenant_handled_total") == 51)
        assert place.value("kodo_consumer_worst_tenant_share") == 1


def test_every_metric_of_the_list_is_exported_and_no_other_with_just_the_labels_it_names() -> None:
    with watched(policy(fair_by="uid", in_place=())) as place:
        place.send(b"fail", uid="u0")
        place.send(uid="u0")
        eventually(lambda: place.value("kodo_consumer_failed_total"))
        eventually(lambda: place.value("kodo_consumer_lag_entries") is not None or place.service.stats)
        families = {one.name: one for one in text_string_to_metric_families(place.get("/metrics")[1])}
        ours = {name for name in families if name.startswith("kodo_consumer_")}
        assert ours == {one.name.removesuffix("_total") for one in EXPORTED}
        for one in EXPORTED:
            family = families[one.name.removesuffix("_total")]
            assert family.type == one.kind
            assert re.fullmatch(r"kodo_consumer_[a-z_]+", one.name)
            assert one.name.endswith("_total") == (one.kind == "counter")
            assert one.help.endswith(".")
            for sample in family.samples:
                assert sample.labels.keys() - {"le"} == {*BASE, *one.labels}
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert all(f"`{one.name}`" in page for one in EXPORTED)


def test_long_names_that_look_alike_as_labels_have_one_series_with_their_sum() -> None:
    with watched(policy(fair_by="uid", in_place=())) as place:
        for number in range(4):
            place.send(uid=f"{'x' * 120}{number % 2}")
        eventually(lambda: place.value("kodo_consumer_tenant_handled_total") == 4)
        found = list(series(place.get("/metrics")[1], "kodo_consumer_tenant_handled_total", {}))
        assert {labels["tenant"]: value for labels, value in found} == {f"{'x' * 99}…": 4, "other": 0}
        assert len(found) == 2


def test_what_the_broker_says_is_shown_as_long_as_it_can_be_asked() -> None:
    of = policy(levels=(L1,), states=())
    with watched(of) as place:
        assert place.service.stats is not None
        place.service.stats.end()
        place.service.stats.last[0] = LaneStats(frozenset("ab"), frozenset(), 7, 2, 1, 3.0, 1_000)
        lane = {"level": "L1", "state": "ready"}
        assert place.value("kodo_consumer_backlog_entries", **lane) == 7
        assert place.value("kodo_consumer_lag_entries") == 5
        assert place.value("kodo_consumer_workers") == 2
        assert place.value("kodo_consumer_oldest_seconds", **lane) > 1e9  # type: ignore[operator]
        place.service.stats.last.clear()
        assert place.value("kodo_consumer_backlog_entries") is None
        assert place.value("kodo_consumer_lag_entries") is None


def test_the_tenant_that_causes_a_backlog_is_shown_by_its_label_or_as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    found = BacklogAdvice(9_000, 5.0, None, "", "all about it", TenantCause("u1", 0.9, 0.2))
    monkeypatch.setattr(BacklogTrend, "advice", found)
    with watched(policy(fair_by="uid")) as place:
        assert place.value("kodo_consumer_backlog_tenant_share", tenant="other") == 0.9
        place.send(uid="u1")
        eventually(lambda: place.value("kodo_consumer_backlog_tenant_share", tenant="u1") == 0.9)
        assert place.value("kodo_consumer_backlog_tenant_share", tenant="other") is None
        assert json.loads(place.get("/readyz")[1])["workers"][0]["backlog"] == "all about it"


@pytest.mark.parametrize(
    ("cause", "growth", "shown"),
    [("senders", 5.0, (1, 0)), ("handlers", 5.0, (0, 1)), ("both", 5.0, (1, 1)), ("", 5.0, (0, 0)), ("", -5.0, (None,) * 2)],
)  # fmt: skip
def test_why_a_backlog_grows_is_shown(
    monkeypatch: pytest.MonkeyPatch, cause: str, growth: float, shown: tuple[int | None, int | None]
) -> None:
    monkeypatch.setattr(BacklogTrend, "advice", BacklogAdvice(9_000, growth, None, cause, "all about it"))
    with watched(policy(levels=(L1,), states=())) as place:
        found = [place.value("kodo_consumer_backlog_cause", cause=one) for one in ("senders", "handlers")]
    assert found == list(shown)


@pytest.mark.parametrize(
    ("kind", "names", "idle"), [("failover", "abc", 1), ("failover", "ab", 0), ("shared", "abc", None)]
)
def test_workers_without_a_partition_are_counted_where_each_goes_to_one(
    kind: Any, names: str, idle: int | None
) -> None:
    of = policy(levels=(L1,), states=())
    of = replace(of, subscription_type=kind, lanes=tuple(replace(lane, partitions=2) for lane in of.lanes))
    with watched(of) as place:
        assert place.service.stats is not None
        place.service.stats.end()
        place.service.stats.last[0] = LaneStats(frozenset(names))
        assert place.value("kodo_consumer_idle_workers") == idle
        assert json.loads(place.get("/readyz")[1])["workers"][0]["idle_workers"] == idle


def test_a_worker_with_lanes_of_its_own_shows_which_and_who_reads_the_others() -> None:
    of = select_lanes(policy(levels=(L1,)), LaneSelection.parse("ready,retrying"))
    with watched(of) as place:
        stats = place.service.stats
        assert stats is not None
        eventually(lambda: place.health("/readyz") == (200, [[]]))
        assert json.loads(place.get("/readyz")[1])["workers"][0]["lanes"] == ["L1/ready", "L1/retrying"]
        assert place.value("kodo_consumer_lane_ready", level="L1", state="ready") == 1
        assert place.value("kodo_consumer_lane_ready", state="pending") is None
        for _ in range(6):
            stats.read_due_lanes()
        stats.end()  # the worker's own polls change nothing any more
        stats.last[0] = LaneStats(frozenset({"w0"}), backlog=3)
        stats.last[1] = LaneStats(frozenset({"w0"}), backlog=4)
        stats.last[2] = LaneStats(frozenset({"other"}), backlog=50)
        stats.last[3] = LaneStats(backlog=7)
        workers = {
            state: place.value("kodo_consumer_lane_workers", state=state) for state in ("ready", "pending", "blocking")
        }
        assert workers == {"ready": 1, "pending": 1, "blocking": 0}
        assert place.value("kodo_consumer_backlog_entries", state="blocking") == 7
        assert place.value("kodo_consumer_lag_entries") == 7, (
            "what this worker's like could take: autoscaling goes by it"
        )
        stats.last[3] = LaneStats(whole=False)
        assert place.value("kodo_consumer_lane_workers", state="blocking") is None, "a part says nothing of the lane"
        assert place.service.still is not None
        place.service.still.lanes.add(3)
        assert place.health("/readyz") == (200, [[]]), "it is ready when its own lanes are"
        assert place.value("kodo_consumer_standing_still", state="blocking") == 1
        place.service.still.lanes.add(1)
        assert place.health("/readyz")[0] == 503
        assert place.value("kodo_consumer_lane_ready") == 0


def test_what_native_code_is_in_use_is_a_figure_each_with_its_reason() -> None:
    (native,) = [one for one in EXPORTED if one.name == "kodo_consumer_native"]
    with watched(policy(levels=(L1,), states=())) as place:
        core = ("core", COMPILED.detail), float(COMPILED.compiled)
        assert list(native.read(place.sight)) == [core], "of the border nobody said"
        for status in (BorderStatus(native=True, detail="kodo-fast 1"), BorderStatus(native=False, detail="not there")):
            seen = WorkerView(place.worker, place.service, border=status, measured=False)
            assert list(native.read(seen)) == [(("border", status.detail), float(status.native)), core]


def test_ready_means_connected_and_neither_draining_nor_blocked() -> None:
    place = Watched(policy())
    try:
        assert place.health("/readyz") == (503, [["connecting"]])
        assert place.health("/healthz") == (200, [[]])
        place.service.start()
        eventually(lambda: place.health("/readyz") == (200, [[]]))
        assert place.value("kodo_consumer_ready") == 1
        place.worker.engine.lanes[0].blocked = True
        status, problems = place.health("/readyz")
        assert status == 503
        assert "too many messages are parked" in problems[0][0]
        place.worker.engine.lanes[0].blocked = False
        place.cluster.blocked = frozenset({"w0"})
        assert place.service.stats is not None
        place.service.stats.read_due_lanes()
        assert place.health("/readyz")[0] == 503
        assert place.value("kodo_consumer_held_back") >= 1  # type: ignore[operator]
        assert place.service.still is not None
        place.service.still.lanes.add(0)
        [late] = place.health("/readyz")[1]
        assert "persistent://p/n/t-L2-ready: messages are due and the broker delivers none" in late
        assert place.value("kodo_consumer_standing_still") == 1
        place.worker.drain()
        assert place.health("/readyz") == (503, [["draining"]])
        assert place.health("/healthz") == (200, [[]])
        place.service.stop()
    finally:
        place.window.close()
        place.pump.stop()


def test_alive_means_that_its_threads_run_and_the_watchdog_is_content() -> None:
    place = Watched(policy())
    place.service.start()
    try:
        place.worker.engine.flow.publishes.waiting += 1
        place.worker.watch()
        status, problems = place.health("/healthz")
        assert status == 503
        assert problems == [["watchdog: 0 publishing by record, 1 by structure"]]
        assert place.value("kodo_consumer_watchdog_findings") == 1
        place.worker.engine.flow.publishes.waiting -= 1
        place.worker.watch()
        assert place.health("/healthz")[0] == 200
        place.worker.fail(RuntimeError("bug"))
        assert "the worker broke: RuntimeError('bug')" in place.health("/healthz")[1][0]
    finally:
        with pytest.raises(RuntimeError):
            place.service.stop()
        place.window.close()
        place.pump.stop()


def test_a_thread_of_the_adapter_that_ends_makes_the_worker_neither_alive_nor_ready() -> None:
    place = Watched(policy())
    place.service.start()
    try:
        eventually(lambda: place.health("/readyz") == (200, [[]]))
        lane = place.worker.reader(0)
        assert isinstance(lane, MemoryLane)
        lane.sink.fail(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
        for path in ("/healthz", "/readyz"):
            status, problems = place.health(path)
            assert (status, problems[0][0].partition("(")[0]) == (503, "the worker broke: UnicodeDecodeError")
        assert place.service.wait(60), "whoever runs it ends it, to be started anew"
    finally:
        with pytest.raises(UnicodeDecodeError):
            place.service.stop()
        place.window.close()
        place.pump.stop()


def test_a_timekeeper_that_stays_away_is_no_life() -> None:
    place = Watched(policy())
    place.service.last_tick = time.monotonic() - 100
    assert place.health("/healthz") == (503, [["no timer was looked at for 100 s"]])
    place.window.close()
    place.pump.stop()


def test_consumers_of_one_process_share_a_server_and_the_last_one_closes_it() -> None:
    with watched(policy()) as first:
        port = int(first.window.address.rpartition(":")[2])
        with watched(policy()) as second:
            assert second.window.address == first.window.address  # both asked for any free port
            rows = dict.fromkeys(
                labels["worker"] for labels, _ in series(first.get("/metrics")[1], "kodo_consumer_slots", {})
            )
            assert list(rows) == ["0", "1"]
        assert len(list(series(first.get("/metrics")[1], "kodo_consumer_slots", {}))) == 1
        with pytest.raises(UsageError, match=f"(?s)K760.*{port}.*--port"):
            HttpEndpoint(first.sight, "127.0.0.1", port)
        address = first.window.address
    with pytest.raises(urllib.error.URLError):
        get(address, "/metrics")
    assert not any(name.startswith("kodo_") for name in REGISTRY._names_to_collectors)


def test_other_paths_and_methods_are_told_what_there_is() -> None:
    with watched(policy()) as place:
        assert place.get("/") == (404, "there is /metrics, /healthz, /readyz\n")
        assert get(place.window.address, "/metrics", "POST")[0] == 405
        assert "process_resident_memory_bytes" in place.get("/metrics")[1]


@pytest.mark.parametrize("host", ["no.such.host.invalid", "198.51.100.1"])
def test_an_address_that_is_not_ours_is_an_error_with_what_to_do(host: str) -> None:
    place = Watched(policy())
    try:
        with pytest.raises(UsageError, match="K760"):
            HttpEndpoint(place.sight, host, 0)
    finally:
        place.window.close()
        place.pump.stop()

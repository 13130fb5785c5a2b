"""The document of a report, from a few rows."""

from __future__ import annotations

import json

from kodo_pipeline.report.document import FAILURES, coarser, fitting

from tests.samples.reports import AT, MINUTE, busy, failure, made, quiet, tenant, wait


def test_lanes_are_told_in_the_order_messages_go_and_partitions_are_added():
    parts = [wait("L1", "pending", 5, 900, 100), wait("L1", "pending", 7, 400, 300, overdue=1)]
    rows = [wait(None, "dead", 1, 1, 1), wait("B1", "ready", 1, 1, 1), wait("L2", "ready", 1, 1, 1), *parts]
    found = made(busy(waiting=[*rows, wait("S1", "ready", 1, 1, 1), wait("L1", "ready", 1, 1, 1)]))["waiting"]
    assert [(one["level"], one["state"]) for one in found] == [
        ("S1", "ready"), ("L1", "ready"), ("L1", "pending"), ("L2", "ready"), ("B1", "ready"), (None, "dead"),
    ]  # fmt: skip
    assert found[2] == wait("L1", "pending", 12, 900, 300, overdue=1)


def test_only_lanes_where_something_was_done_have_latencies():
    assert [(one["level"], one["state"]) for one in made()["latency"]][-1] == ("L2", "ready")
    assert made()["latency"][0]["p99"] == 890


def test_the_commonest_failures_are_told_and_the_rest_is_added_up():
    rows = [failure("retrying", f"reason {number:02}", 100 - number) for number in range(FAILURES + 3)]
    found = made(busy(failures=rows, failed=5_000))["failures"]
    assert [one["reason"] for one in found[:2]] == ["reason 00", "reason 01"]
    assert len(found) == FAILURES + 1
    assert (found[-1]["rule"], sum(one["messages"] for one in found)) == ("(others)", 5_000)


def test_noisy_tenants_stand_beside_quiet_ones():
    found = made()
    (fairness,) = found["fairness"]
    counted = {**busy().counted, "tenants": [tenant("(none)", 0, 0, None)]}
    assert made(busy(counted=counted))["tenants"] == []
    assert (fairness["noisy"]["names"], round(fairness["noisy"]["share"], 2)) == (["mega"], 0.86)
    assert fairness["quiet"]["tenants"] == 6
    assert [(one["tenant"], one["noisy"]) for one in found["tenants"]][:2] == [("mega", True), ("anna", False)]
    quiet_only = [group for group in busy().groups if not group["noisy"]]
    assert made(busy(groups=quiet_only))["fairness"][0]["noisy"] is None
    alone = [{**quiet_only[0], "tenants": 1, "arrivals": 0}]
    assert made(busy(groups=alone))["fairness"] == []
    nothing = made(busy(groups=[{**quiet_only[0], "arrivals": 0}]))
    assert nothing["tenants"][0]["share"] == 0
    assert nothing["fairness"][0]["quiet"]["share"] == 0


def test_time_without_traffic_is_on_the_chart():
    points = [{"at": AT + n * MINUTE, "arrivals": 1, "done": 0, "failed": 0, "over_limit": 0} for n in (0, 3)]
    found = made(busy(points=points))["over_time"]["points"]
    assert [(one["at"] - AT, one["arrivals"]) for one in found] == [
        (0, 1), (MINUTE, 0), (2 * MINUTE, 0), (3 * MINUTE, 1),
    ]  # fmt: skip
    years = [{**one, "at": AT + n * 10**9 * MINUTE} for n, one in enumerate(points)]
    assert len(made(busy(points=years))["over_time"]["points"]) < 1_000
    assert made(quiet())["over_time"]["points"] == []


def test_windows_make_a_chart_that_can_be_read():
    assert [fitting(span) for span in (0, 60_000, 61_000, 3_600_000, 30 * 86_400_000)] == [
        1_000, 1_000, 5_000, MINUTE, 86_400_000,
    ]  # fmt: skip
    assert fitting(10**15) == 7 * 86_400_000
    assert [coarser(3_600_000, width) for width in (1_000, 7_000, 300_000)] == [60_000, 56_000, 300_000]


def test_the_document_is_json_and_names_its_run():
    found = made()
    assert json.loads(json.dumps(found)) == found
    assert (found["run"], found["topology"]) == ("20260102-040500-9f86d081", "trade")

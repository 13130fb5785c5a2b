"""`-v` on the real broker: the requests it tells are the requests that were sent, to the last write; and a reader of a pipe
who leaves early.
"""

from __future__ import annotations

import re

import pytest

from tests.brokers.workspace import Run, Workspace
from tests.services.servers import Proxy, Request

pytestmark = pytest.mark.broker

SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"
FIGURES = r"(\d+) reads, (\d+) writes, \d+\.\d\d s"
PLANNING = re.compile(rf"^Planning: {FIGURES}; topic policies read (in bulk|none|one by one)$", re.MULTILINE)
TOTAL = re.compile(rf"^In all: {FIGURES}$", re.MULTILINE)


def _told(pattern: re.Pattern[str], ran: Run) -> tuple[int, int]:
    found = pattern.search(ran.err)
    assert found is not None, ran.err
    return int(found[1]), int(found[2])


def _assert_tells_all(pattern: re.Pattern[str], ran: Run, proxy: Proxy) -> None:
    """What is told is what the proxy saw since the last look, and what was sent again to the brokers that it named, of which
    each may name another one.
    """
    for told, seen in zip(_told(pattern, ran), _sent(proxy), strict=True):
        sent, redirected = seen
        assert sent + redirected <= told <= sent + 2 * redirected


def _sent(proxy: Proxy) -> tuple[tuple[int, int], tuple[int, int]]:
    """Since the last look, reads and writes: how many, and how many of them were redirected (on a standalone broker none)."""

    def reads_and_writes(requests: list[Request]) -> tuple[int, int]:
        writes = sum(request.is_write for request in requests)
        return len(requests) - writes, writes

    (reads, writes), (reads_on, writes_on) = map(reads_and_writes, (proxy.requests, proxy.redirected))
    proxy.requests.clear()
    proxy.redirected.clear()
    return (reads, reads_on), (writes, writes_on)


def test_plan_tells_its_reads_and_time_on_standard_error(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(f"J: {SMALL}")
    ran = workspace.plan("-v")
    _assert_tells_all(PLANNING, ran, proxy)
    assert "reads" not in ran.out
    assert not TOTAL.search(ran.err)


def test_apply_tells_the_planning_first_and_everything_it_sent_last(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(f"J: {SMALL}")
    ran = workspace.apply("--verbose")
    reads, writes = _told(PLANNING, ran)
    assert reads > 0
    assert writes == 0
    _assert_tells_all(TOTAL, ran, proxy)
    assert _told(TOTAL, ran)[1] > 3  # namespace, topic and subscription at least
    assert ran.err.splitlines()[-1].startswith("In all: ")
    assert "Applied: 3 done" in ran.out


def test_apply_of_a_plan_file_tells_what_it_sent(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.plan("--out", "plan.json")
    _sent(proxy)
    ran = workspace.run("apply", "plan.json", "-v")
    assert not PLANNING.search(ran.err)
    _assert_tells_all(TOTAL, ran, proxy)


def test_an_apply_that_is_refused_at_the_last_moment_tells_it_too(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.plan("--out", "plan.json")
    workspace.apply()
    _sent(proxy)
    ran = workspace.run("apply", "plan.json", "-v", code=4)
    assert "the plan was applied already [K533]" in ran.err
    _assert_tells_all(TOTAL, ran, proxy)


def test_the_stream_for_machines_stays_json_with_verbose(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    ran = workspace.apply("-v", "--format", "json")
    assert ran.lines_json()[-1]["type"] == "report"
    assert TOTAL.search(ran.err)


def test_without_verbose_nothing_is_told(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    assert "reads" not in workspace.plan().text
    assert "reads" not in workspace.apply().text


@pytest.mark.parametrize("output", ["text", "json", "markdown"])
def test_a_reader_that_leaves_a_plan_early_sees_no_traceback(workspace: Workspace, output: str) -> None:
    topics = "\n".join(f"a-long-name-of-a-topic-{number}: {{levels: double}}" for number in range(400))
    workspace.topology(topics)
    process = workspace.process("plan", "--format", output, "--out", "plan.json", stdin=None)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert process.wait() == 0
    assert (workspace.folder / "plan.json").exists()


@pytest.mark.parametrize("whole", ["out", "out and err"])
def test_a_reader_that_leaves_an_apply_early_does_not_stop_it(workspace: Workspace, whole: str) -> None:
    """`kodoctl apply … | head -1` made a part of the objects, and answered 0."""
    workspace.topology("\n".join(f"t{number}: {SMALL}" for number in range(30)))
    options = ("--format", "json") if whole == "out" else ()
    process = workspace.process("apply", "--auto-approve", *options, stdin=None)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    if whole == "out":
        assert "not all was printed [K028]" in process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert len(workspace.topics()) == 30
    workspace.assert_settled()


def test_a_full_disk_below_standard_output_is_told_and_stops_no_apply(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = workspace.process("apply", "--auto-approve", stdin=None, stdout=full)
        assert process.stderr is not None
        told = process.stderr.read()
        process.stderr.close()
    assert (process.wait(), "No space left on device" in told) == (1, True)
    workspace.assert_settled()


def test_destroy_and_forget_tell_what_they_sent(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    _sent(proxy)
    ran = workspace.run("forget", f"subscription.{workspace.full('J')}/s", "--auto-approve", "-v")
    _assert_tells_all(TOTAL, ran, proxy)
    for looks in (2, 0):  # to plan and right before the delete; the second destroy finds nothing
        ran = workspace.run("destroy", "topologies", "--auto-approve", "-v", code=None)
        assert sum("/J/partitioned-stats" in request.path for request in proxy.requests) == looks
        _assert_tells_all(TOTAL, ran, proxy)

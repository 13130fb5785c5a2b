"""kill -9 of `waiting apply` at every named step, and the same command again: nothing is lost, nothing is there twice."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.broker.test_recall_kills import STEPS, attempt
from tests.broker.waiting_messages import TOPICS, Waits
from tests.brokers.workspace import Workspace

pytestmark = pytest.mark.broker
MESSAGES = 90
ONE_PARTITION = TOPICS.replace("orders:\n", "orders:\n  partitions: 1\n", 1)


@pytest.mark.full
def test_a_kill_at_any_step_of_a_release_and_again(workspace: Workspace) -> None:
    waits = Waits(workspace, ONE_PARTITION)
    expected: Counter[int] = Counter()
    for turn, step in enumerate(STEPS):
        numbers = range(turn * 1_000, turn * 1_000 + MESSAGES)
        waits.put("L1/retrying", numbers)
        expected.update(numbers)
        chosen = sum(n % 3 > 0 for n in numbers)
        plan = waits.plan("L1/retrying", f"payload.n % 3 > 0 and payload.n >= {numbers.start}")
        assert plan["summary"]["chosen"] == chosen, step
        assert attempt(workspace, step, "waiting") == -signal.SIGKILL, step
        (order,) = waits.orders()
        assert plan["run"] in order.why, "the lane stays paused until the next attempt"
        assert waits.apply()["complete"], step
        assert waits.left("L1/retrying") == expected, f"{step}: nothing lost, nothing twice"
        assert waits.orders() == ()
    released = Counter(
        one.properties["kodo-release"] for one in waits.stored("L1/retrying") if "kodo-release" in one.properties
    )
    assert (len(released), set(released.values())) == (len(STEPS) * 60, {1}), "each was sent once"


@pytest.mark.parametrize("action", [("move", "--to", "L2"), pytest.param(("discard",), marks=pytest.mark.full)])
def test_killed_at_one_step_after_the_other(workspace: Workspace, action: tuple[str, ...]) -> None:
    waits = Waits(workspace, ONE_PARTITION)
    waits.put("L1/blocking", range(MESSAGES))
    plan = waits.plan("L1/blocking", "payload.n < 80", "--action", *action)
    for step in ("sent.", "first sent.", "booked.", "acknowledged.", "stored"):
        attempt(workspace, step, "waiting", "--hash", plan["seal"][:12])
    assert waits.apply("--hash", plan["seal"][:12])["complete"]
    assert waits.left("L1/blocking") == Counter(range(80, MESSAGES))
    assert waits.left("L2/ready") == Counter(range(80) if action[0] == "move" else ())

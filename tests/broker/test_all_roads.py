"""All roads of a message on a real broker, against a ledger outside of the product: every state, every outcome that a handler
can ask for, every kind of limit, routes, transfers, weights, the breaker and adaptive concurrency, with workers killed.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.brokers.workspace import Workspace
from tests.roads.ledger import Run, at_once, judge, most_within, runs_of, starts
from tests.roads.plans import BLOCKING, KNEE, ORDERS, PENDING, PROBES, QUOTA, RATE, READY, TOGETHER, Lane, orders
from tests.roads.world import SLOTS, WORKERS, World, shares
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
KILLS: Final = (60, 300, 700)  # starts after which a worker is killed
STARTS: Final = 20_000
TOLERANCE: Final = 0.05  # of a lane's declared share; 0.0000 where no thread of the worker has to wait for the machine
LARGE: Final = 0.1  # share of a lane with so many starts that one stall changes little
START: Final = 0.01  # seconds of slot time that a start counts as
LATE: Final = 3.0  # seconds that a start may be noted after it was allowed, on a machine that others keep busy
ACKNOWLEDGEMENTS: Final = 1_000 + 64  # that the client and the worker gather before they are sent
PAUSE: Final = 0.5  # seconds: the breaker's first pause is 1.0, and its last start may be noted late
OPENED: Final = "bank is unavailable: no handler starts"
STRETCH: Final = 0.4  # seconds
FIRST: Final = 8  # handlers at once that adaptive concurrency begins with


@pytest.mark.timeout(300)
def test_every_message_ends_as_its_plan_says_and_every_law_holds_on_the_way(workspace: Workspace) -> None:
    world = World(workspace)
    counts = {lane: math.ceil(share * STARTS * 1.25) + 100 for lane, share in shares().items()}
    world.fill(counts)
    _post_reports(world)
    other = world.worker(
        "payments ledger pay", "quotes pricing quote", "scales weighing weigh", "reports monthly report"
    )
    workers = _kill_on_all_roads(world)
    _breaker(world)
    _adaptive(world)
    _weights(world, counts)
    _quota(world)
    world.end(other)
    eventually(lambda: not world.left("orders", "billing", ORDERS), within=120, every=0.5)
    eventually(lambda: not world.left("shipments", "delivery", [READY]), within=30)
    for worker in workers:
        world.end(worker)
    _all_roads_ended(world)


def _kill_on_all_roads(world: World) -> list[subprocess.Popen[bytes]]:
    """The worker that has just begun a run is killed, again and again. Those that live, two but for a moment."""
    world.send(orders())
    workers = [_worker(world) for _ in range(WORKERS)]
    for count in KILLS:
        eventually(partial(_begun, world, count), within=60, every=0.005)
        victim = eventually(partial(_busy, world, workers), within=60, every=0.005)
        world.kill(victim)
        workers = [*(worker for worker in workers if worker is not victim), _worker(world)]
    world.send(orders(late=True))
    return workers


def _begun(world: World, count: int) -> bool:
    return starts(world.home / "orders") >= count


def _busy(world: World, workers: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes] | None:
    """The worker of the last run; None where that was killed meanwhile."""
    last = runs_of(world.home / "orders")[-1].pid
    return next((worker for worker in workers if worker.pid == last), None)


def _all_roads_ended(world: World) -> None:
    """Each as its plan says, in its lanes, within the limits, and handled again only within bounds."""
    runs = runs_of(world.home / "orders")
    verdict = judge([*orders(), *orders(late=True)], runs, world.dead(), set(world.killed))
    print(f"{verdict.ends}, {len(runs)} runs, {verdict.again} again, {verdict.done_again} of what was done")  # noqa: T201
    assert verdict.wrong == []
    assert verdict.again <= len(KILLS) * (SLOTS + ACKNOWLEDGEMENTS)
    assert verdict.done_again <= len(KILLS) * (SLOTS + 1), "what the store knew as done has been handled again"
    _every_lane_was_used(world, runs)
    _limits_held(world, runs)


def _worker(world: World) -> subprocess.Popen[bytes]:
    store = f"sqlite:///{world.home}/store.db"
    return world.worker("orders billing bill", "shipments delivery ship", KODO_CONSUMER_STORE=store)


def _every_lane_was_used(world: World, runs: list[Run]) -> None:
    """By the ledger, and by the broker's count of what came into each topic."""
    used = {run.lane for run in runs if run.topic.startswith("orders")}
    assert used == set(ORDERS)
    for lane in ORDERS:
        assert world.count("orders", "billing", lane, "msgInCounter") > 0, lane


def _limits_held(world: World, runs: list[Run]) -> None:
    rated, narrow = ([run for run in runs if run.road == road] for road in ("rate", "concurrency"))
    moments = sorted(run.started for run in rated)
    for first, at in enumerate(moments):
        for last in range(first, len(moments)):
            assert last - first + 1 <= RATE + RATE * (moments[last] - at + LATE)
    assert any(run.lane == PENDING for run in rated), "what is over a rate waits in PENDING"
    most = max(running for _, running in at_once(narrow, world.killed))
    assert most <= TOGETHER < SLOTS, "two workers have a part each: whether both use theirs at one moment is chance"


def _post_reports(world: World) -> None:
    with world.producer("reports") as producer:
        for number in range(QUOTA + 6):
            producer.post(b"x", properties={"uid": "u", "n": str(number), "road": "report"})


def _quota(world: World) -> None:
    """What is over a quota waits in BLOCKING until the window has room."""
    eventually(lambda: not world.left("reports", "monthly", (READY, BLOCKING)), within=120, every=0.5)
    runs = runs_of(world.home / "reports")
    assert Counter(run.number for run in runs) == Counter(range(QUOTA + 6))
    assert Counter(run.lane for run in runs) == {READY: QUOTA, BLOCKING: 6}
    assert most_within(sorted(run.started for run in runs), 60 - LATE) <= QUOTA


def _breaker(world: World) -> None:
    """A bank that is down for all stops them; three probes between two pauses; then all are done, none lost."""
    path, count = world.home / "payments", 60
    with world.producer("payments") as producer:
        for number in range(count):
            producer.post(b"x", properties={"uid": f"u{number % 6}", "n": str(number), "road": "pay"})
    eventually(lambda: OPENED in world.log and len(_pauses(runs_of(path))) >= 3, within=60, every=0.25)
    (world.home / "bank-is-up").touch()
    eventually(lambda: not world.left("payments", "ledger", [READY]), within=60)
    runs = runs_of(path)
    pauses = _pauses(runs)
    tries = [run for run in runs if run.what == "down" and run.started > pauses[0]]
    between = [sum(begin < run.started <= end for run in tries) for begin, end in pairwise(pauses)]
    print(f"{len(runs)} payments tried, {between} between the breaker's pauses")  # noqa: T201
    assert all(found <= PROBES for found in between), "each would have been tried, and again after its own wait"
    assert Counter(run.number for run in runs if run.what == "done") == Counter(range(count))
    assert "handlers work again" in world.log


def _pauses(runs: list[Run]) -> list[float]:
    """The last start before each stretch of time without any."""
    moments = sorted(run.started for run in runs)
    return [one for one, other in pairwise(moments) if other - one >= PAUSE]


def _adaptive(world: World) -> None:
    """Concurrency grows while handlers are as quick as ever, and shrinks when one more makes them slow."""
    path, posted = world.home / "quotes", 0
    with world.producer("quotes") as producer:

        def found() -> tuple[int, int] | None:
            nonlocal posted
            if posted - starts(path) < 300:
                posted += 600
                for _ in range(600):
                    producer.post(b"x")
            return _peak_and_after(runs_of(path))

        peak, after = eventually(found, within=90, every=0.25)
    eventually(lambda: not world.left("quotes", "pricing", [READY]), within=60)
    print(f"concurrency grew to {peak} and shrank to {after}, {posted} quotes")  # noqa: T201
    assert FIRST < KNEE < peak <= 1.5 * KNEE


def _peak_and_after(runs: list[Run]) -> tuple[int, int] | None:
    """Most handlers at once; and after that, when some were slow, fewer by a quarter for a while. None: not yet."""
    series = at_once(runs)
    peak, at = max(((running, at) for at, running in series), default=(0, 0.0))
    last = max((run.started for run in runs), default=0.0)
    while peak > KNEE and at + STRETCH < last:
        most = max((running for moment, running in series if at <= moment < at + STRETCH), default=0)
        if 0 < most <= 0.75 * peak:
            return peak, most
        at += STRETCH / 2
    return None


def _weights(world: World, counts: dict[Lane, int]) -> None:
    """Shares of 20,000 starts while every lane has messages, against the declared ones. They count from when the worker
    has all of them: a lane that is empty for a moment, because a busy machine reads slowly, has no share to take.
    """
    path = world.home / "scales"
    sent = sum(counts.values())
    eventually(
        lambda: sum(world.count("scales", "weighing", lane, "msgOutCounter") for lane in counts) >= sent, within=90
    )
    (world.home / "all-lanes-wait").touch()
    began = time.monotonic() + 0.2  # those who run then began before
    eventually(lambda: not world.left("scales", "weighing", ORDERS), within=120, every=0.5)
    runs = runs_of(path)
    assert len(runs) == sent, "nobody was killed: each once"
    window = [run for run in sorted(runs, key=lambda run: run.started) if run.started >= began][:STARTS]
    seen = Counter(run.lane for run in window)
    used: Any = Counter()  # seconds
    for run in window:
        used[run.lane] += max(START, run.ended - run.started)  # slot time is shared: what stalled counts for longer
    off = {lane: used[lane] / used.total() / share - 1 for lane, share in shares().items()}
    print(" ".join(f"{'/'.join(lane)} {seen[lane]} {by:+.2%}" for lane, by in off.items()))  # noqa: T201
    for lane, share in shares().items():
        assert abs(off[lane]) <= (TOLERANCE if share >= LARGE else 2 * TOLERANCE), lane

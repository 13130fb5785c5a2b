"""The ledger outside of the product: a file to which handlers append a line when a run starts and when it ends.

start RUN TOPIC NUMBER ROAD LEVEL STATE WHAT NANOSECONDS PID
end RUN NANOSECONDS PID
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.roads.plans import ROADS, Lane, Order


class Run(NamedTuple):
    """A handler's run. Seconds of the machine's monotonic clock; `ended` is infinite where the process was killed first."""

    topic: str
    number: int
    road: str
    lane: Lane
    what: str
    started: float
    ended: float
    pid: int


class Writer:
    """Of one process. A line is one write to a file opened for appending: whole, whoever else writes."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._pid = os.getpid()
        self._numbers = count()

    def start(self, *fields: str) -> int:
        """A line; the number of the run, for its end."""
        number = next(self._numbers)
        self._write("start", number, *fields)
        return number

    def end(self, number: int) -> None:
        """A line."""
        self._write("end", number)

    def _write(self, *fields: object) -> None:
        text = "\t".join(str(one) for one in (*fields, time.monotonic_ns(), self._pid))
        os.write(self._file, f"{text}\n".encode())


def runs_of(path: Path) -> list[Run]:
    """Every run, in the order of the starts."""
    lines = path.read_bytes().decode().split("\n")[:-1] if path.exists() else []
    found: dict[tuple[str, str], Run] = {}
    for event, run, *fields, at, pid in (line.split("\t") for line in lines):
        if event == "start":
            topic, number, road, level, state, what = fields
            lane = Lane(level, state)
            found[run, pid] = Run(topic, int(number), road, lane, what, int(at) / 1e9, float("inf"), int(pid))
        else:
            found[run, pid] = found[run, pid]._replace(ended=int(at) / 1e9)
    return list(found.values())


def starts(path: Path) -> int:
    """Starts so far, without reading what they are."""
    return path.read_bytes().count(b"start\t") if path.exists() else 0


@dataclass(frozen=True)
class Verdict:
    """What became of the orders against their plans. `wrong`: sentences, none where all is as planned. `again`: runs beyond the
    plan; `done_again`: those in the lane where a message is done.
    """

    wrong: list[str]
    again: int
    done_again: int
    ends: Counter[str]


def judge(orders: Iterable[Order], runs: Iterable[Run], dead: Counter[int], killed: set[int]) -> Verdict:
    """`dead`: numbers in the dead letter topic; `killed`: pids of workers that were killed."""
    by_number: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_number[run.number].append(run)
    wrong: list[str] = []
    again = done_again = 0
    ends: Counter[str] = Counter()
    for order in orders:
        found = by_number.pop(order.number, [])
        wrong += [
            f"{order.number} ({order.road}): {what}" for what in _faults(order, found, dead[order.number], killed)
        ]
        more = _beyond(order, found)
        again += sum(more.values())
        done_again += sum(times for lane, times in more.items() if ROADS[order.road].asks[lane] in ("done", "work"))
        ends[ROADS[order.road].end] += 1
    wrong += [f"{number}: nobody sent it" for number in by_number]
    return Verdict(wrong, again, done_again, ends)


def _beyond(order: Order, runs: list[Run]) -> Counter[Lane]:
    """Runs beyond the plan by lane. A message that a limit holds up has one run, wherever that is."""
    road = ROADS[order.road]
    counts = Counter(run.lane for run in runs if run.lane in road.asks)
    if not road.free:
        return counts - Counter(road.planned)
    return Counter({runs[0].lane: len(runs) - 1}) if len(runs) > 1 else Counter()


def _faults(order: Order, runs: list[Run], dead: int, killed: set[int]) -> Iterator[str]:
    road = ROADS[order.road]
    counts = Counter(run.lane for run in runs)
    if strange := counts.keys() - road.asks.keys():
        yield f"handled in {sorted(strange)}, where it never is"
    if road.free and not runs:
        yield "never handled"
    if not road.free and (less := Counter(road.planned) - counts):
        yield f"not handled, or not often enough, in {dict(less)}"
    if bool(dead) is not (road.end == "dead"):
        yield f"{dead} dead letters, and its end is {road.end}"
    last = [run for run in runs if road.asks.get(run.lane) in _FINAL.get(road.end, ())]
    if road.end in _FINAL and not any(run.ended < float("inf") for run in last):
        yield f"its end is {road.end}, and no handler came to that"
    if (_beyond(order, runs) or dead > 1) and not any(run.pid in killed for run in runs):
        yield f"{len(runs)} runs and {dead} dead letters, and no worker that was killed had it: {dict(counts)}"


_FINAL = {"done": ("done", "work"), "discarded": ("discard",), "repeated": ("repeat",)}


def at_once(runs: Iterable[Run], killed: Mapping[int, float] = MappingProxyType({})) -> list[tuple[float, int]]:
    """How many ran from each moment on. `killed`: when each process that was killed was gone."""
    changes = [(run.started, 1) for run in runs]
    changes += [(min(run.ended, killed.get(run.pid, run.ended)), -1) for run in runs]
    changes.sort()  # an end before a start of the same moment
    return list(zip((at for at, _ in changes), accumulate(change for _, change in changes), strict=True))


def most_within(moments: list[float], seconds: float) -> int:
    """Most of these moments, which are in order, in any window."""
    first = most = 0
    for last, at in enumerate(moments):
        while at - moments[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most

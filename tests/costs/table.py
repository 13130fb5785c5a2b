"""What the tests cost, by folder, file and fixture: read from junit files, kept as `tests/costs.json`, asked by the scheduling."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

PLACE = Path(__file__).parents[1] / "costs.json"
PHASES = ("setup", "call", "teardown")
_UNKNOWN = 60.0


@dataclass
class Cost:
    """Seconds of wall time in each phase, seconds of processor time over all phases, and over how many tests."""

    setup: float = 0.0
    call: float = 0.0
    teardown: float = 0.0
    cpu: float = 0.0
    tests: int = 0

    @property
    def total(self) -> float:
        """All phases, in seconds."""
        return self.setup + self.call + self.teardown


@dataclass
class RunCosts:
    """Costs of one run. `workers`: first begin and last end of each process."""

    files: dict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    fixtures: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    workers: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def wall(self) -> float:
        """Seconds from the first test's begin to the last one's end."""
        return max(end for _, end in self.workers.values()) - min(begin for begin, _ in self.workers.values())

    @property
    def idle(self) -> dict[str, float]:
        """Seconds that each process was without work at the end."""
        last = max(end for _, end in self.workers.values())
        return {name: last - end for name, (_, end) in sorted(self.workers.items())}


def read(junit: Path) -> RunCosts:
    """The costs that `tests/costs/recording.py` wrote into a junit file. A test without them was not run, and is left out."""
    run = RunCosts()
    for case in ET.parse(junit).iter("testcase"):
        properties = [(one.attrib["name"], one.attrib["value"]) for one in case.iter("property")]
        values = dict(properties)
        if "begin" not in values:
            continue
        name = values["file"]
        cost = run.files[name]
        for phase in (*PHASES, "cpu"):
            setattr(cost, phase, getattr(cost, phase) + float(values.get(phase, 0)))
        cost.tests += 1
        for key, value in properties:
            if key.startswith("fixture:"):
                run.fixtures[key.removeprefix("fixture:")] += float(value)
        begin, worker = float(values["begin"]), values["worker"]
        end = begin + sum(float(values.get(phase, 0)) for phase in PHASES)
        first, last = run.workers.get(worker, (begin, end))
        run.workers[worker] = (min(first, begin), max(last, end))
    return run


def by_folder(files: Mapping[str, Cost], depth: int = 3) -> dict[str, Cost]:
    """Costs of the files added up by folder, `depth` parts of the path deep."""
    folders: dict[str, Cost] = defaultdict(Cost)
    for name, cost in files.items():
        sums = folders["/".join(Path(name).parent.parts[:depth])]
        for phase in (*PHASES, "cpu", "tests"):
            setattr(sums, phase, getattr(sums, phase) + getattr(cost, phase))
    return folders


def summary(runs: Iterable[RunCosts]) -> dict[str, Any]:
    """The document of `tests/costs.json`: of each figure the median over the runs that have it. A run of `make test` has several
    junit files, with other tests each.
    """
    runs = list(runs)
    files = sorted({name for run in runs for name in run.files})
    middle = {name: _middle([run.files[name] for run in runs if name in run.files]) for name in files}
    fixtures = sorted({name for run in runs for name in run.fixtures})
    return {
        "runs": max(sum(name in run.files for run in runs) for name in files),
        "folders": {name: _rounded(cost) for name, cost in sorted(by_folder(middle).items())},
        "fixtures": {
            name: round(cost, 1)
            for name in fixtures
            if (cost := median(run.fixtures.get(name, 0.0) for run in runs)) >= 1
        },
        "files": {name: _rounded(cost) for name, cost in middle.items()},
    }


def _middle(costs: list[Cost]) -> Cost:
    seconds = {phase: median(getattr(cost, phase) for cost in costs) for phase in (*PHASES, "cpu")}
    return Cost(**seconds, tests=max(cost.tests for cost in costs))


def _rounded(cost: Cost) -> dict[str, Any]:
    return {key: round(value, 1) for key, value in asdict(cost).items()}


@cache
def known() -> dict[str, Any]:
    """The files of the kept table: path below the repository -> its row. Empty where there is no table."""
    if not PLACE.exists():
        return {}
    files: dict[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))["files"]
    return files


def seconds(file: str) -> float:
    """What a file costs by the kept table. A file that the table does not have may cost anything: it counts as dear, so that
    no process begins it last.
    """
    row = known().get(file)
    return sum(row[phase] for phase in PHASES) if row else _UNKNOWN

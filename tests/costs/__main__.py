"""`python -m tests.costs JUNIT ...`: what the tests of these runs cost; `--write` keeps the medians in `tests/costs.json`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.costs.table import PLACE, RunCosts, by_folder, read, summary


def _rows(title: str, rows: list[tuple[str, str]]) -> None:
    print(f"\n{title}")
    for name, figures in rows:
        print(f"  {name:<72} {figures}")


def _show(run: RunCosts, most: int) -> None:
    print(f"{sum(cost.tests for cost in run.files.values())} tests in {run.wall:.0f} s")
    print("idle at the end: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in run.idle.items()))
    folders = sorted(by_folder(run.files).items(), key=lambda row: -row[1].total)
    files = sorted(run.files.items(), key=lambda row: -row[1].total)
    fixtures = sorted(run.fixtures.items(), key=lambda row: -row[1])
    head = "set-up, call, teardown, all, processor time (s); tests"
    for title, rows in ((f"Folders: {head}", folders), (f"Files: {head}", files[:most])):
        _rows(
            title,
            [
                (name, f"{c.setup:8.1f} {c.call:8.1f} {c.teardown:8.1f} {c.total:8.1f} {c.cpu:8.1f} {c.tests:6}")
                for name, c in rows
            ],
        )
    _rows("Fixtures: set-up (s)", [(name, f"{cost:8.1f}") for name, cost in fixtures[:most]])


def main() -> None:
    """Prints the costs of each run, and keeps them where that is wanted."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs", description=__doc__)
    parser.add_argument("junit", nargs="+", type=Path, help="junit files of runs of `make test` or `make test-full`")
    parser.add_argument("--most", type=int, default=30, help="how many files and fixtures are shown")
    parser.add_argument("--write", action="store_true", help=f"keep the medians in tests/{PLACE.name}")
    arguments = parser.parse_args()
    runs = [read(path) for path in arguments.junit]
    for run in runs:
        _show(run, arguments.most)
    if arguments.write:
        PLACE.write_text(json.dumps(summary(runs), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

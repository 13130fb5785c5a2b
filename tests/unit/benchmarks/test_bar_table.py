"""The table of bars: medians and ratios from raw results, and pages that have no other figures than those."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "benchmarks" / "consumer"
_spec = spec_from_file_location("bar_table", FOLDER / "bar_table.py")  # a program's folder, no package
assert _spec is not None
assert _spec.loader is not None
bar_table = module_from_spec(_spec)
_spec.loader.exec_module(bar_table)


def _run(arm: str, cpu: float, rate: float, **more: Any) -> dict[str, Any]:
    own = {"messages": 1_000, "seconds": 1_000 / rate, "cpu_us": cpu, "rss_mib": 70, "load": 1.0, "cores": 2}
    return {"program": "throughput", "run": "2026-11-26T01:00Z", "round": 0, "commit": "abc", "arm": arm} | own | more


def _row(lines: list[str], begins: str) -> list[str]:
    (found,) = [line for line in lines if line.startswith(f"| {begins}")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_a_bar_compares_medians_of_both_editions_with_the_same_base() -> None:
    runs = [_run("raw", cpu, rate) for cpu, rate in ((5, 100_000), (9, 90_000), (7, 80_000))]
    runs += [_run("sync", cpu, rate) for cpu, rate in ((12, 70_000), (30, 20_000), (11, 60_000))]
    runs += [_run("sync-before", 40, 27_000), _run("sync-python", 38, 26_500), _run("failing", 20, 45_000)]
    lines = bar_table.bars(runs)
    assert _row(lines, "no-op, sync: processor time")[1:] == ["≤ 7 µs", "+33.0 µs", "+5.0 µs", "met"]
    assert _row(lines, "no-op, sync: rate of raw")[1:] == ["≥ 65 %", "30 %", "67 %", "met"]
    assert _row(lines, "no-op, sync: rate of the Go")[1:] == ["≥ 1.5 ×", "–", "–", "not measured"]
    assert _row(lines, "10 % failing")[1:] == ["≥ 80 %", "–", "75 %", "**missed**"]
    assert _row(lines, "pure-Python fall-back, sync")[1:] == ["≥ 97 %", "100 %", "98 %", "met"]


def test_the_last_run_of_a_program_counts_and_no_ratio_is_of_two() -> None:
    old, new = "2026-11-25T23:00Z", "2026-11-26T01:00Z"
    runs = [_run("raw", 7, 100_000, run=new), _run("raw", 5, 100_000, run=old), _run("audit", 12, 9, run=old)]
    runs += [_run("sync", 10, 50_000, run=new), _run("sync", 9, 50_000, run=old)]
    runs += [_run("idle", 0, 1, program="footprint", run=old, core_percent=0.4)]
    lines = bar_table.bars(runs)
    assert _row(lines, "no-op, sync: processor time")[3] == "+3.0 µs"
    assert _row(lines, "audit records")[3:] == ["–", "not measured"]
    assert _row(lines, "idle, 12 lanes")[4] == "met", "another program has a last run of its own"


def test_a_flood_counts_what_was_handled_or_moved_and_no_edition_counts_more_than_was_read() -> None:
    def flood(arm: str, **more: Any) -> dict[str, Any]:
        return (
            _run(arm, 0, 1)
            | {"program": "readthrough", "messages": None, "seconds": 10.0, "cpu_s": 1.0, "read": 1_000}
            | more
        )

    runs = [flood("raw-reroute", passed=1_000, done=0, moved=1_000), flood("ours", passed=900, done=500, moved=700)]
    runs += [flood("ours-before", done=300, moved=300)]
    for run in runs:
        del run["messages"]
    assert _row(bar_table.bars(runs), "a flood")[1:] == ["≥ 110 %", "60 %", "90 %", "**missed**"]
    assert bar_table.passed({"read": 100, "done": 80, "moved": 60}) == 100


def test_quiet_customers_idle_and_the_source_have_their_rows() -> None:
    quiet = {"idle": {"p50": 9, "p99": 30.0, "max": 31}, "whole": {"p50": 9, "p99": 260.0, "max": 300}}
    about = {"run": "2026-11-26T01:00Z", "round": 0, "commit": "abc"}
    runs = [
        about | quiet | {"program": "fairness", "arm": "ours", "settled": {"p99": 38.5}, "machine_load": 2.0},
        about | {"program": "footprint", "arm": "idle", "core_percent": 0.44},
        *(about | {"program": "source", "arm": arm, "rate": rate} for arm, rate in
          (("reader", 100), ("spark-1", 180), ("spark-2", 210), ("reader-before", 100), ("spark-1-before", 90))),
    ]  # fmt: skip
    lines = bar_table.bars(runs)
    assert _row(lines, "F2, quiet p99 once")[3:] == ["+8.5 ms", "met"]
    assert _row(lines, "F2, quiet p99 over")[3:] == ["+260.0 ms", "**missed**"]
    assert _row(lines, "idle, 12 lanes")[1:] == ["≤ 0.5 %", "–", "0.44 %", "met"]
    assert _row(lines, "Spark source")[1:] == ["≥ 2 ×", "0.90 ×", "2.10 ×", "met"]


def test_every_arm_stands_behind_the_one_whose_variant_it_is() -> None:
    steady = {"seconds": 1, "cpu_us": 4.0, "rate": 120_000.0}
    runs = [_run(arm, 5, 100_000, steady=steady) for arm in ("route", "sync-python", "sync-fair", "raw", "sync", "go")]
    lines = bar_table.arms(runs)
    assert [line.split("`")[1] for line in lines[2:]] == ["raw", "sync", "sync-python", "sync-fair", "go", "route"]
    assert "| 4.0 (4.0–4.0), 120,000 (120,000–120,000) |" in lines[2]


def test_workers_are_compared_with_one() -> None:
    runs = [_run(arm, 10, rate, program="workers") for arm, rate in (("no-op-2", 90_000), ("no-op-1", 60_000))]
    assert _row(bar_table.workers(runs), "`no-op` | 2")[3] == "1.50 ×"
    assert _row(bar_table.workers(runs), "`no-op` | 1")[3] == "1.00 ×"


def test_each_program_is_told_with_its_commits_rounds_and_load() -> None:
    runs = [_run("raw", 5, 9, load=0.5), _run("sync-before", 5, 9, load=2.24, commit="old", round=4)]
    runs += [_run("idle", 0, 1, program="footprint", run="2026-11-27T01:00Z", load=3.0)]
    assert bar_table.about(runs)[2:] == [
        "| footprint | 2026-11-27 | abc | – | 1 | 3.0 to 3.0 | 2 |",
        "| throughput | 2026-11-26 | abc | old | 5 | 0.5 to 2.2 | 2 |",
    ]
    assert len(bar_table.about([])) == 2


def _read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]


@pytest.mark.parametrize("page", [FOLDER / "README.md", ROOT / "README.md"], ids=["benchmarks", "project"])
def test_the_pages_have_the_figures_of_the_raw_results(page: Path) -> None:
    """`python benchmarks/consumer/bars.py --write` puts them there."""
    text = page.read_text("utf-8")
    assert bar_table.filled(text, _read) == text
    assert "<!-- bars.py: " in text


def test_a_page_keeps_what_is_around_its_tables() -> None:
    page = "a\n<!-- bars.py: about -->\nold\n<!-- end -->\nb\n"
    assert bar_table.filled(page, lambda _: []) == page.replace("old", "\n".join(bar_table.about([])))
    with pytest.raises(KeyError):
        bar_table.filled("<!-- bars.py: nothing -->", _read)

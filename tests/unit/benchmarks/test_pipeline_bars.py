"""The table of the pipeline's bars: which session counts, and that the page has no other figures than the raw results."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "benchmarks" / "pipeline"
_spec = spec_from_file_location("pipeline_bars", FOLDER / "pipeline_bars.py")  # a program's folder, no package
assert _spec is not None
assert _spec.loader is not None
pipeline_bars = module_from_spec(_spec)
_spec.loader.exec_module(pipeline_bars)
Record = dict[str, Any]
RECALL = "recall, one lane: of 15,000 letters a second, or of 95 % of a slower loop"


def _session(load: float, *runs: Record, **options: Any) -> list[Record]:
    return [{"machine": {"load_before": load, **options}}, *runs]


def _lanes(rate: int, loop: int) -> Record:
    return {"at": "now", "load_before": 2, "lanes": 1, "lane_per_second": {"a": rate}, "loop_per_second": loop}


def _table(**files: list[Record]) -> dict[str, list[str]]:
    lines = pipeline_bars.bar_rows(pipeline_bars.BARS, lambda name: files.get(name.partition(".")[0], []))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[0]: row[1:] for row in rows}


def test_the_last_quiet_session_is_compared_with_the_bar_and_shown_beside_the_one_before() -> None:
    def run(first: float, load: float, further: float) -> list[Record]:
        rounds = [
            {"arm": "standing", "round": number, "seconds": value}
            for number, value in enumerate((90, further, further))
        ]
        return _session(load, {"arm": "first", "seconds": first}, *rounds, messages=5_000, new=4)

    beside = [one | {"load": 9.0} for one in run(98, 1.0, 98)]  # of others, who began later
    found = _table(run=[*run(30, 1.0, 8), *run(24, 1.0, 3.5), *run(99, 20.0, 99), *beside])
    assert found["`pipeline run` of 5,000 messages, start included"] == ["≤ 25 s", "30.0 s", "24.0 s", "met"]
    further = found["a further run in a standing session, 4 new messages"]
    assert further == ["≤ 3 s", "8.0 s", "3.5 s", "**missed**"], "the first run of a session warms it"
    assert found["`make demo-pipeline`"] == ["≤ 150 s", "–", "–", "not measured"]


def test_ratios_are_of_one_session_and_of_the_size_that_the_bar_names() -> None:
    rates = [{"arm": arm, "rate": rate} for arm, rate in (("reader", 100), ("spark-1", 95), ("native-8", 250))]
    audits = [{"arm": f"kodoctl {name}", "seconds": value} for name, value in (("audit", 30), ("rollup", 10))]
    costs = [{"batches": batches, "batch processor": cost} for batches, cost in ((20, 1.0), (2_000, 1.2))]
    both = {"arm": "kodoctl both", "seconds": 35}
    found = _table(
        source=_session(1, *rates, messages=1_000_000),
        audit=[*_session(1, *audits, messages=3_000_000), *_session(1, audits[0], both, messages=3_000_000)],
        upkeep=[*_session(1, *costs), *_session(1, costs[0], {"batches": 1_032, "batch processor": 9.0})],
        increments=_session(
            1, {"arm": "new", "seconds": 9}, {"arm": "alone", "seconds": 3}, messages=200_000, new=10_000
        ),
        recall=[_lanes(90, 100), _lanes(1, 100) | {"lanes": 2}],
    )
    assert found["source, 1 split: of plain readers"][1:] == ["–", "95 %", "met"]
    assert found["source, 2 splits: of plain readers"][3] == "not measured"
    assert found["source, native: of plain readers"][2:] == ["2.50 ×", "met"]
    assert found["audit and rollup of 3,000,000 as typed, together"][1:] == ["40.0 s", "35.0 s", "met"]
    assert found["a batch after 2,000 small batches, of one after 20"][1:] == ["–", "1.20 ×", "met"]
    assert found["audit of 100,000 new behind 30,000,000 in 300 batches, of these alone"][3] == "not measured"
    assert found[RECALL][2:] == ["95 %", "**missed**"]


def test_a_lane_of_a_recall_is_compared_with_a_rate_where_the_loop_beside_it_reaches_that() -> None:
    assert _table(recall=[_lanes(14_100, 20_000), _lanes(15_150, 15_800)])[RECALL][1:] == ["94 %", "101 %", "met"]
    assert _table(recall=[_lanes(14_250, 15_000)])[RECALL][2:] == ["100 %", "met"]


def test_growth_is_of_a_long_soak_alone_at_any_load() -> None:
    def soak(rounds: int) -> list[Record]:
        return _session(
            50, *({"arm": "standing", "round": one, "seconds": 1, "heap": 100 + 2 * one} for one in range(rounds))
        )

    row = "300 runs in one session: growth of Java's heap a run"
    assert _table(run=soak(20))[row][3] == "not measured"
    assert _table(run=soak(300))[row][2:] == ["2.0 MiB", "**missed**"]


def test_the_page_has_the_tables_that_the_raw_results_make() -> None:
    """`python benchmarks/pipeline/pipeline_bars.py --write` puts them there."""
    text = (FOLDER / "README.md").read_text("utf-8")
    assert "<!-- pipeline_bars.py: bars -->" in text
    assert pipeline_bars.filled(text, pipeline_bars.read) == text


def test_results_without_a_date_are_told_as_that() -> None:
    lines = pipeline_bars.about(
        lambda name: [json.loads('{"machine": {"load_before": 1}}')] if name == "run.jsonl" else []
    )
    assert lines[2:] == ["| run.jsonl | before 26 November 2026 |  | 1 |"]

"""What campaigns on a cluster say of their faults: repeats within what was under way, stand-stills, recoveries."""

from tests.chaos.report import render
from tests.chaos.spans import Span, bound, silence, summary, twice
from tests.faults.ledger import Run, Verdict
from tests.services.key_order import overtaken

SLOTS = 4


def _planned(number: int) -> int:
    return 2 if number % 5 == 0 else 1


def _runs(*pairs: tuple[int, float], place: str = "p0") -> list[Run]:
    return [Run(number, at, place) for number, at in pairs]


def test_a_run_more_than_planned_is_a_repeat_at_its_time() -> None:
    runs = _runs((1, 1.0), (5, 2.0), (5, 3.0), (1, 4.0), (5, 6.0), (-1, 7.0), (-1, 8.0))
    assert twice(runs, _planned) == [4.0, 6.0]


def test_a_fault_that_breaks_no_connection_explains_no_repeat() -> None:
    assert bound(Span("f", 10.0, 11.0, 12.0, 0), _runs((1, 10.5)), _planned, slots=SLOTS) == 0


def test_each_break_explains_the_slots_and_the_most_runs_of_a_moment_and_a_fault_the_moves_of_its_time() -> None:
    runs = _runs((1, 1.0), (2, 9.0), (3, 9.5), (4, 10.0), (5, 13.0), (6, 13.1), (7, 30.0))
    span = Span("f", 10.0, 12.0, 14.0, 2)
    assert bound(span, runs, _planned, slots=SLOTS) == 2 * (SLOTS + 3) + 1


def test_a_partition_is_silent_from_the_start_of_a_fault_and_to_its_end() -> None:
    runs = [*_runs((1, 12.0), (2, 13.0)), *_runs((3, 10.5), (4, 14.0), place="p1")]
    assert silence(runs, ["p0"], 10.0, 15.0) == 2.0
    assert silence(runs, ["p0", "p1"], 10.0, 15.0) == 3.5
    assert silence(runs, ["p2"], 10.0, 15.0) == 5.0


def test_a_summary_tells_spared_partitions_from_others_and_each_repeat_to_the_fault_before_it() -> None:
    runs = [
        *_runs((1, 9.0), (2, 10.4), (3, 11.0), (4, 11.8), (1, 12.5)),
        *_runs((6, 9.0), (7, 19.0), place="p1"),
        *_runs((8, 31.0), place="p0"),
    ]
    first = Span("f", 10.0, 12.0, 20.0, 1, ["p0"], {"p0": 0.5, "p1": 7.0})
    second = Span("f", 30.0, 31.0, 50.0, 1, (), {"p0": 15.0})
    row = summary([first, second], runs, _planned, slots=SLOTS)["f"]
    assert row["times"] == 2
    assert row["recoveries"] == [7.0, 15.0]
    assert row["late"] == 1
    assert row["spared_silence"] == 0.8
    assert row["others_silence"] == 19.0
    assert row["twice"] == 1


def test_a_campaign_that_came_to_no_verdict_is_in_the_report_with_what_is_known() -> None:
    verdict = Verdict(sent=90, unsure=1, done=89, dead=1, still_stored=0)
    known = {
        "seconds": 600, "faults": summary([Span("f", 10.0, 12.0, 20.0, 1, (), {"p0": 0.5})], [], _planned, slots=SLOTS),
        "commands": {}, "unrecalled": [], "copies": {"orders": 1}, "stuck": [], "machine": "a machine",
    }  # fmt: skip
    order = {
        "messages": 500,
        "overtaken": {"stored in events": [(4, 3)], "handled of copies": [(4, 3)]},
        "problems": [],
    }
    text = render(
        [
            {**known, "verdict": verdict.json(), "order": order},
            {**known, "verdict": None, "copies": {}, "stuck": ["f: not healed"]},
        ]
    )
    assert "| 1 | 10 | 1 | 90 | 1 | 89 | 1 | **0** | 0 | 0 | 0 | 0 (0) | 1 | 2 of 500 | 0 |" in text
    assert f"| 2 | 10 | 1 |{' unknown |' * 10} not checked | 1 |" in text
    assert "| f | 2 | 0.5 s |" in text


def test_a_message_is_overtaken_where_a_later_one_of_its_key_is_seen_first_and_its_place_is_not_anybodys() -> None:
    seen = [("a", 1), ("b", 2), ("a", 5), ("a", 3), ("a", 1), ("b", 4), ("a", 4), ("a", 6)]
    assert overtaken(seen) == [(5, 3)], "1 is a copy, and 4 is of another key"
    assert overtaken([("a", 5), ("a", 3), ("a", 4)]) == [(5, 3), (5, 4)]
    assert overtaken([("a", 5), ("a", 3), ("a", 4)], {3}) == [(5, 4)]
    assert overtaken([("a", 5), ("a", 3), ("a", 4)], {5}) == []

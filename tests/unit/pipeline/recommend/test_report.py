"""What people read of a recommendation."""

from __future__ import annotations

from kodoctl.pipeline.recommend.noisy_neighbours import LevelMove
from kodoctl.pipeline.recommend.report import Victim, document
from kodoctl.render.recommendation_text import lines


def text(moves, victims=(), notes=()):
    found = document(300_000, 10_000, moves, {moves[0]: victims} if moves else {}, notes)
    return [line.text for line in lines(found)]


def test_a_move_with_its_evidence_and_who_waited():
    move = LevelMove("orders", "billing", "acme", "isolate", "L1", "B1", (0, 300_000), 0.8, 0.431, 0.012)
    victims = [Victim("u2", 427, 200, 24_000.4, 130.0), Victim("x" * 99, 3, 3, 1.0, None)]
    assert text([move], victims, ["orders has no `fair_by`: everybody is one tenant"]) == [
        "orders / billing: isolate acme, L1 -> B1",
        "  80% of all messages in 2 windows from 1970-01-01 00:00 to 1970-01-01 00:10 UTC; of what others had done, 43% came later than 10s, in all other windows 1%",
        "  who waited                done  late  p95 ms  p95 else",
        "  u2                         427   200  24,000       130",
        "  xxxxxxxxxxxxxxxxxxxxxxx…     3     3       1         -",
        "",
        "note: orders has no `fair_by`: everybody is one tenant",
    ]


def test_who_comes_back_and_that_there_is_nothing_to_do():
    move = LevelMove("orders", "billing", "acme", "upgrade", "B1", "L1", (0,), 0.01, None, None)
    assert text([move])[1] == (
        "  calm: 1.0% of all messages in 1 window from 1970-01-01 00:00 to 1970-01-01 00:05 UTC, and less than 12.5% in each"
    )
    assert text([]) == ["Nothing to move: nobody kept others waiting longer than 10s in three of the newest windows."]


def test_where_there_is_nothing_to_compare_with():
    move = LevelMove("orders", "billing", "acme", "degrade", "B1", "D1", (0,), 0.5, None, None)
    assert "0% came later than 10s" in text([move])[1]
    found = document(1, 2, [move], {}, [])
    assert (found["moves"][0]["others_late"], found["patch"]) == (None, "")

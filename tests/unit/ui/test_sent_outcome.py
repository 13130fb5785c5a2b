"""What became of messages that were sent again: a sentence that claims no more than was read."""

from __future__ import annotations

import pytest

from kodoctl.ui.sent_outcome import SentOutcome, SentPlace, SentStage

DEAD = SentPlace(SentStage.DEAD, "orders-billing-DLQ", "dead letters", "negative amount")
AGAIN = SentPlace(SentStage.WAITS, "orders-billing-BLOCKING", "L1 blocking")
OPEN = SentPlace(SentStage.OPEN, "orders", "L1 ready")


@pytest.mark.parametrize(
    ("outcome", "style", "is_final", "text"),
    [
        (SentOutcome(3), "open", False, "3 sent: 3 not known yet"),
        (SentOutcome(3, 3, {DEAD: 3}, complete=True), "bad", True, "3 sent: 3 dead again (negative amount)"),
        (SentOutcome(3, 3, {}, complete=True), "good", True, "3 sent: 3 handled"),
        (SentOutcome(3, 3, {OPEN: 1}, complete=True), "open", False, "3 sent: 2 handled, 1 not handled yet (L1 ready)"),
        (SentOutcome(3, 3, {DEAD: 1}), "bad", False, "3 sent: 1 dead again (negative amount), 2 not known yet"),
        (SentOutcome(3, 2, {}, complete=True), "open", False, "3 sent: 2 handled, 1 not known yet"),
        (
            SentOutcome(1_500, 1_500, {AGAIN: 1_000}, complete=True), "open", False,
            "1,500 sent: 500 handled, 1,000 wait again (L1 blocking)",
        ),
        (
            SentOutcome(5, 5, {DEAD._replace(cause=f"c{n}"): 1 for n in range(5)}, complete=True), "bad", True,
            "5 sent: 5 dead again (c0; c1; c2; …)",
        ),
        (SentOutcome(1, 1, {DEAD._replace(cause=""): 1}, complete=True), "bad", True, "1 sent: 1 dead again"),
        (SentOutcome(0, 0, {}, complete=True), "good", True, "0 sent: nothing to follow"),
    ],
)  # fmt: skip
def test_the_sentence_counts_every_message_once(outcome: SentOutcome, style: str, is_final: bool, text: str) -> None:
    assert (outcome.style, outcome.is_final, outcome.text) == (style, is_final, text)


def test_lanes_are_counted_over_their_causes() -> None:
    outcome = SentOutcome(6, 6, {OPEN: 1, DEAD: 2, DEAD._replace(cause="other"): 1}, complete=True)
    assert outcome.lanes == [("orders-billing-DLQ", "dead letters", 3), ("orders", "L1 ready", 1)]

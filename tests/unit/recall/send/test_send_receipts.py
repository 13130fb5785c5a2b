"""Receipts of a recall: awaited for as long as it takes, but not for ever once somebody said stop."""

from __future__ import annotations

import threading

import pytest

from kodoctl.pulsar.binary.recall_transport import Receipt
from kodoctl.recall.ledger.recall_ledger import RecallEvent
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import PlannedLetter
from kodoctl.recall.send import batch_sender
from kodoctl.recall.send.batch_sender import PATIENCE, SILENCE, ReceiptTracker
from kodoctl.recall.send.sends_in_flight import InFlightMessage, SendBatch
from tests.unit.recall.letters import NOW, letter


def _bundle(here: ReceiptTracker, number: int) -> SendBatch:
    bundle = SendBatch()
    for entry in range(number):
        one = PlannedLetter(Position(0, 1, entry), NOW, f"{entry:032x}", "d", 0, entry + 1)
        bundle.add(InFlightMessage(one, None, letter(b"x", entry=entry), b"x"))
        here.expect(bundle)
    return bundle


def _waiting(here: ReceiptTracker, bundle: SendBatch) -> threading.Thread:
    thread = threading.Thread(target=here.wait, args=(bundle,), daemon=True)
    thread.start()
    return thread


def test_a_receipt_says_what_became_of_a_letter() -> None:
    here = ReceiptTracker(threading.Event())
    bundle = _bundle(here, 4)
    came = [Receipt("1:2"), Receipt(""), Receipt("", "too large", never=True), Receipt("", "AlreadyClosed")]
    for parcel, receipt in zip(bundle.messages, came, strict=True):
        here.take(parcel, bundle, receipt)
    here.wait(bundle)
    assert [one.outcome for one in bundle.messages] == [
        RecallEvent.SENT,
        RecallEvent.SENT,
        RecallEvent.REFUSED,
        RecallEvent.UNCLEAR,
    ]
    assert [one.note for one in bundle.messages] == ["", "", "too large", "AlreadyClosed"]
    assert not bundle.left


def test_what_never_comes_is_left_in_doubt_once_somebody_said_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "_LOOK", 0.005)
    now, stop = [100.0], threading.Event()
    here = ReceiptTracker(stop, lambda: now[0])
    bundle = _bundle(here, 3)
    waiting = _waiting(here, bundle)
    here.take(bundle.messages[0], bundle, Receipt("1:1"))
    now[0] += SILENCE - 1
    waiting.join(0.1)
    assert waiting.is_alive(), "nobody said stop: it may take a broker a while to come back"
    stop.set()
    waiting.join(0.1)
    assert waiting.is_alive(), "the time begins with the word"
    now[0] += PATIENCE - 1
    here.take(bundle.messages[1], bundle, Receipt("1:2"))
    waiting.join(0.1)
    now[0] += PATIENCE - 1
    waiting.join(0.1)
    assert waiting.is_alive(), "and anew with every receipt"
    now[0] += 1
    waiting.join(10)
    assert not waiting.is_alive()
    assert (bundle.left, bundle.on_their_way) == (True, 1)
    here.take(bundle.messages[2], bundle, Receipt("", "AlreadyClosed"))
    assert bundle.messages[2].outcome is None, "what comes when the client closes says nothing of it"


def test_a_broker_that_stays_silent_ends_the_wait_and_the_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "_LOOK", 0.005)
    now, stop = [100.0], threading.Event()
    here = ReceiptTracker(stop, lambda: now[0])
    bundle = _bundle(here, 2)
    waiting = _waiting(here, bundle)
    waiting.join(0.1)
    now[0] += SILENCE - 1
    here.take(bundle.messages[0], bundle, Receipt("1:1"))
    waiting.join(0.1)
    now[0] += SILENCE - 1
    waiting.join(0.1)
    assert waiting.is_alive(), "a receipt came in between"
    now[0] += 2
    waiting.join(10)
    assert not waiting.is_alive()
    assert (bundle.left, bundle.on_their_way, stop.is_set()) == (True, 1, True)
    assert bundle.messages[1].outcome is None


def test_who_waits_is_woken_by_the_last_receipt_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Woken by each, it takes the interpreter from the thread that the next ones come on."""
    monkeypatch.setattr(batch_sender, "_LOOK", 60.0)
    looks, first = list[float](), threading.Event()

    def clock() -> float:
        looks.append(100.0)
        first.set()
        return 100.0

    here = ReceiptTracker(threading.Event(), clock)
    bundle = _bundle(here, 3)
    waiting = _waiting(here, bundle)
    assert first.wait(10)
    for message in bundle.messages:
        waiting.join(0.05)
        here.take(message, bundle, Receipt("1:1"))
    waiting.join(10)
    assert not waiting.is_alive()
    assert len(looks) == 1

"""An attempt at a recall ends at any step, and is made again: each dead letter arrives once, and is acknowledged."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pulsar
import pytest

from kodoctl.errors import RefusedError
from kodoctl.protocol import properties as headers
from kodoctl.pulsar.binary.recall_transport import DedupProducer, RecalledMessage
from kodoctl.recall.ledger.recall_ledger import RecallEvent, latest_status
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import RecallAction, recall_id
from kodoctl.recall.send.rate_limit import RateLimit
from kodoctl.recall.send.sender import RecallSender
from kodoctl.recall.send.sends_in_flight import SendOptions
from tests.unit.recall.letters import DEAD, NOW
from tests.unit.recall.sender_world import (
    ENTRIES,
    HOLDER,
    READY,
    BundledLane,
    KilledError,
    Landed,
    Lane,
    World,
    make_attempt,
    payload_of,
    plan_of,
    with_table,
)


@pytest.mark.parametrize("bundled", [False, True])
@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("action", list(RecallAction))
def test_an_attempt_that_ends_at_any_step_and_is_made_again_is_exact(
    action: RecallAction, segmented: bool, bundled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = World(bundled=bundled)
    plan = with_table(plan_of(action), tmp_path, monkeypatch) if segmented else plan_of(action)
    report = make_attempt(undisturbed, plan)
    sends = action.sends
    assert (report.sent, report.discarded) == ((ENTRIES, 0) if sends else (0, ENTRIES))
    kept = action is not RecallAction.RESEND  # of a landing nothing is acknowledged
    acknowledged = (ENTRIES + (2 if sends else 1)) * kept
    assert (report.acknowledged, report.unacknowledged, report.complete) == (acknowledged, 0, True)
    for fatal in range(1, undisturbed.steps + 1):
        world = World(bundled=bundled)
        with pytest.raises(KilledError):
            make_attempt(world, plan, fatal)
        make_attempt(world, plan)
        again = make_attempt(world, plan)
        assert world.arrived() == undisturbed.arrived() == Counter(map(payload_of, range(ENTRIES if sends else 0)))
        assert world.acknowledged == undisturbed.acknowledged, fatal
        assert (again.sent, again.before, again.complete) == (0, ENTRIES, True)
        events = {one.event for one in latest_status(world.ledger).values()}
        assert events <= ({RecallEvent.SENT} if sends else {RecallEvent.DISCARDED, RecallEvent.SENT})


@pytest.mark.parametrize("bundled", [False, True])
def test_what_the_client_refuses_is_never_taken_for_stored(*, bundled: bool) -> None:
    """Its number is below that of what goes behind it: recorded first, or the broker would say that it has it already."""
    undisturbed = World(bundled=bundled, refused={2, 3})
    make_attempt(undisturbed, plan_of(RecallAction.SEND))
    for fatal in range(1, undisturbed.steps + 1):
        world = World(bundled=bundled, refused={2, 3})
        with pytest.raises(KilledError):
            make_attempt(world, plan_of(RecallAction.SEND), fatal)
        for _ in range(2):
            report = make_attempt(world, plan_of(RecallAction.SEND))
        assert [line.rpartition(": ")[2] for line in report.refused] == ["too large"] * 2, fatal
        assert world.arrived() == Counter(payload_of(entry) for entry in range(ENTRIES) if entry not in (2, 3))
        assert not world.acknowledged & {2, 3}, fatal


@pytest.mark.parametrize("bundled", [False, True])
@pytest.mark.parametrize("action", [RecallAction.SEND, RecallAction.DISCARD])
def test_what_comes_again_behind_a_lost_connection_is_handled_once(action: RecallAction, bundled: bool) -> None:
    for again in ({0}, {1, 4}, {2, 3, 7}, {*range(ENTRIES)}):
        world = World(bundled=bundled)
        world.again = again
        report = make_attempt(world, plan_of(action))
        assert report.complete, again
        assert (report.sent + report.discarded, report.had_already, report.before) == (ENTRIES, 0, 0), again
        assert report.acknowledged == len(world.acknowledged), again
        assert len(world.ledger) == ((2 if action.sends else 1) * ENTRIES) + (1 if action.sends else 0) + 1, again
        if action.sends:
            assert world.arrived() == Counter(map(payload_of, range(ENTRIES))), again


def test_what_the_client_sent_twice_before_a_kill_counts_where_it_is_last() -> None:
    world, part = World(), f"{READY}-partition-0"
    with pytest.raises(KilledError):
        make_attempt(world, plan_of(RecallAction.SEND), 6)  # one is stored, and its receipt is booked nowhere
    (stored,) = world.stored[part]
    world.stored[part].append(stored)
    make_attempt(world, plan_of(RecallAction.SEND))
    (entry,) = (one for one in world.ledger if one.note == "read back from its lane")
    assert (entry.recall_id, entry.receipt) == (stored.properties[headers.RECALL], "1:1")


def test_nothing_waits_for_others_while_the_rate_makes_a_pause() -> None:
    world, waiting = World(bundled=True), list[int]()
    lanes = list[BundledLane]()
    opened = world.lane

    def lane(part: str, name: str) -> Lane:
        lanes.append(found := cast("BundledLane", opened(part, name)))
        return found

    now = [0.0]

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout == pytest.approx(0.1):
                waiting.append(sum(len(one.waiting) for one in lanes))
            now[0] += timeout or 0
            return self.is_set()

    world.lane = lane  # type: ignore[method-assign]
    options = SendOptions(RateLimit(10, lambda: now[0]), "me", lambda: NOW, Watched(), lambda *_: None)
    assert RecallSender(plan_of(RecallAction.SEND), cast("Any", world), world, None, options).run().sent == ENTRIES
    assert waiting == [0] * (ENTRIES - 1)


class Library:
    """The client library, of a broker that drops a number which is not above the last one, and confirms it."""

    def __init__(self, world: World) -> None:
        self.world, self.border = world, None
        self.patience = SimpleNamespace(call=lambda work, *_: work())

    def ask(self, work: Callable[[Any], Any], *_: object, late: object) -> Any:
        return work(self)

    def create_producer(self, part: str, producer_name: str, **_: object) -> Any:
        key, world = (part, producer_name), self.world

        def send_async(payload: bytes, done: Callable[[Any, Any], None], **given: Any) -> None:
            stored, number = world.stored.setdefault(part, []), given["sequence_id"]
            is_new = number > world.watermarks.get(key, -1)
            if is_new:
                world.watermarks[key] = number
                stored.append(RecalledMessage(payload, given["properties"], "", "", 0))
            place = (1, len(stored) - 1) if is_new else (-1, -1)
            done(pulsar.Result.Ok, SimpleNamespace(ledger_id=lambda: place[0], entry_id=lambda: place[1]))

        return SimpleNamespace(
            send_async=send_async, last_sequence_id=lambda: world.watermarks.get(key, -1), close=lambda: None
        )


def test_a_letter_whose_number_falls_is_refused_and_stays_unacknowledged() -> None:
    """The broker would drop it, and confirm it as one that it has: it would be acknowledged, and nowhere."""
    plan = plan_of(RecallAction.SEND)
    letters = list(plan.letters)
    letters[2], letters[4] = replace(letters[2], number=3), replace(letters[4], number=2)
    world = World()
    world.lane = lambda part, name: DedupProducer(cast("Any", Library(world)), part, name)  # type: ignore[assignment, method-assign, return-value]
    for _ in range(2):
        report = make_attempt(world, replace(plan, letters=tuple(letters)))
        (refused,) = report.refused
        assert "its number 2 is not above 3" in refused
        assert (report.had_already, report.complete) == (0, False)
        assert world.arrived() == Counter(payload_of(entry) for entry in range(ENTRIES) if entry != 4)
        assert 4 not in world.acknowledged


def test_letters_in_doubt_are_unclear_where_somebody_else_sent_under_the_name_of_their_plan() -> None:
    """The broker would drop them by their numbers, and a lane that was trimmed cannot tell."""
    plan, part = plan_of(RecallAction.SEND), f"{READY}-partition-0"
    for highest, unclear in ((2, 0), (4_000, 2)):
        world = World()
        with pytest.raises(KilledError):
            make_attempt(world, plan, 4)  # before anything is sent: entries 0 and 2 have their intents
        assert not world.stored
        world.watermarks[part, plan.producer] = highest
        world.first_ledger = 5
        report = make_attempt(world, plan)
        assert len(report.unclear) == unclear, highest
        assert ({0, 2} <= world.acknowledged) == (not unclear), highest


def test_what_arrives_carries_the_recall_id_in_the_order_of_its_lane() -> None:
    world = World()
    make_attempt(world, plan_of(RecallAction.SEND))
    for number in range(2):
        stored = world.stored[f"{READY}-partition-{number}"]
        assert [one.payload for one in stored] == [payload_of(entry) for entry in range(number, ENTRIES, 2)]
        ids = [recall_id(DEAD, Position(0, 1, entry), NOW) for entry in range(number, ENTRIES, 2)]
        assert [one.properties[headers.RECALL] for one in stored] == ids


def test_lost_messages_that_were_erased_since_the_plan_are_named_and_the_others_go() -> None:
    world = World()
    options = SendOptions(RateLimit(100_000), "me", lambda: NOW, threading.Event(), lambda *_: None)
    source = Landed(world, erased={3})
    report = RecallSender(plan_of(RecallAction.RESEND), cast("Any", world), world, None, options, source=source).run()
    assert (report.sent, report.gone, report.complete) == (ENTRIES - 1, 0, False)
    assert report.elsewhere == ["1:3:0:-1: it was erased"]


def test_nothing_is_sent_to_where_nobody_keeps_it() -> None:
    world = World()
    world.unread, world.deduplicates = {f"{READY}-partition-1"}, False
    with pytest.raises(RefusedError) as refused:
        make_attempt(world, plan_of(RecallAction.SEND))
    assert [one.code for one in refused.value.diagnostics] == ["K565", "K711"], "all findings at once"
    assert f"{READY} has no subscription {HOLDER}" in refused.value.diagnostics[1].detail
    assert "`kodoctl apply FILE` creates it" in refused.value.diagnostics[1].detail
    assert (world.stored, world.acknowledged, world.ledger) == ({}, set(), [])
    make_attempt(world, plan_of(RecallAction.DISCARD))
    assert len(world.acknowledged) == ENTRIES + 1, "nothing is sent"

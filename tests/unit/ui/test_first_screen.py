"""The first screen as values: which lanes a row shows, what needs a person, and with which command."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from kodoctl.protocol.overrides import Override, OverrideKind, overrides_text
from kodoctl.status.lane_status import StatusReading, UnreadTopic
from kodoctl.ui.first_screen import MAX_NEEDS, MAX_ROWS, CommandWords, FirstScreen, ScreenFacts, StoppedApply
from kodoctl.ui.first_screen import first_screen as make_screen
from kodoctl.ui.letter_causes import CauseCount, FailingGroup, LetterCauses, TryCount
from kodoctl.ui.rate_history import RateHistory
from tests.samples.consoles import CAUSE, FACTS, NIGHT, NOW, WORDS, lane, reading


def first_screen(reading: StatusReading, words: CommandWords, *earlier: StatusReading, **facts: Any) -> FirstScreen:
    """The first screen of the last of some readings."""
    history = RateHistory()
    for one in (*earlier, reading):
        history.add(one)
    return make_screen(reading, words, history, ScreenFacts(**facts))


def test_a_row_shows_lanes_with_messages_or_trouble_and_counts_the_others() -> None:
    (section,) = first_screen(NIGHT, WORDS).sections
    billing, mailing = section.rows
    assert [(one.name, one.entries, one.oldest, one.note) for one in billing.lanes] == [
        ("L1 ready", 1_240, "sent 9 min ago", ""),
        ("L1 retrying", 12, "here for 1 h", "no worker reads it"),
        ("L1 pending", 0, "", "1 of 2 consumers blocked"),
    ]
    assert (billing.workers, billing.empty) == (2, 0)
    assert billing.dead is not None
    assert (billing.dead.name, billing.dead.entries) == ("dead letters", 3)
    assert billing.pace == "ready lanes: 70/s more come than are handled"
    assert billing.dead.link == {"topology": "trade", "topic": "orders-billing-DLQ", "subscription": "billing"}
    assert [(one.name, one.note) for one in mailing.lanes] == [("L1 ready", ""), ("L2 ready", "missing")]
    assert mailing.dead is None
    assert (billing.lacks_workers, mailing.lacks_workers) == (False, True)


def test_what_needs_a_person_is_named_worst_first_each_with_its_command() -> None:
    needs = first_screen(NIGHT, WORDS).needs
    assert [one.text for one in needs] == [
        "1 topic not read: parcels",
        "orders / mailing: 4 messages or batches and no worker",
        "1 lane of trade missing",
        "orders / billing: dead letters, not counted yet, the oldest here for 8 h",
        "orders / billing: no worker reads L1 retrying",
        "orders / billing: 1 of 2 consumers of L1 pending blocked",
        "orders / billing: ready lanes: 70/s more come than are handled",
    ]
    commands = [one.command for one in needs]
    assert commands[2] == "kodoctl plan topologies/trade.yaml --context prod"
    assert commands[3] == (
        "kodoctl recall plan topologies/trade.yaml --topic orders --subscription billing --where true --out recall.json --context prod"
    )
    assert commands[4].endswith("--handler MODULE:FUNCTION --lanes L1/retrying --context prod")
    assert needs[0].means == "503: no broker owns it"


def test_lanes_that_were_not_read_are_not_said_to_be_absent() -> None:
    unread = UnreadTopic("kodo/trade", "orders", "orders-billing-DLQ", "503: no broker owns it")
    waits = lane("retrying", entries=3)
    screen = first_screen(reading(waits, unread=(unread,)), WORDS)
    (row,) = screen.sections[0].rows
    assert (row.dead, row.is_partial, row.lacks_workers) == (None, True, False)
    assert "orders / billing: 3 messages or batches and no worker in the lanes that could be read" in [
        one.text for one in screen.needs
    ]
    (whole,) = first_screen(reading(waits, unread=(replace(unread, namespace="a/b"),)), WORDS).sections[0].rows
    assert (whole.is_partial, whole.lacks_workers) == (False, True)


def test_nothing_needs_a_person_where_all_is_quiet() -> None:
    screen = first_screen(reading(lane(consumers=1), lane("dead")), WORDS)
    assert screen.needs == ()
    (row,) = screen.sections[0].rows
    assert (row.lanes, row.empty, row.workers) == ((), 1, 1)


def test_of_very_many_subscriptions_quiet_ones_are_left_out_and_counted() -> None:
    quiet = [replace(lane(consumers=1), ground=f"quiet{number}") for number in range(MAX_ROWS + 5)]
    busy = replace(lane(entries=3), ground="busy")
    (section,) = first_screen(reading(*quiet, busy), WORDS).sections
    assert len(section.rows) == MAX_ROWS
    assert [row.ground for row in section.rows[-2:]] == [f"quiet{MAX_ROWS - 2}", "busy"]
    assert (section.left_out, section.left_busy) == (6, 0)
    assert section.command == "kodoctl status topologies/trade.yaml --all --context prod"
    (small,) = first_screen(reading(*quiet[:3]), WORDS).sections
    assert (len(small.rows), small.left_out) == (3, 0)


def test_of_very_many_busy_subscriptions_those_with_the_most_messages_are_shown_and_needs_are_bounded() -> None:
    busy = [replace(lane(entries=number + 1), ground=f"busy{number:04}") for number in range(MAX_ROWS + 50)]
    letters = replace(lane("dead", entries=10_000), ground="letters")
    screen = first_screen(reading(*busy, letters), WORDS)
    (section,) = screen.sections
    assert [section.rows[0].ground, section.rows[-1].ground] == ["busy0051", "letters"]
    assert (len(section.rows), section.left_out, section.left_busy) == (MAX_ROWS, 51, 51)
    assert (len(screen.needs), screen.more_needs) == (MAX_NEEDS, len(busy) + 1 - MAX_NEEDS)


def test_an_unknown_age_is_not_guessed() -> None:
    needs = first_screen(reading(lane("dead", entries=1)), WORDS).needs
    assert [one.text for one in needs] == ["orders / billing: dead letters, not counted yet"]


def test_live_orders_are_badges_once_each() -> None:
    screen = first_screen(reading(lane(steered="x"), lane("retrying", steered="x")), WORDS)
    (badge,) = screen.sections[0].rows[0].badges
    assert badge.startswith("steered by something workers cannot read")


def test_names_in_commands_are_quoted_for_a_shell() -> None:
    line = WORDS.line("kodoctl recall plan", "trade", "--topic", "a'; rm -rf /; '")
    assert shlex.split(line)[5] == "a'; rm -rf /; '"


DEAD = ("trade", "orders-billing-DLQ", "orders", "billing")


def test_dead_letters_are_named_by_cause_and_so_is_a_tenant_that_always_fails() -> None:
    status = reading(lane("dead", entries=30), lane(consumers=1))
    by_cause = CauseCount(CAUSE, 21, (("u13", 20), ("u7", 1))), CauseCount("handler took too long", 9)
    causes = LetterCauses(30, True, by_cause, (("u13", 24), ("u7", 6)), recalled=2)
    screen = first_screen(status, WORDS, causes={DEAD: causes}, tenants={("trade", "orders"): "customer"})
    (letters,) = screen.needs
    assert [text for text, _ in letters.lines] == [
        "21 × ValueError: card of order # was refused (u13 20, u7 1)", "9 × handler took too long",
        "24 of these are of customer u13",
    ]  # fmt: skip
    assert letters.means.startswith("2 letters had been sent again by a recall and failed again. No worker tries")
    assert letters.lines[1][1] == {
        "topology": "trade", "topic": "orders-billing-DLQ", "subscription": "billing",
        "where": "cause = 'handler took too long'",
    }  # fmt: skip
    assert (letters.lines[2][1] or {})["where"] == "tenant = 'u13'"
    assert "pause" not in letters.command, "letters that are dead do not die of another try"
    assert screen.sections[0].rows[0].dead.cause == "ValueError: card of order # was refused"  # type: ignore[union-attr]


def test_a_tenant_that_has_all_dead_letters_is_named_once() -> None:
    causes = LetterCauses(3, True, (CauseCount(CAUSE, 3, (("acme\nltd", 3),)),), (("acme\nltd", 3),))
    (letters,) = first_screen(reading(lane("dead", entries=3), lane(consumers=1)), WORDS, causes={DEAD: causes}).needs
    assert [text for text, _ in letters.lines] == ["3 × ValueError: card of order # was refused (all of acme\\nltd)"]


def test_a_message_that_was_moved_is_as_old_as_when_it_was_sent() -> None:
    status = reading(lane("dead", entries=3, oldest=NOW - 42_000), lane(consumers=1))
    causes = LetterCauses(3, True, (), entries=3, since=NOW - 1_200_000, oldest=NOW - 42_000)
    screen = first_screen(status, WORDS, causes={DEAD: causes})
    assert screen.needs[0].text == "orders / billing: 3 dead letters, the oldest sent 20 min ago"
    assert screen.sections[0].rows[0].dead.oldest == "sent 20 min ago"  # type: ignore[union-attr]


def test_causes_of_letters_that_are_gone_are_not_shown() -> None:
    screen = first_screen(reading(lane("dead"), lane(consumers=1)), WORDS, causes=FACTS.causes)
    assert screen.needs == ()
    assert screen.sections[0].rows[0].dead.cause == ""  # type: ignore[union-attr]
    empty = {DEAD: LetterCauses(0, False, ())}
    (need,) = first_screen(reading(lane("dead", entries=1), lane(consumers=1)), WORDS, causes=empty).needs
    assert need.lines == (("of the first 0 letters that were read", None),)


def test_an_apply_that_stopped_and_drift_need_a_person() -> None:
    quiet = reading(lane(consumers=1))
    stopped, drift = first_screen(quiet, WORDS, stopped=FACTS.stopped, drift=FACTS.drift).needs
    assert stopped.text == "kodo/trade: apply 4f2a is cut off: 3 of 9 changes done"
    assert stopped.command == "kodoctl apply topologies/trade.yaml --context prod"
    assert (drift.text, drift.style) == ("Drift: 2 objects. Read 5 min ago.", "open")
    assert drift.command == "kodoctl drift topologies --context prod"
    assert first_screen(quiet, WORDS, drift=replace(FACTS.drift, drifted=False)).needs == ()  # type: ignore[type-var]


def at(status: StatusReading, seconds: int) -> StatusReading:
    return replace(status, at=NOW + seconds * 1_000)


def test_a_lane_that_grows_over_the_readings_is_named() -> None:
    few, more = (reading(lane(consumers=1), lane("retrying", consumers=1, entries=count)) for count in (10, 400))
    (need,) = first_screen(at(more, 120), WORDS, at(few, 0)).needs
    assert need.text == "orders / billing: L1 retrying grew by 390 messages or batches in 2 min"
    assert first_screen(at(few, 120), WORDS, at(more, 0)).needs == ()


def test_messages_that_no_worker_takes_are_named_unless_somebody_paused_them() -> None:
    still = reading(lane(consumers=1, entries=3))
    (need,) = first_screen(at(still, 90), WORDS, at(still, 0)).needs
    assert need.text.endswith("workers are connected, messages are due, and none was delivered for 1.5 min")
    delayed = reading(lane(consumers=1, entries=3, delayed=3))
    assert first_screen(at(delayed, 90), WORDS, at(delayed, 0)).needs == (), "all of it waits for its time"
    pause = Override(OverrideKind.PAUSE, NOW - 1, NOW + 3_600_000, "root", lane="L1/ready")
    paused = reading(lane(consumers=1, entries=3, steered=overrides_text([pause])))
    assert first_screen(at(paused, 90), WORDS, at(paused, 0)).needs == ()


def test_a_row_draws_its_rates() -> None:
    rates = first_screen(NIGHT, WORDS).sections[0].rows[0].rates
    assert rates is not None
    assert rates.now == "in 90.0/s, out 20.0/s"
    assert make_screen(NIGHT, WORDS, RateHistory()).sections[0].rows[0].rates is None


def test_a_command_about_all_files_names_them_as_the_user_did() -> None:
    assert CommandWords({}, []).line_of_files("kodoctl drift") == "kodoctl drift"
    assert (
        CommandWords({}, ["--context", "p"], [], ["a b"]).line_of_files("kodoctl drift")
        == "kodoctl drift 'a b' --context p"
    )


def test_an_undo_that_stopped_is_not_finished_by_an_apply_of_the_same_file() -> None:
    stopped = StoppedApply("trade", "kodo/trade", "undo 4f2a is cut off: 3 of 9 changes done", undo=True)
    (need,) = first_screen(reading(lane(consumers=1)), WORDS, stopped=(stopped,)).needs
    assert need.command == "kodoctl plan topologies/trade.yaml --context prod"
    assert need.means.startswith("The rest is not taken back. Revert the change of the file")


def test_tenants_that_keep_failing_come_before_dead_letters_and_lanes_say_why_they_wait() -> None:
    lanes = [lane(state, consumers=1, entries=5) for state in ("retrying", "pending")]
    status = reading(lane(consumers=1), *lanes, lane("dead", entries=3))
    group = FailingGroup("acme", "ConnectionError", 5, NOW - 1_200_000, TryCount(2, 3, "dead letters"))
    retrying = LetterCauses(5, True, (CauseCount("ConnectionError", 5),), failing=(group,))
    causes = {
        ("trade", "orders-billing-RETRYING", "orders", "billing"): retrying,
        ("trade", "orders-billing-PENDING", "orders", "billing"): LetterCauses(
            5, True, (CauseCount("over its limit", 5),)
        ),
    }
    limits = {("trade", "orders", "billing", "pending"): "over its rate 100/s"}
    screen = first_screen(status, WORDS, causes=causes, limits=limits, tenants={("trade", "orders"): "customer"})
    (row,) = screen.sections[0].rows
    assert [(one.cause, one.is_late) for one in row.lanes] == [
        ("ConnectionError; failed at least 2 times, 3 tries left, then dead letters", False),
        ("over its rate 100/s", False),
    ]
    assert row.lanes[0].meaning.startswith("they failed")
    assert row.dead is not None
    assert row.dead.is_late
    failing, letters = screen.needs
    assert failing.text == "orders / billing: 5 messages of customer acme keep failing with ConnectionError"
    assert failing.means == (
        "The first of them was sent 20 min ago. Each failed at least 2 times, 3 tries left, then dead letters. A pause"
        " holds back all messages of this customer, good ones too, until it ends."
    )
    assert "kodo-consumer pause" in failing.command
    assert (failing.orders or {})["tenant"] == (failing.link or {})["where"].split("'")[1] == "acme"
    assert "dead letters" in letters.text
    pause = overrides_text([Override(OverrideKind.PAUSE, NOW - 1, NOW + 3_600_000, "root", tenant="acme")])
    paused = reading(*(replace(one, steered=pause) for one in lanes))
    assert first_screen(paused, WORDS, causes=causes).needs == ()
    other = overrides_text([Override(OverrideKind.PAUSE, NOW - 1, NOW + 3_600_000, "root", tenant="bank")])
    others = reading(*(replace(one, steered=other) for one in lanes))
    assert "acme keep failing" in first_screen(others, WORDS, causes=causes).needs[0].text
    lane_paused = overrides_text([Override(OverrideKind.PAUSE, NOW - 1, NOW + 3_600_000, "root", lane="L1/retrying")])
    whole = reading(*(replace(one, steered=lane_paused) for one in lanes))
    assert first_screen(whole, WORDS, causes=causes).needs == ()
    nobody = {next(iter(causes)): replace(retrying, failing=(group._replace(tenant="(none)"),))}
    need = first_screen(reading(*lanes), WORDS, causes=nobody).needs[0]
    assert (need.command, need.orders) == ("", None)


def test_letters_that_were_all_read_are_counted_and_else_entries_are_named() -> None:
    status = reading(lane("dead", entries=2), lane(consumers=1))
    found = LetterCauses(3, True, (CauseCount(CAUSE, 3),), entries=2)
    screen = first_screen(status, WORDS, causes={DEAD: found})
    assert screen.needs[0].text == "orders / billing: 3 dead letters"
    cell = screen.sections[0].rows[0].dead
    assert cell is not None
    assert (cell.messages, cell.title) == (3, "3 messages")
    assert cell.number == "3"
    for old in (replace(found, entries=1), replace(found, complete=False), replace(found, read=0)):
        later = first_screen(status, WORDS, causes={DEAD: old})
        least = {1: 2, 2: old.read or 2}[old.entries or 0]  # as many as were read, while the lane is the same
        assert later.needs[0].text == f"orders / billing: at least {least} dead letters"
        changed = "these causes are of an earlier count: they are counted again within seconds"
        assert (changed in [text for text, _ in later.needs[0].lines]) == (old.entries == 1)
        row = later.sections[0].rows[0]
        assert row.dead is not None
        assert (row.dead.number, row.dead.title) == (f"≥ {least}", f"at least {least} messages")

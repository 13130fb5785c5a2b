"""Headers of released and moved messages: all they had, except what tells them to wait."""

from __future__ import annotations

from kodoctl.protocol import properties as control
from kodoctl.recall.message.recall_headers import due_time, recalled_properties, released_properties
from tests.unit.recall.letters import DEAD, NOW, letter

WAITED = {
    control.ORIGIN_ID: "1:2:0:-1", control.ATTEMPTS_RETRYING: "3", control.HOP: "4", control.REASON: "ConnectionError",
    control.DUE: str(NOW + 5_000), control.RESERVED: str(NOW + 5_000), control.RELEASE: "old", control.RECALL: "r",
    control.SIGNATURE: "s", control.FOR: "billing", "uid": "u",
}  # fmt: skip


def test_counters_origin_and_reservation_stay_and_the_wait_ends() -> None:
    found = released_properties(letter(properties=WAITED), "new", "billing", due=0, ready=False)
    gone = {control.DUE, control.FOR, control.SIGNATURE}
    assert found == {name: value for name, value in WAITED.items() if name not in gone} | {control.RELEASE: "new"}


def test_on_a_ready_topic_it_names_its_subscription_and_in_a_waiting_lane_when_it_is_due() -> None:
    assert released_properties(letter(), "x", "billing", due=0, ready=True)[control.FOR] == "billing"
    moved = released_properties(letter(properties=WAITED), "x", "billing", due=NOW + 7, ready=False)
    assert moved[control.DUE] == str(NOW + 7)


def test_a_message_that_no_worker_moved_gets_its_origin() -> None:
    found = released_properties(letter(entry=7), "x", "billing", due=0, ready=False)
    assert (found[control.ORIGIN_ID], found[control.ORIGIN_TOPIC]) == ("1:7:0:-1", DEAD)


def test_a_message_that_no_route_shall_see_again_counts_as_moved() -> None:
    for hops, expected in ((None, "1"), ("0", "1"), ("no", "1"), ("7", "7")):
        properties = {} if hops is None else {control.HOP: hops}
        found = released_properties(letter(properties=properties), "x", "billing", due=0, ready=True)
        assert found[control.HOP] == expected


def test_a_recall_of_a_released_message_that_died_begins_anew() -> None:
    found = recalled_properties(letter(properties=WAITED), "id", "billing", ready=False)
    assert control.RELEASE not in found
    assert found[control.RECALL] == "id"


def test_a_due_time_is_the_messages_own_within_what_its_lanes_are_made_for() -> None:
    waits = letter(properties=WAITED)
    assert due_time(waits, NOW, 3_600_000) == NOW + 5_000
    assert due_time(waits, NOW, 1_000) == NOW + 1_000
    assert due_time(waits, NOW + 5_000, 3_600_000) == 0
    assert due_time(letter(), NOW, 3_600_000) == 0

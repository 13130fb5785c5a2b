"""Failover: a worker handles a partition only while the broker names it the active consumer, and for a while did so before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from kodo_consumer.core.state.failover_partitions import (
    ASK_EVERY,
    BEGUN,
    HAND_OVER,
    RESTS_AT_MOST,
    SETTLED,
    VALID,
    ActivePartitions,
)
from kodo_consumer.core.values.envelope import Delivery
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.protocol.properties import SEQ
from kodoctl.protocol.sequence_numbers import Number, new_run
from tests.unit.consumer.engine_bench import L1, Bench, delivery, policy

WE, OTHER = "we", "other"
FAILOVER = policy((L1,), (), ordered=True, partitions=2, subscription_type="failover")


def at(partition: int, number: int, key: str = "") -> Delivery:
    """A message of a partition, with its partition's key unless one is given."""
    one = delivery(number, key=key or f"k{partition}")
    return one._replace(entry=(7, number, partition), token=f"(7,{number},{partition},-1)")


class Failover(Bench):
    """A worker's engine on a failover topic; the broker's answers are given by hand."""

    def __init__(self, of: Policy = FAILOVER) -> None:
        super().__init__(of)
        self.lane = self.engine.lanes[0]
        self.lane.active = self.active = ActivePartitions(of, WE)

        self.emptied: dict[str, float] = {}

    def empty(self, *partitions: str) -> None:
        """The client library holds nothing of these partitions just now."""
        self.emptied |= dict.fromkeys(partitions, self.clock.now())

    def answer(self, named: Mapping[str, str] | None, *, ago: float = 0.0) -> None:
        """What the broker says, asked for some seconds ago."""
        self.engine.on_active_consumers(self.lane.lane.index, named, self.clock.now() - ago, self.emptied)

    def answers(self, named: Mapping[str, str], seconds: float) -> None:
        """The same answer again and again."""
        end = self.clock.now() + seconds
        self.answer(named)
        while self.clock.now() < end:
            self.later(ASK_EVERY)
            self.answer(named)

    def handled(self) -> list[str]:
        """Handles everything that may start, and names it."""
        ids = []
        while (message := self.engine.take()) is not None:
            ids.append(message.id)
            self.engine.finish(message, DONE)
        assert not self.engine.check_invariants()
        return ids


BOTH = {"0": WE, "1": WE}


def test_nothing_starts_before_the_broker_has_named_the_worker_for_the_time_of_a_hand_over() -> None:
    bench = Failover()
    bench.give(at(0, 1), at(1, 2))
    assert bench.take_all() == []
    bench.answers(BOTH, HAND_OVER - ASK_EVERY)
    assert bench.take_all() == []
    assert bench.engine.counts.received == 0
    bench.later(ASK_EVERY)
    bench.answer(BOTH)
    assert bench.handled() == ["7:1:0:-1", "7:2:1:-1"]
    bench.engine.on_disconnect(0)  # from one of the partitions, for less than a moment
    bench.give(at(0, 3))
    assert bench.handled() == ["7:3:0:-1"], "what comes later starts at once"


def test_whoever_was_active_before_starts_nothing_more_when_the_next_one_begins_even_if_it_hears_of_nothing() -> None:
    """Both on one clock: the first one's last answer was on its way when the broker named the second."""
    first, second = Failover(), Failover()
    first.answers({"0": WE}, HAND_OVER)
    first.give(*(at(0, number) for number in range(100)))
    second.clock.advance(first.clock.now() - second.clock.now())
    second.give(*(at(0, number) for number in range(100)))
    last_start, first_start = float("inf"), None
    for tick in range(60):
        if (message := first.engine.take()) is not None:  # asked for nothing since
            last_start = first.clock.now()
            first.engine.finish(message, DONE)
        if tick % 5 == 0:
            second.answer({"0": WE})
        if first_start is None and second.engine.take() is not None:
            first_start = second.clock.now()
        for bench in (first, second):
            bench.clock.advance(0.1)
    assert first_start is not None
    assert last_start < first_start


def test_of_a_partition_that_is_anothers_now_nothing_more_starts_and_the_others_go_on() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(*(at(number % 2, number) for number in range(8)))
    running = bench.engine.take()
    assert running is not None
    assert running.id == "7:0:0:-1"
    bench.later(ASK_EVERY)
    bench.answer({"0": OTHER, "1": WE})
    assert bench.handled() == ["7:1:1:-1", "7:3:1:-1", "7:5:1:-1", "7:7:1:-1"]
    assert bench.engine.counts.released == 3
    bench.engine.finish(running, DONE)
    assert 0 in bench.acknowledged(), "what ran is acknowledged by whoever ran it"
    assert not bench.engine.check_invariants()


def test_what_was_let_go_is_handled_in_order_when_the_partition_is_regained_and_comes_again() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(*(at(0, number) for number in range(4)))
    bench.later(ASK_EVERY)
    bench.answer({"0": OTHER, "1": WE})
    bench.give(*(at(0, number) for number in range(4, 8)))  # was in the client's queue all the time
    bench.give(
        *(at(0, number) for number in range(2, 8))
    )  # regained: the broker begins anew with what is not acknowledged
    assert bench.take_all() == []
    bench.answers(BOTH, BEGUN)
    bench.empty("0")
    bench.answers(BOTH, HAND_OVER)
    assert bench.handled() == [f"7:{number}:0:-1" for number in range(2, 8)]


def test_what_came_before_an_answer_that_names_another_is_let_go_and_what_came_after_may_be_ours() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.answer({"0": OTHER, "1": WE})
    bench.give(at(0, 5))
    bench.later(0.2)
    bench.give(at(0, 7))
    bench.answer({"0": OTHER, "1": WE}, ago=0.1)
    bench.answers(BOTH, BEGUN)
    bench.empty("0")
    bench.answers(BOTH, HAND_OVER)
    assert bench.handled() == ["7:7:0:-1"]


def test_what_comes_while_the_answer_is_on_its_way_may_have_been_sent_after_the_partition_was_regained() -> None:
    """It is kept for the next answer: a message that was sent once and released would come to nobody."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1), at(0, 2))
    bench.later(0.2)
    bench.give(at(0, 2), at(0, 3))  # the broker sends 2 again: acknowledged was up to 1
    bench.answer({"0": OTHER, "1": WE}, ago=0.1)
    assert bench.take_all() == []
    bench.answers(BOTH, BEGUN)
    bench.empty("0")
    bench.answers(BOTH, HAND_OVER)
    assert bench.handled() == ["7:2:0:-1", "7:3:0:-1"]


def test_a_key_of_two_partitions_goes_on_where_one_of_them_is_lost() -> None:
    """Keys change their partitions when a topic gets more of them."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1, "k"), at(1, 2, "k"), at(0, 3, "k"))
    bench.later(ASK_EVERY)
    bench.answer({"0": OTHER, "1": WE})
    assert bench.handled() == ["7:2:1:-1"]


def test_a_partition_without_an_active_consumer_is_nobodys() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1), at(1, 2))
    bench.later(ASK_EVERY)
    bench.answer({"0": "", "1": ""})
    assert bench.take_all() == []
    assert bench.engine.counts.released == 2


def test_a_partition_that_an_answer_leaves_out_is_not_anothers_and_what_is_held_of_it_is_kept() -> None:
    """Its broker was away for a moment, and its consumer is who it was: released messages would never come again."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1), at(1, 2))
    bench.later(ASK_EVERY)
    bench.answer({"1": WE})
    bench.later(ASK_EVERY)
    bench.answer(BOTH)
    assert bench.engine.counts.released == 0
    assert bench.handled() == ["7:1:0:-1", "7:2:1:-1"]


def test_a_partition_that_is_left_out_for_good_is_read_anew_should_it_come_back() -> None:
    """Somebody deleted it."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1), at(1, 2))
    assert bench.handled()[1:] == ["7:2:1:-1"]
    bench.give(at(0, 3), at(1, 4))
    bench.answers({"1": WE}, VALID)
    assert bench.handled() == ["7:4:1:-1"]
    assert bench.engine.context.effects.anew == []
    bench.answers(BOTH, HAND_OVER)
    assert bench.engine.context.effects.anew == [(0, "0")]
    bench.engine.on_disconnect(0, "0")
    bench.give(at(0, 3))
    bench.answers(BOTH, HAND_OVER)
    assert bench.handled() == ["7:3:0:-1"]
    assert bench.engine.context.effects.anew == [(0, "0")], "once"


def test_what_is_kept_takes_of_the_room_and_is_handed_over_once() -> None:
    bench = Failover(policy((L1,), (), ordered=True, subscription_type="failover", lookahead_messages=1_000))
    room = bench.engine.room(0)
    bench.give(*(at(0, number) for number in range(50)))
    assert bench.engine.room(0) == room - 50
    bench.give(*(at(0, number) for number in range(50, 1_000)))
    assert bench.engine.room(0) == 0
    bench.answers(BOTH, HAND_OVER)
    assert bench.engine.context.effects.resume, "it is asked for more"
    assert len(bench.handled()) == 1_000
    assert bench.engine.room(0) == room


def test_few_large_messages_are_kept() -> None:
    bench = Failover(policy((L1,), (), ordered=True, subscription_type="failover", lookahead_bytes=1_000))
    bench.give(*(at(0, number)._replace(payload=b"x" * 300) for number in range(2)))
    assert bench.engine.room(0) == 0


def test_what_the_client_holds_comes_out_before_a_partition_is_regained_however_full_the_look_ahead_is() -> None:
    of = policy((L1,), (), ordered=True, subscription_type="failover", lookahead_messages=100)
    bench = Failover(of)
    bench.answers(BOTH, HAND_OVER)
    bench.give(*(at(1, number) for number in range(of.max_held)))
    assert bench.engine.room(0) == 0
    bench.answer({"0": OTHER, "1": WE})
    bench.answers(BOTH, HAND_OVER - ASK_EVERY)
    number = 1_000
    while bench.engine.room(0):  # the client is never empty of the partition
        bench.give(at(0, number))
        number += 1
    assert number == 1_000 + 2 * of.queue + 1_000 + 1, "leftovers, and one that the broker sent after them"
    bench.later(ASK_EVERY)
    bench.answer(BOTH)
    assert bench.engine.context.effects.anew == []
    assert "7:1000:0:-1" in bench.handled()


@pytest.mark.parametrize("a_second", [1, 5, 15, 40, 300, 2_000])
def test_a_partition_that_comes_back_is_handled_again_in_time_at_any_rate_of_arrival(a_second: int) -> None:
    """A worker joined and left; the other partition never changed hands, and messages of both come all the time."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.answer({"0": OTHER, "1": WE})
    began, number, due, ask_at = bench.clock.now(), 0, 0.0, 0.0
    started: list[str] = []
    while not (started := [name for name in bench.handled() if name.split(":")[2] == "0"]):
        passed = bench.clock.now() - began
        assert passed <= RESTS_AT_MOST
        while due <= passed:
            bench.give(at(number % 2, number))
            number, due = number + 1, due + 1 / a_second
        bench.engine.room(0)
        bench.empty("0", "1")
        if passed >= ask_at:
            ask_at += ASK_EVERY
            bench.answer(BOTH)
        bench.clock.advance(0.02)
    assert bench.engine.context.effects.anew == [], "without a new consumer"
    assert started[0] == "7:0:0:-1", "what came first"


def test_leftovers_that_came_out_start_before_nothing_that_comes_again() -> None:
    """The look-ahead is full of another partition's messages: what the broker sends again stays in the client at first."""
    bench = Failover(policy((L1,), (), ordered=True, subscription_type="failover", lookahead_messages=100))
    bench.answers(BOTH, HAND_OVER)
    bench.give(*(at(0, number) for number in range(2)), *(at(1, number) for number in range(98)))
    bench.answer({"0": OTHER, "1": WE})
    bench.give(at(0, 2))  # was in the client's queue
    bench.later(SETTLED)
    bench.empty("0")
    bench.give(*(at(1, number) for number in range(98, 100)))
    bench.answer(BOTH)
    assert bench.engine.room(0) == 1, "for what may come again"
    bench.give(at(0, 0))
    assert bench.engine.room(0) == 0
    bench.answers(BOTH, HAND_OVER)
    assert [name for name in bench.handled() if name.endswith(":0:-1")] == ["7:0:0:-1"], "2 comes again behind 0 and 1"
    assert bench.engine.context.effects.anew == []


def test_leftovers_behind_which_nothing_comes_and_that_may_hide_it_are_read_anew() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.answer({"0": OTHER, "1": WE})
    bench.give(at(0, 2))
    bench.later(SETTLED)
    bench.empty("0")  # and never again
    bench.answers(BOTH, HAND_OVER)
    assert bench.handled() == []
    assert bench.engine.context.effects.anew == [(0, "0")]
    bench.give(at(0, 0))  # from before: it comes again
    bench.engine.on_disconnect(0, "0")
    bench.answer({"0": OTHER, "1": WE})  # while its consumer is a new one
    bench.give(at(0, 0), at(0, 2))
    bench.answers(BOTH, HAND_OVER)
    assert bench.handled() == ["7:0:0:-1", "7:2:0:-1"]
    assert bench.engine.context.effects.anew == [(0, "0")], "once"


def test_a_partition_waits_for_no_other_ones_leftovers() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.answer({"0": OTHER, "1": OTHER})
    bench.answer(BOTH)
    bench.later(SETTLED)
    bench.empty("1")
    bench.answer(BOTH)
    bench.give(at(0, 1), at(1, 2))
    bench.answers(BOTH, HAND_OVER)
    assert bench.handled() == ["7:2:1:-1"]


def test_leftovers_that_came_after_the_client_was_empty_too_soon_are_waited_for() -> None:
    """What the broker had sent before it named the other one may still be on its way."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.answer({"0": OTHER, "1": WE})
    bench.later(SETTLED - 0.1)
    bench.empty("0")
    bench.answers(BOTH, HAND_OVER - ASK_EVERY)
    bench.give(at(0, 1))
    bench.answers(BOTH, ASK_EVERY)
    assert bench.handled() == []
    assert bench.engine.context.effects.anew == [(0, "0")]


def test_a_partition_whose_leftovers_do_not_come_out_is_read_anew_once_and_handled_after_a_hand_over() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1))
    bench.answer({"0": OTHER, "1": WE})
    bench.answers(BOTH, HAND_OVER)
    assert bench.engine.context.effects.anew == [(0, "0")]
    bench.give(at(0, 1))  # from before: it comes again
    bench.answers(BOTH, ASK_EVERY)
    bench.engine.on_disconnect(0, "0")
    bench.answer({"0": OTHER, "1": WE})  # while its consumer is a new one
    bench.give(at(0, 1), at(0, 2))
    bench.answers(BOTH, HAND_OVER)
    assert bench.handled() == ["7:1:0:-1", "7:2:0:-1"]
    assert bench.engine.context.effects.anew == [(0, "0")]


def test_the_only_reader_misses_nothing_of_what_another_read_while_it_was_active() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(*(_numbered(number) for number in (1, 2)))
    bench.answers({"0": OTHER, "1": WE}, ASK_EVERY)  # which reads number 3
    bench.answers(BOTH, BEGUN)
    bench.empty("0")
    bench.answers(BOTH, HAND_OVER)
    bench.give(_numbered(4))
    bench.later(1)
    bench.later(600)
    assert "missing" not in bench.alarms()


def _numbered(number: int) -> Delivery:
    run = new_run(START_WALL - 3_600_000, "abcd")  # older than the reader
    return at(0, number)._replace(properties={SEQ: str(Number(run, 0, number))})


def test_where_several_workers_are_expected_nobody_counts() -> None:
    bench = Failover(replace(FAILOVER, expected_workers=2))
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1))
    bench.answer({"0": OTHER, "1": WE})
    assert bench.engine.counts.released == 1


@pytest.mark.parametrize(
    ("text", "numbers"), [("partition 0", ["0"]), ("partitions 0, 1, 10", ["0", "1", "10"]), ("the topic", ["-1"])]
)
def test_hand_overs_are_told(caplog: pytest.LogCaptureFixture, text: str, numbers: list[str]) -> None:
    caplog.set_level("INFO", "kodo.consumer")
    bench = Failover()
    bench.answers(dict.fromkeys(numbers, WE), HAND_OVER)
    assert f"active for {text}" in caplog.text
    bench.answer(dict.fromkeys(numbers, OTHER))
    assert f"another worker is active for {text}: what has not started is released" in caplog.text


def test_a_partition_whose_answer_ends_after_another_one_lapsed_starts_nothing_either() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.later(ASK_EVERY)
    bench.answer({"1": WE})
    bench.later(VALID - ASK_EVERY)
    bench.give(at(1, 1))
    bench.clock.advance(ASK_EVERY)
    assert bench.take_all() == []
    bench.answer(None)
    assert bench.engine.counts.released == 1

"""Failover: how long an answer of the broker counts, and what happens to what a worker has without one."""

from __future__ import annotations

from kodo_consumer.core.state.failover_partitions import ASK_EVERY, HAND_OVER, VALID
from kodo_consumer.core.values.outcomes import DONE

from tests.unit.consumer.core.engine.test_redelivery import BOTH, OTHER, WE, Failover, at


def test_without_a_valid_answer_nothing_starts_with_an_alarm_and_then_a_hand_over_has_to_pass_again() -> None:
    bench = Failover()
    bench.answer(None)
    assert bench.alarms() == [], "not asked long enough"
    bench.answers(BOTH, HAND_OVER)
    bench.give(*(at(0, number) for number in range(3)))
    first = bench.engine.take()
    assert first is not None
    bench.engine.finish(first, DONE)
    bench.later(VALID - 0.1)
    bench.answer(None)
    assert bench.alarms() == []
    bench.later(0.1)
    bench.answer(None)
    assert bench.alarms() == ["active"]
    assert bench.take_all() == []
    bench.answer(BOTH)
    bench.engine.on_disconnect(0)
    bench.give(*(at(0, number) for number in range(1, 3)))
    bench.answers(BOTH, HAND_OVER - ASK_EVERY)
    assert bench.take_all() == []
    bench.later(ASK_EVERY)
    bench.answer(BOTH)
    assert bench.handled() == ["7:1:0:-1", "7:2:0:-1"]


def test_a_worker_that_is_never_told_who_is_active_says_so() -> None:
    """The role may not ask, or each answer comes too late to be valid."""
    bench = Failover()
    bench.answer(None)
    bench.later(VALID)
    assert bench.alarms() == []
    bench.answer(None)
    assert bench.alarms() == ["active"]
    late = Failover()
    late.answer(BOTH, ago=VALID)
    assert late.alarms() == ["active"]
    assert late.engine.context.effects.anew == [], "nothing is read anew for an answer that is not valid"


def test_what_a_worker_holds_after_a_time_without_answers_counts_no_more_and_all_of_it_comes_again() -> None:
    """Another one may have been active meanwhile and have handled it, which nobody is told."""
    bench = Failover()
    bench.answers({"0": WE}, HAND_OVER)
    bench.give(*(at(0, number) for number in range(10)))
    running = bench.engine.take()
    assert running is not None
    bench.later(VALID)
    assert bench.take_all() == []
    assert bench.engine.counts.released == 9
    bench.answer({"0": WE})
    assert bench.engine.context.effects.anew == [(0, "0")]
    bench.give(*(at(0, number) for number in range(10, 20)))  # was in the client's queue: another may have had it
    bench.answers({"0": WE}, HAND_OVER + ASK_EVERY)
    assert bench.take_all() == []
    assert bench.engine.context.effects.anew == [(0, "0")], "once"
    bench.engine.on_disconnect(0, "0")
    bench.give(at(0, 0), *(at(0, number) for number in range(15, 20)))  # what the other one left
    bench.engine.finish(running, DONE)
    bench.answers({"0": WE}, ASK_EVERY)
    assert bench.handled() == [f"7:{number}:0:-1" for number in range(15, 20)]
    assert bench.acknowledged().count(0) == 2, (
        "what ran all the time is acknowledged when it ends and when it comes again"
    )


def test_what_comes_between_the_end_of_an_answer_and_the_next_one_comes_again() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.later(VALID)
    bench.engine.advance(bench.clock.now())
    bench.give(at(0, 1))
    assert bench.engine.counts.received == 0
    bench.answer({"0": OTHER, "1": WE})
    bench.answers(BOTH, HAND_OVER)
    assert bench.engine.context.effects.anew == [(0, "1"), (0, "0")]
    assert bench.take_all() == []


def test_a_partition_whose_answer_lapsed_does_not_rest_here_once_another_worker_has_it() -> None:
    """`/readyz` went on to say that nobody was named for the partition, for as long as the other worker had it."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.later(VALID)
    bench.engine.advance(bench.clock.now())
    assert [number for number, _ in bench.active.waiting(bench.clock.now())] == ["0", "1"]
    bench.answer({"0": OTHER})
    assert [number for number, _ in bench.active.waiting(bench.clock.now())] == ["1"]


def test_one_answer_without_a_partition_that_lapsed_here_and_is_anothers_now_is_no_alarm() -> None:
    """A broker that answers late is left out for a moment, and the answer before is still valid."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.answers({"1": WE}, VALID)
    assert bench.alarms() == ["active"]
    bench.later(ASK_EVERY)
    bench.answer({"0": OTHER, "1": WE})
    bench.answers({"1": WE}, VALID + ASK_EVERY)
    assert bench.alarms() == ["active"], "none since another worker was named"
    assert bench.active.waiting(bench.clock.now()) == [], "nor does it rest here when the answer lapses"
    bench.answer(BOTH)
    assert bench.engine.context.effects.anew == [(0, "0")], "another worker may have handled what came of it"


def test_a_topic_whose_messages_come_and_for_which_no_answer_does_rests() -> None:
    bench = Failover()
    bench.answer(None)
    bench.give(at(0, 1))
    bench.later(VALID - 0.1)
    assert bench.active.waiting(bench.clock.now()) == []
    bench.later(0.1)
    assert bench.take_all() == []
    any_rests = [("any", "the admin API does not name the active consumers")]
    assert bench.active.waiting(bench.clock.now()) == any_rests
    bench.answer({})
    assert bench.active.waiting(bench.clock.now()) == []
    bench.later(VALID)
    assert bench.active.waiting(bench.clock.now()) == any_rests, "the answer named nobody for any partition"
    bench.answer({"0": OTHER})
    bench.later(VALID)
    assert bench.active.waiting(bench.clock.now()) == [], "another worker was named"


def test_while_a_broker_is_away_its_partitions_stop_and_the_others_go_on() -> None:
    """Answers leave out what the broker that is away has."""
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1), at(1, 2))
    bench.engine.on_disconnect(0, "0")
    assert bench.handled() == ["7:2:1:-1"]
    for number in range(3, 60):
        bench.later(ASK_EVERY)
        bench.answer({"1": WE})
        bench.give(at(1, number))
        assert bench.handled() == [f"7:{number}:1:-1"], "at each moment"
    assert bench.alarms() == ["active"] * 54, "told while it lasts"
    bench.engine.on_disconnect(0, "0")  # its consumer is a new one
    bench.give(at(0, 1))
    bench.answers({"0": WE, "1": WE}, HAND_OVER)
    assert bench.handled() == ["7:1:0:-1"]
    assert bench.engine.context.effects.anew == []


def test_an_answer_counts_from_when_it_was_asked_for() -> None:
    bench = Failover()
    bench.answers(BOTH, HAND_OVER)
    bench.give(at(0, 1))
    bench.answer(BOTH, ago=VALID - 0.1)
    bench.later(0.2)
    assert bench.take_all() == []

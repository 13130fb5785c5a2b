"""Confirmations: results by tickets, copies of messages whose result is unknown, and limits."""

from __future__ import annotations

from kodo_consumer.core.state.confirmations import Confirmations
from kodo_consumer.core.values.outcomes import DONE

from tests.unit.consumer.engine_bench import Bench, delivery, policy


def _tickets(bench: Bench) -> list[int]:
    """Tickets of the lane that is ready, after as many tokens were fetched."""
    confirmations = _confirmations(bench)
    ((_, tokens),) = bench.engine.acknowledgements()
    (tickets,) = confirmations.take_tickets().values()
    assert len(tokens) == len(tickets)
    return list(tickets)


def _confirmations(bench: Bench) -> Confirmations:
    found = bench.engine.context.confirmations
    assert found is not None
    return found


def _done(bench: Bench, *numbers: int, payload: bytes = b"x") -> list[int]:
    """Messages are received and done; returns their tickets."""
    bench.give(*(delivery(number, payload) for number in numbers))
    for message in bench.take_all():
        bench.engine.finish(message, DONE)
    return _tickets(bench)


def test_each_message_is_confirmed_once_and_until_its_hooks_were_called_the_engine_is_busy() -> None:
    bench = Bench(policy(), confirms=True)
    first, second = _done(bench, 1, 2)
    confirmations = _confirmations(bench)
    assert bench.engine.busy
    (ended,) = confirmations.take_results([first, 99], [])
    assert ended.delivery.token == "(7,1,0,-1)"
    assert confirmations.take_results([first], [first]) == []
    confirmations.end([ended])
    assert confirmations.awaited == 1
    assert confirmations.take_results([], [second]) == []
    assert not bench.engine.busy
    assert not confirmations.take_tickets()


def test_the_copy_of_a_message_with_an_unknown_result_may_still_be_confirmed() -> None:
    bench = Bench(policy(), confirms=True)
    lost, known = _done(bench, 1, 2)
    confirmations = _confirmations(bench)
    confirmations.take_results([known], [lost])
    bench.give(delivery(1), delivery(2))
    assert bench.take_all() == [], "both were done"
    again, nobody_waits = _tickets(bench)
    assert nobody_waits == 0
    (ended,) = confirmations.take_results([again, nobody_waits], [])
    assert ended.delivery.token == "(7,1,0,-1)"
    bench.give(delivery(1))
    assert _tickets(bench) == [0]


def test_beyond_its_limits_a_lane_has_no_room_until_messages_are_confirmed() -> None:
    bench = Bench(policy(lookahead_bytes=1_000_000), confirms=True)
    lane = next(lane.index for lane in bench.policy.lanes if lane.topic.endswith("L1-ready"))
    assert bench.engine.room(lane) > 0
    (ticket,) = _done(bench, 1, payload=b"x" * 1_000_000)
    assert bench.engine.room(lane) == 0
    confirmations = _confirmations(bench)
    ended = confirmations.take_results([ticket], [])
    assert bench.engine.room(lane) == 0, "its hooks were not called yet"
    confirmations.end(ended)
    assert bench.engine.room(lane) > 0


def test_only_the_last_messages_with_unknown_results_are_kept() -> None:
    bench = Bench(policy(lookahead_bytes=1_000_000), confirms=True)
    confirmations = _confirmations(bench)
    confirmations.take_results([], _done(bench, *range(1_001)))
    confirmations.take_results([], _done(bench, 2_000, payload=b"x" * 1_000_000))
    bench.give(delivery(0), delivery(1_000), delivery(2_000))
    assert _tickets(bench) == [0, 0, 0]
    confirmations.take_results([], _done(bench, 2_001))
    bench.give(delivery(2_001))
    assert _tickets(bench) != [0]

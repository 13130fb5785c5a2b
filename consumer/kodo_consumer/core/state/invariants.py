"""Proof by counting: stages in the records of messages, compared with the sizes of the structures they wait in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kodo_consumer.core.state.in_flight import InFlight, LaneState, Stage


def contradictions(
    lanes: Sequence[LaneState], timers: Iterable[tuple[int, object]], counted: Mapping[Stage, int]
) -> list[str]:
    """Contradictions to "every unacknowledged message is in exactly one stage", in words, found by counting; empty
    unless there is a bug. Needs the worker's lock. `timers`: (number, target); `counted`: messages by stage, as other
    structures count them. Compared are the stages in `counted`, and QUEUED, BLOCKED_BY_KEY, WAITING and RELEASED, no
    others.
    """
    stages = [in_flight.stage for lane in lanes for in_flight in lane]
    found = {
        Stage.QUEUED: sum(len(lane.ring) for lane in lanes),
        Stage.BLOCKED_BY_KEY: sum(
            len(key_queue) - 1 for lane in lanes for key_queue in (lane.key_queues or {}).values()
        ),
        Stage.WAITING: sum(1 for number, target in timers if _sleeps(target, number)),
        Stage.RELEASED: 0,
        **counted,
    }
    return [
        f"{stages.count(stage)} {stage.name.lower()} by record, {count} by structure"
        for stage, count in found.items()
        if stages.count(stage) != count
    ]


def _sleeps(target: object, number: int) -> bool:
    return isinstance(target, InFlight) and target.stage is Stage.WAITING and target.waits.timer_id == number

"""Builders: policies, messages and engines in the few words a test needs."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from kodo_consumer.core.engine.engine import Engine
from kodo_consumer.core.state.observer import DecisionObserver
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.delay_schedule import DelaySchedule
from kodo_consumer.core.values.envelope import Delivery, Level, State
from kodo_consumer.core.values.outcomes import Failed
from kodo_consumer.core.values.policy import Lane, Policy, Target
from kodo_consumer.message import Message
from kodo_consumer.testing import ManualClock
from kodo_consumer.testing.manual_clock import START_WALL

L1, L2, B1 = Level.L1, Level.L2, Level.B1
FAILED = Failed("ValueError")
STATES = (State.RETRYING, State.PENDING, State.BLOCKING)
WAITS: Mapping[State | None, DelaySchedule] = {
    State.RETRYING: DelaySchedule((10_000, 60_000, 300_000), 3),
    State.PENDING: DelaySchedule((60_000,), 2),
    State.BLOCKING: DelaySchedule((3_600_000,), 2),
    None: DelaySchedule((1_000, 60_000), 3),
}


def policy(
    levels: tuple[Level, ...] = (Level.L2, Level.L1, Level.B1),
    states: tuple[State, ...] = STATES,
    draining: tuple[Level | State, ...] = (),
    *,
    dead: bool = True,
    ordered: bool = False,
    partitions: int = 1,
    **changes: Any,
) -> Policy:
    """A subscription `s` on ground `t`; what is draining is read and no target. Lanes weigh 1."""
    places = [(level, state) for level in levels for state in (State.READY, *(() if level.is_backup else states))]
    off = {place for place in places if place[0] in draining or place[1] in draining}
    lanes = tuple(
        Lane(i, level, state, topic(level, state), 1, 1 / len(places), (level, state) in off,
             ordered and state is State.READY, partitions, "p/n/t:s")
        for i, (level, state) in enumerate(places)
    )  # fmt: skip
    values: dict[str, Any] = {
        "ground": "t",
        "subscription": "s",
        "lanes": lanes,
        "targets": {place: Target(*place, topic(*place)) for place in places if place not in off},
        "dead_letter": Target(Level.L1, State.DEAD, topic(Level.L1, State.DEAD)) if dead else None,
        "waits": WAITS,
        "horizon": 3_600_000,
        "in_place": (2_000, 3_000, 5_000),
        "concurrency": 64,
        "produces": {"other": "persistent://p/n/other"},
    }
    return Policy(**(values | changes))


def topic(level: Level, state: State) -> str:
    """A readable name for a lane's topic."""
    return f"persistent://p/n/t-{level}-{state}"


def lane_of(of: Policy, level: Level, state: State) -> int:
    """Index of a lane."""
    return next(lane.index for lane in of.lanes if (lane.level, lane.state) == (level, state))


def delivery(number: int = 0, payload: bytes | None = b"x", key: str = "", **properties: Any) -> Delivery:
    """Message number `number`; keyword arguments are properties (`kodo_hop` for `kodo-hop`)."""
    texts = {name.replace("_", "-") if name.startswith("kodo_") else name: str(v) for name, v in properties.items()}
    return Delivery(number, f"(7,{number},0,-1)", payload, texts, key, "", 0, START_WALL)


class Bench:
    """An engine on a manual clock, with its effects in sight."""

    def __init__(self, of: Policy, observer: DecisionObserver | None = None, *, confirms: bool = False) -> None:
        self.clock = ManualClock()
        self.engine = Engine(of, self.clock, Random(1), observer=observer, confirms=confirms)
        self.policy = of
        self.acked: list[str] = []

    def give(self, *deliveries: Delivery, level: Level = Level.L1, state: State = State.READY) -> None:
        """Messages arrive on a lane."""
        self.engine.deliver(lane_of(self.policy, level, state), deliveries)

    def take_all(self) -> list[Message]:
        """Everything that may start now."""
        taken = []
        while (message := self.engine.take()) is not None:
            taken.append(message)
        return taken

    def take_one(self) -> Message:
        """The only message that may start now."""
        [message] = self.take_all()
        return message

    def later(self, seconds: float) -> None:
        """Time passes in one leap."""
        self.clock.advance(seconds)
        self.engine.tick()

    def published(self) -> list[Any]:
        """(ticket, message) of everything to be published, fetched once."""
        found, self.engine.context.effects.publish = self.engine.context.effects.publish, []
        return found

    def acknowledged(self) -> list[int]:
        """Numbers acknowledged so far, in order."""
        for _, tokens in self.engine.acknowledgements():
            self.acked += [str(token) for token in tokens]
        return [int(token.split(",")[1]) for token in self.acked]

    def alarms(self) -> list[str]:
        """Kinds of alarms so far."""
        return [alarm.kind for alarm in self.engine.context.effects.alarms]


def store_all(bench: Bench) -> list[str]:
    """The broker stores everything that is out; answers the topics."""
    out = bench.published()
    for ticket, _ in out:
        bench.engine.receipt(ticket, Confirmed("x"))
    return [message.topic for _, message in out]

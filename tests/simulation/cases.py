"""A message's fate: what it carries and what its handler makes of it, run after run."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.outcomes import (
    DONE,
    DeadLettered,
    DependencyUnavailable,
    Discarded,
    Failed,
    MoveAsked,
    Outcome,
    PostponeAsked,
    RetryAsked,
    StateAsked,
    TransferAsked,
)
from kodo_consumer.core.values.policy import Lane

if TYPE_CHECKING:
    from tests.simulation.world import World

_KINDS = {
    "fine": 60, "flaky": 12, "failing": 6, "retry": 4, "pending": 4, "blocking": 3, "dead": 2, "discard": 2,
    "move": 2, "transfer": 2, "stray": 1, "down": 3, "hangs": 1, "postpone": 4,
}  # fmt: skip
_DRAW = [kind for kind, weight in _KINDS.items() for _ in range(weight)]


class Case:
    """`ended`: done, discarded, dead or transferred, so often. `excuses`: faults that may have made it end once more.
    `forged`: it came with control properties of somebody's making. `foreign`: meant for another subscription.
    `transferred_as`: the identity of the message that replaced it.
    """

    __slots__ = ("dead", "ended", "excuses", "foreign", "forged", "kind", "name", "runs", "times", "transferred_as")

    def __init__(self, name: str, rng: Random) -> None:
        self.name = name
        self.kind = rng.choice(_DRAW)
        self.times = rng.randint(1, 6)
        self.forged = self.foreign = False
        self.runs = self.ended = self.dead = self.excuses = 0
        self.transferred_as = ""

    def __repr__(self) -> str:
        return f"message {self.name} ({self.kind} {self.times}, run {self.runs} times)"

    def run(self, world: World, lane: Lane) -> tuple[float, Outcome]:
        """Seconds the handler takes, and what comes of it."""
        self.runs += 1
        seconds = world.rng.random() ** 3 * 0.3
        if self.kind == "fine":
            return seconds, DONE
        if self.kind == "hangs" and self.runs == 1:
            return world.rng.choice([10.0, 30.0]) + seconds, DONE
        return seconds, self._outcome(world, lane)

    def _outcome(self, world: World, lane: Lane) -> Outcome:
        over = world.healed or self.runs > self.times
        match self.kind:
            case "failing" if not world.healed:
                return Failed("always")
            case "dead":
                return DONE if world.healed_long_ago else DeadLettered("bad")
            case "discard":
                return Discarded("of no use")
            case "transfer" if self.times > 1:
                return TransferAsked("shipments")
            case _ if over:
                return DONE
            case "retry":
                return RetryAsked(world.rng.choice([None, 0, 500, 7_000, 10**10]), "later")
            case "pending":
                return StateAsked(State.PENDING, "asked")
            case "blocking":
                return StateAsked(State.BLOCKING, "asked")
            case "move":
                return MoveAsked(world.rng.choice([Level.L1, Level.L2, Level.B1]))
            case "postpone":
                return PostponeAsked(world.rng.choice([0, 500, 7_000, 10**10]), None, "")
            case "down":
                return DependencyUnavailable("psp")
            case "transfer" | "stray":
                return TransferAsked("nowhere")
            case "flaky":
                return Failed("for now")
            case _:
                return DONE

"""Where a subscription isolates, one tenant sends far more than a worker holds: what it has too much of is moved aside.
Some of the moves end with the worker's death after the copy is stored and before anybody hears of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.core.values.policy import Policy

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

TENANT = "a"
_BATCH = 25


class Flood:
    """`moved`: messages that were moved aside, `killed`: workers that died between the copy and its receipt."""

    def __init__(self, world: World, policies: tuple[Policy, ...]) -> None:
        self.world = world
        self.moved = self.killed = 0
        self.isolates = any(policy.isolate is not None for policy in policies)
        self._topics = [
            lane.topic for lane in policies[0].lanes if lane.topic in world.ready and not lane.level.is_backup
        ]
        self._fatal: set[int] = set()  # moves that their worker does not survive
        self._doomed: list[Outgoing] = []  # such moves that are on their way

    def begin(self) -> None:
        """One flood or two, soon."""
        if not self.isolates:
            return
        rng = self.world.rng
        self._fatal = {rng.randint(1, 60) for _ in range(rng.choice([0, 1, 2]))}
        for _ in range(rng.choice([1, 2])):
            self.world.after(rng.random() * 5, self._pour)

    def _pour(self) -> None:
        world, rng = self.world, self.world.rng
        topic, left = rng.choice(self._topics), rng.choice([100, 150, 250])
        while left > 0 and world.unsent:
            world.send(topic, min(_BATCH, left, world.unsent), TENANT)
            left -= _BATCH

    def leaves(self, process: Process, message: Outgoing) -> None:
        """A worker moves a message aside."""
        self.moved += 1
        if self.moved in self._fatal and not self.world.healed and not process.draining:
            self._doomed.append(message)

    def stored(self, process: Process, messages: list[tuple[int, Outgoing]]) -> None:
        """The broker has these; nobody has told their worker yet."""
        if self._doomed and process.alive and any(one is doomed for _, one in messages for doomed in self._doomed):
            self.killed += 1
            self.world.faults.kill_this(process)

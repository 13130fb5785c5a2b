"""How a run begins. A part of the seeds begin with full lanes and one worker that holds all of it: what it starts then is
held against the exact weights of lanes and the turns of tenants (a quiet tenant waits for its turn, not for the noisy one).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from kodo_consumer.core.state.fairness import START_COST
from kodo_consumer.core.values.policy import Lane, Policy

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

_FLOOD = 300  # messages of a full opening


class Opening:
    """Full lanes, or just some processes and a producer."""

    def __init__(self, world: World) -> None:
        self.world = world
        policy = world.shape.policies[0]
        ordered = any(lane.ordered for lane in policy.lanes)
        alone = (
            len(world.shape.policies) == 1
            and not policy.limits
            and not policy.routes
            and not ordered
            and not policy.isolate
        )
        self.full = alone and world.rng.random() < 0.6
        self._shares: list[Fraction] = world.shape.shares[0]
        self._process: Process | None = None
        self._waiting: Counter[int] = Counter()  # by lane: of the flood, not started yet
        self._tenants: Counter[tuple[int, str]] = Counter()
        self._lane_starts: Counter[int] = Counter()
        self._tenant_starts: Counter[tuple[int, str]] = Counter()
        self._over = False

    def policy(self, policy: Policy) -> Policy:
        """In a full opening all fits into the worker; and with one slot no slot is kept for anybody."""
        return replace(policy, lookahead_messages=5_000, concurrency=1) if self.full else policy

    def seconds(self, drawn: float) -> float:
        """How long a handler takes: while starts are judged, no longer than a start costs."""
        return drawn if self._over or not self.full else min(drawn, START_COST / 1000)

    def begin(self) -> None:
        """The first processes and messages."""
        world = self.world
        if not self.full:
            for book in world.books:
                for _ in range(world.rng.randint(1, 3) if len(world.books) == 1 else 1):
                    world.start_process(book)
            world.flood.begin()
            world.send_some()
            return
        for lane, share in zip(world.books[0].policy.lanes, self._shares, strict=True):
            for _ in range(int(_FLOOD * share) + 3):
                message = world.message(lane.topic)
                self._waiting[lane.index] += 1
                self._tenants[lane.index, message.properties["uid"]] += 1
                world.broker.send(message)
        self._process = world.start_process(world.books[0], frozen=True)
        for lane in world.books[0].policy.lanes:
            while world.broker.deliver(lane.topic):
                pass
        self._process.slots.thaw()
        world.after(0.0, world.send_some)

    def started(self, process: Process, lane: Lane, tenant: str) -> None:
        """A handler started: while every lane has work, each has had its part, and each tenant its turn."""
        if process is not self._process or self._over:
            return
        self._lane_starts[lane.index] += 1
        self._tenant_starts[lane.index, tenant] += 1
        self._judge_lanes()
        if self.world.books[0].policy.fair_by:
            self._judge_tenants(lane)
        if self._lane_starts[lane.index] >= self._waiting[lane.index]:
            self._over = True

    def end(self) -> None:
        """Something went wrong that changes what the worker holds."""
        self._over = True

    def _judge_lanes(self) -> None:
        starts, total = self._lane_starts, self._lane_starts.total()
        for index, share in enumerate(self._shares):
            if not (total - len(self._shares)) * share <= starts[index] <= total * share + 1:
                self._over = True
                text = f"lane {index} had {starts[index]} of {total} starts, its part is {share}"
                self.world.fail("exact weights", text)

    def _judge_tenants(self, lane: Lane) -> None:
        weights = self.world.books[0].policy.tenant_weights
        cycle = sum(weights.get(tenant, 1) for tenant in "abcd")
        rounds = self._lane_starts[lane.index] // cycle
        for tenant in "abcd":
            due = min(weights.get(tenant, 1) * rounds, self._tenants[lane.index, tenant])
            if self._tenant_starts[lane.index, tenant] < due:
                self._over = True
                text = f"tenant {tenant} had {self._tenant_starts[lane.index, tenant]} turns of {due} in {lane.name}"
                self.world.fail("I8 turns", text)

    def audit(self) -> None:
        """A full opening that never came to anything would prove nothing."""
        if self.full and not self._over and self._lane_starts.total() < 10:
            self.world.fail("opening", f"only {self._lane_starts.total()} starts were judged")

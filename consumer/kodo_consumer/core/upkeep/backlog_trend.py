"""Backlog trend of a subscription: whether its backlog grows or drains, why it grows, and what would change that.

A sample is taken at each reading of the broker's statistics. The last two minutes are compared with the ten minutes
before them: a rate by the broker says whether senders got faster, the time that handlers take says whether they got
slower. No I/O, the clock is passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.upkeep.tenant_backlog import NO_TENANT, TenantCause, TenantShare, tenant_cause
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.envelope import State
from kodoctl.text.formatting import duration_text, many

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import LaneStats
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Lane, Policy

RECENT: Final = 120.0  # seconds whose trend counts
BEFORE: Final = 600.0  # seconds before them, to compare with
REPEAT: Final = 600.0  # seconds until an alarm about the same cause is repeated
_TOO_OLD: Final = 60.0  # seconds after which the last sample says nothing about now
_FEW: Final = 20  # samples for a trend, at the least
_NOISE: Final = 0.02  # of the backlog: a smaller change in two minutes is none
_LEAST: Final = 100  # entries: a smaller backlog needs no advice
_MORE: Final = 1.2  # times as much as before: faster, or slower
_BUSY: Final = 0.9  # of the slots


@dataclass(frozen=True, slots=True)
class HandlerLoad:
    """Handlers of this worker: `running`, the number at work now, and `started`, the number of runs since the worker's
    start. `waiting`: tenant with most of the messages that wait in this worker, and its part; `working`: tenant with
    most of the handlers at work, and its part.
    """

    running: int
    started: int
    waiting: TenantShare = NO_TENANT
    working: TenantShare = NO_TENANT


@dataclass(frozen=True, slots=True)
class BacklogAdvice:
    """Trend of a backlog of `entries`. `growth`: entries a second, negative while it drains. `drained_in`: seconds
    until it is empty at this pace; None if it does not drain. `cause`: "senders", "handlers", "both", or empty if
    neither has changed or the backlog drains. `tenant`: the tenant that causes the growth; None if no single tenant
    does, or the backlog drains. `text`: all that in words, and how to stop the growth.
    """

    entries: int
    growth: float
    drained_in: float | None
    cause: str
    text: str
    tenant: TenantCause | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    entries: int
    rate_in: float
    load: HandlerLoad


class BacklogTrend:
    """Listener of stats of every lane, which samples the backlog of all ready lanes together; other lanes do not count.
    `policy`: returns the present policy; `load`: returns the present load of the handlers; `workers`: returns the
    number of live workers; `alarm`: called when the backlog grows for two minutes, again after ten minutes, and when
    the cause or the tenant changes.
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        clock: Clock,
        load: Callable[[], HandlerLoad],
        workers: Callable[[], int],
        alarm: Callable[[Alarm], object],
    ) -> None:
        self._policy, self._clock, self._load, self._workers, self._alarm = policy, clock, load, workers, alarm
        self._lanes: dict[int, LaneStats] = {}  # of ready lanes, as last known
        self._samples: deque[_Sample] = deque()
        self._reported: tuple[str, str, float] = ("", "", float("-inf"))  # cause, tenant, and when

    def __call__(self, lane: Lane, stats: LaneStats | None) -> None:
        """Keeps the present stats of a ready lane; None, or stats of a part of its partitions: not known. Stats of the
        ground topic's lane also add a sample if those of all ready lanes are known, and may call `alarm`.
        """
        if lane.state is not State.READY:
            return
        if stats is None or not stats.whole:
            self._lanes.pop(lane.index, None)
            return
        self._lanes[lane.index] = stats
        policy = self._policy()
        ready = [one.index for one in policy.every_lane if one.state is State.READY]
        if lane.index != policy.ground_lane.index or not self._lanes.keys() >= set(ready):
            return
        now, lanes = self._clock.now(), [self._lanes[index] for index in ready]
        sample = _Sample(now, sum(one.backlog for one in lanes), sum(one.rate_in for one in lanes), self._load())
        self._samples.append(sample)
        while self._samples[0].at < now - RECENT - BEFORE:
            self._samples.popleft()
        self._report(now)

    @property
    def advice(self) -> BacklogAdvice | None:
        """The advice by the samples so far. None: the last sample is more than a minute old, there are fewer than 20
        samples in the two minutes before it, it has fewer than 100 entries, or they have changed by less than 2 % in
        these two minutes.
        """
        samples = list(self._samples)
        if not samples or self._clock.now() - samples[-1].at > _TOO_OLD:
            return None
        edge = samples[-1].at - RECENT
        recent, before = [one for one in samples if one.at >= edge], [one for one in samples if one.at < edge]
        first, last = recent[0], recent[-1]
        changed = last.entries - first.entries
        if len(recent) < _FEW or last.entries < _LEAST or abs(changed) < _NOISE * last.entries:
            return None
        growth = changed / (last.at - first.at)
        if growth < 0:
            left = last.entries / -growth
            text = (
                f"{many(last.entries, 'entry', 'entries')} wait, drained in about {duration_text(round(left) * 1000)}"
            )
            return BacklogAdvice(last.entries, growth, left, "", text)
        cause, reason = _cause(recent, before)
        text = f"{many(last.entries, 'entry', 'entries')} wait, {growth:,.1f}/s more: {reason}; {self._remedy(recent)}"
        policy = self._policy()
        loads = [one.load for one in recent]
        tenant = (
            tenant_cause([one.waiting for one in loads], [one.working for one in loads]) if policy.fair_by else None
        )
        if tenant is not None:
            text += f"; {tenant.text(policy)}"
        return BacklogAdvice(last.entries, growth, None, cause, text, tenant)

    def _remedy(self, recent: Sequence[_Sample]) -> str:
        policy, workers = self._policy(), self._workers()
        lane, partitions = policy.ground_lane, max(1, policy.ground_lane.partitions)
        busy = sum(one.load.running for one in recent) / len(recent) / policy.concurrency
        alone = policy.subscription_type == "exclusive"
        enough = policy.subscription_type == "failover" and workers >= partitions
        if enough and workers > partitions and not busy and recent[0].load.started == recent[-1].load.started:
            text = "this worker has no partition, and starts nothing: ask /readyz of another one"
        elif busy < _BUSY:
            text = (
                f"{busy:.0%} of the slots are busy: a limit, an order or the broker holds messages back (see /readyz)"
            )
            if lane.ordered:
                text += ", or messages of one key wait for each other"
        else:
            more = "helps" if alone else f"or more {'partitions' if enough else 'workers'} help"
            text = f"all {many(policy.concurrency, 'slot')} are busy: more `concurrency` {more}"
        if alone:
            return f"{text}; one worker reads all partitions of an exclusive subscription"
        if not enough:
            return text
        of_each = f"{many(workers, 'worker')} for {many(partitions, 'partition')}"
        return f"{text}; {of_each}, of which each goes to one worker, so more workers do not help"

    def _report(self, now: float) -> None:
        advice = self.advice
        if advice is None or advice.growth < 0:
            return
        cause, tenant, at = self._reported
        named = advice.tenant.tenant if advice.tenant is not None else ""
        if (advice.cause, named) != (cause, tenant) or now - at >= REPEAT:
            self._reported = advice.cause, named, now
            self._alarm(Alarm("backlog", advice.text, severe=False))


def _cause(recent: Sequence[_Sample], before: Sequence[_Sample]) -> tuple[str, str]:
    """Cause of a growing backlog, and the reason in words."""
    rate, seconds = _rate(recent), _seconds(recent)
    was_rate, was_seconds = (_rate(before), _seconds(before)) if len(before) >= _FEW else (rate, seconds)
    faster, slower = rate > _MORE * was_rate, seconds > _MORE * was_seconds
    reasons = []
    if faster:
        reasons.append(f"senders got faster ({rate:,.1f}/s, {was_rate:,.1f}/s before)")
    if slower:
        reasons.append(
            f"handlers got slower ({duration_text(seconds * 1000)} a message, {duration_text(was_seconds * 1000)} before)"
        )
    if not reasons:
        return "", f"{rate:,.1f}/s come, more than workers handle"
    return "both" if len(reasons) > 1 else "senders" if faster else "handlers", " and ".join(reasons)


def _rate(samples: Sequence[_Sample]) -> float:
    """Messages a second that senders sent, on the average."""
    return sum(one.rate_in for one in samples) / len(samples)


def _seconds(samples: Sequence[_Sample]) -> float:
    """Seconds that a handler takes, by the number at work and the number of runs; 0: none ran."""
    runs = samples[-1].load.started - samples[0].load.started
    running = sum(one.load.running for one in samples) / len(samples)
    return running * (samples[-1].at - samples[0].at) / runs if runs else 0.0

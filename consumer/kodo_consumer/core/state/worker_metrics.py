"""Latency metrics of one worker, counted where its messages end. They exist only while somebody reads metrics.

The reader is kodo_consumer.adapters.metrics. The engine calls them under the lock of the worker. Readers need no lock:
they copy, and may be a message behind. No middleware could count this: a run that times out ends for the worker while
its hook is still inside of the handler.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.duration_histogram import ATTEMPTS, SECONDS, Histogram
from kodo_consumer.core.values.envelope import State

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Policy

_SAMPLES: Final = 500  # a second: beyond that, some of the messages stand for all
_STATES: Final = (State.READY, State.RETRYING, State.PENDING, State.BLOCKING)


class Timings:
    """Histograms of messages of one state (backup levels count as ready): durations in seconds, and attempts of done
    messages: 1 plus those that their headers count in RETRYING and on backup levels. Beyond 500 handler ends a
    second only a sample is added, which counts for several.
    """

    __slots__ = ("attempts", "done", "handler", "late", "since_origin", "waited")

    def __init__(self) -> None:
        self.done = Histogram(SECONDS)  # from its receipt to done
        self.since_origin = Histogram(SECONDS)  # from its first publication to done
        self.waited = Histogram(SECONDS)  # from publication, or from when it was due, to the handler's start
        self.late = Histogram(SECONDS)  # from when it was due to the handler's start: only what had a due time
        self.handler = Histogram(SECONDS)
        self.attempts = Histogram(ATTEMPTS)


class Meter:
    """Messages done by lane (index), histograms by state, and the window by which fairness is judged: `served`, the
    numbers of handler ends by lane and tenant, failed ones too, and `busy`, estimated seconds of handlers by tenant.
    The reader replaces the dictionaries in `served`, and takes `busy`, to begin the next window.
    """

    __slots__ = (
        "_clock", "_counted_from", "_draw", "_samples", "_stride", "_until", "busy", "done", "served", "timings",
    )  # fmt: skip

    def __init__(self, policy: Policy, clock: Clock, rng: Random) -> None:
        self.done = [0] * len(policy.lanes)
        self.timings = {state: Timings() for state in _STATES}
        self.served: list[dict[str, int]] = [{} for _ in policy.lanes]  # by lane and tenant, in this window
        self.busy: dict[str, float] = {}  # seconds of handlers by tenant, in this window
        self._clock, self._draw = clock, rng.random
        self._stride = 1  # messages that one sample stands for
        self._until = 1  # messages to the next sample
        self._samples, self._counted_from = 0, float("-inf")

    def on_end(self, in_flight: InFlight, started: float, now: float, *, done: bool) -> None:
        """Counts the end of a handler by lane and tenant, and, if `done`, the message as done; adds a sample of the
        ends to the histograms and to `busy`. `started`, `now`: monotonic seconds.
        """
        index = in_flight.lane.lane.index
        served, tenant = self.served[index], in_flight.tenant
        served[tenant] = served.get(tenant, 0) + 1
        if done:
            self.done[index] += 1
        self._until -= 1
        if not self._until:
            self._sample(in_flight, started, now, done=done)

    def on_deferred_done(self, in_flight: InFlight, now: float) -> None:
        """Counts a message as done whose handler returned before, and was counted by `on_end`; adds each such message
        to the histograms of done messages.
        """
        lane = in_flight.lane.lane
        self.done[lane.index] += 1
        self._add_done(self.timings[lane.state], in_flight, now, self._clock.wall() / 1000, 1)

    def take_busy(self) -> dict[str, float]:
        """Returns the seconds of handlers by tenant since the last call, estimated from samples, and resets them."""
        found, self.busy = self.busy, {}
        return found

    def _sample(self, in_flight: InFlight, started: float, now: float, *, done: bool) -> None:
        weight = self._stride
        self._pace(now)
        self._until = self._stride if self._stride == 1 else 1 + int(self._draw() * (2 * self._stride - 1))
        headers, published = in_flight.headers, in_flight.delivery.publish_time
        timings = self.timings[in_flight.lane.lane.state]
        took = now - started
        self.busy[in_flight.tenant] = self.busy.get(in_flight.tenant, 0.0) + took * weight
        wall = self._clock.wall() / 1000
        began = wall - took
        timings.handler.add(took, weight)
        due = headers.due
        timings.waited.add(max(0.0, began - max(published, due or 0) / 1000), weight)
        if due is not None:
            timings.late.add(max(0.0, began - due / 1000), weight)
        if done:
            self._add_done(timings, in_flight, now, wall, weight)

    @staticmethod
    def _add_done(timings: Timings, in_flight: InFlight, now: float, wall: float, weight: int) -> None:
        headers, published = in_flight.headers, in_flight.delivery.publish_time
        timings.done.add(now - in_flight.received, weight)
        timings.since_origin.add(max(0.0, wall - (headers.origin_time or published) / 1000), weight)
        timings.attempts.add(1 + headers.retrying + headers.backup, weight)

    def _pace(self, now: float) -> None:
        """Keeps to so many samples a second, drawn by chance, lest they fall in step with tenants or batches."""
        self._samples += 1
        passed = now - self._counted_from
        if passed >= 1.0:
            self._stride = max(1, round(self._samples * self._stride / passed / _SAMPLES))
            self._samples, self._counted_from = 0, now
        elif self._samples > 2 * _SAMPLES:  # it speeds up: no need to wait for the second to end
            self._stride *= 4
            self._samples = _SAMPLES + 1

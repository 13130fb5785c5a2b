"""Hand-over: unstarted messages are released, because the broker redelivers them, to this worker or another.

Reasons: a connection was lost, the worker ends, or the broker named another active consumer for a partition of an
ordered topic. The engine drops the redelivery of a message that runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING

from kodo_consumer.core.state.failover_partitions import VALID, Change
from kodo_consumer.core.state.in_flight import InFlight, LaneState, Stage
from kodoctl.topology.names import PLAIN

if TYPE_CHECKING:
    from kodo_consumer.core.engine.message_flow import MessageFlow
    from kodo_consumer.core.scheduling.scheduler import Scheduler
    from kodo_consumer.core.sequences.gap_monitor import GapMonitor
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.envelope import Delivery

log = logging.getLogger("kodo.consumer")


class HandOver:
    """Releases messages that have not started (gives them up without an acknowledgement, because the broker redelivers
    them), and takes the answers of the broker about active consumers. A message has not started while it waits in
    memory, for its turn, its key, a limit, a moment or its move, also if its handler ran before and failed. All calls
    need the engine's lock.
    """

    def __init__(
        self,
        context: EngineContext,
        flow: MessageFlow,
        scheduler: Scheduler,
        gap_monitor: GapMonitor | None,
        clock: Clock,
        set_timer: Callable[[float, Callable[[float], None]], int],
    ) -> None:
        self._context, self._flow, self._scheduler, self._gap_monitor = context, flow, scheduler, gap_monitor
        self._clock, self._set_timer = clock, set_timer

    def on_disconnect(self, lane: LaneState, partition: str | None = None) -> None:
        """Releases the unstarted messages of a lane, of one partition (number as a text) or of all (None), because the
        broker delivers them again, and drops those that are kept aside. All other messages go on as before:
        Engine.deliver drops their redeliveries. Gap detection starts anew, for all lanes.
        """
        self._others_read()
        if lane.active is not None:
            lane.active.on_disconnect(partition)
        self.drop_unstarted(lane, partition)

    def drop_unstarted(
        self, lane: LaneState, partition: str | None = None, tokens: AbstractSet[object] | None = None
    ) -> list[InFlight]:
        """Releases the unstarted messages of a lane, of one partition or of all (None), with these tokens or with any
        (None), and returns them. They are not acknowledged, so the broker still has them. A message that becomes the
        first of its key by this is checked, and may be queued.
        """
        unstarted = lane.take_unstarted(partition, tokens)
        for in_flight in unstarted:
            in_flight.give_back()
            self._flow.release(in_flight)
        self._scheduler.drop_waiters(unstarted)
        self._context.counts.released += len(unstarted)
        self._scheduler.queues.drop(lane)
        for key_queue in list((lane.key_queues or {}).values()):
            if key_queue[0].stage is Stage.BLOCKED_BY_KEY:  # what was before it was of another partition
                self._flow.check_due(key_queue[0], self._clock.now())
        return unstarted

    def on_active_consumers(
        self, lane: LaneState, named: Mapping[str, str] | None, asked: float, emptied: Mapping[str, float]
    ) -> Sequence[Delivery]:
        """Takes an answer of the broker about a lane whose partitions have active consumers (see
        LaneState.start_as_named). `named`: name of the active consumer by partition (number as a text), "" for none;
        None: the request failed. `asked`: monotonic seconds before the request; an answer VALID (2) seconds later or
        more does not count. A partition that `named` leaves out (its broker is away) keeps its last answer until that
        lapses. `emptied`: monotonic seconds when the client library last contained no message of a partition.

        Releases the unstarted messages of partitions that another worker, or nobody, has now, and of those whose last
        answer has lapsed; raises an alarm while answers are missing. Returns kept messages that may be received now.
        """
        active, now, topic = lane.active, self._clock.now(), lane.lane.topic
        assert active is not None
        self._lapse(lane, now)
        if named is None or asked + VALID <= now:
            if active.unknown(asked, now):
                text = f"{topic}: the admin API does not name the active consumer: nothing of it starts until it does"
                self._context.effects.alarm("active", text)
            return ()
        change = active.on_active_consumers(named, asked, now, emptied)
        if active.starts_until < float("inf"):
            self._set_timer(active.starts_until, partial(self._lapse, lane))
        if change.unnamed:
            what = f"{topic}: the admin API does not name the active consumer of {_partitions_text(change.unnamed)}"
            self._context.effects.alarm("active", f"{what}: nothing of it starts until it does; other partitions go on")
        for partition in change.anew:
            text = "%s: %s is read anew: what came of it cannot be told from what another worker has handled"
            log.info(text, topic, _partitions_text([partition]))
            self._context.effects.read_anew(lane.lane.index, partition)
        for partition in change.lost:
            gone = self.drop_unstarted(lane, partition)
            active.keep([in_flight.delivery for in_flight in gone if in_flight.received >= asked], now)
        if change.lost:
            self._others_read()
        self._tell(topic, change)
        self._scheduler.queues.version += 1
        self._context.effects.ask_for_more(lane.lane.index)
        return change.ready

    def _lapse(self, lane: LaneState, now: float) -> None:
        """Releases unstarted messages of partitions without a valid answer: another worker may be active for these."""
        assert lane.active is not None
        for partition in (lapsed := lane.active.lapse(now)):
            self.drop_unstarted(lane, partition)
        if lapsed:
            self._others_read()
            self._scheduler.queues.version += 1

    def _others_read(self) -> None:
        if self._gap_monitor is not None:
            self._gap_monitor.on_disconnect(self._clock.wall())

    @staticmethod
    def _tell(topic: str, change: Change) -> None:
        if change.lost:
            log.info(
                "%s: another worker is active for %s: what has not started is released",
                topic,
                _partitions_text(change.lost),
            )
        if change.gained:
            log.info("%s: active for %s", topic, _partitions_text(change.gained))


def _partitions_text(partitions: Sequence[str]) -> str:
    if str(PLAIN) in partitions:
        return "the topic"
    in_order = sorted(partitions, key=lambda number: (len(number), number))
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(in_order)}"

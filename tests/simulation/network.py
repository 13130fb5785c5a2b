"""The broker as one process sees it: a network that is slow, loses, repeats and breaks, in front of the broker in memory.

Payloads remember the stored message they were delivered from: so a run, a publication and an acknowledgement can be told
of which it is, without looking into the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kodo_consumer.core.values.broker import (
    Confirmed,
    LaneRequest,
    LaneSink,
    OnReceipts,
    Receipt,
    Rejected,
    Unconfirmed,
)
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.envelope import Delivery, Outgoing

if TYPE_CHECKING:
    from tests.simulation.process import Process


class Payload(bytes):
    """A payload with the lane and the number of its stored message."""

    lane: int
    number: int


class Connection:
    """kodo_consumer.core.values.broker.Broker for one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.readers: list[Reader] = []
        self.senders: list[Sender] = []

    def report_to(self, on_broken: Callable[[BaseException], object], on_alarm: Callable[[Alarm], object]) -> None:
        """Nothing of it breaks, and it has nothing to say."""

    def open(self, request: LaneRequest, sink: LaneSink) -> Reader:
        self.readers.append(Reader(self.process, len(self.readers), request, sink))
        return self.readers[-1]

    def publisher(
        self,
        topics: Sequence[str],
        on_receipts: OnReceipts,
        largest: Mapping[str, int] | None = None,
        *,
        moves: bool = False,
    ) -> Sender:
        assert moves, "what a worker moves stays in its cluster"
        self.senders.append(Sender(self.process, on_receipts))
        return self.senders[-1]

    def close(self) -> None:
        pass


class Reader:
    """A lane: LaneReader to the worker, LaneSink to the broker. Acknowledgements are gathered, as the real client does."""

    def __init__(self, process: Process, index: int, request: LaneRequest, sink: LaneSink) -> None:
        self.process, self.world, self.index, self.topic = process, process.world, index, request.topic
        self._sink = sink
        self._unsent: list[object] = []
        self._last: list[Delivery] = []
        self.lane = self.world.broker.open(request, self)
        self.world.epochs[self.topic] += 1

    # ---- called by the broker

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        if self.process.alive:
            self._last = list(deliveries)
            self._sink.deliver([self._traced(delivery) for delivery in deliveries])

    def room(self) -> int:
        return self._sink.room() if self.process.alive else 0

    def repeat(self, count: int) -> None:
        """The last messages come a second time."""
        if self.process.alive:
            self._sink.deliver([self._traced(delivery) for delivery in self._last[-count:]])

    def on_disconnect(self, partition: str | None = None) -> None:
        """Of everything, and told at once or by partition; or too short to be noticed, where there are several."""
        assert partition is None
        process, rng = self.process, self.world.rng
        if not process.alive:
            return
        if rng.random() < 0.5:
            self._unsent = []
        self._last = []
        count = process.policy.lanes[self.index].partitions
        told = count == 1 or rng.random() < 0.5
        process.book.disconnected(process, self.index, told=told)
        if told and (count == 1 or rng.random() < 0.5):
            self._sink.on_disconnect()
        elif told:
            for number in range(count):
                self._sink.on_disconnect(str(number))

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        self._sink.on_acknowledged(confirmed, unknown)

    def fail(self, problem: BaseException) -> None:
        self._sink.fail(problem)

    def _traced(self, delivery: Delivery) -> Delivery:
        assert delivery.payload is not None
        payload = Payload(delivery.payload)
        payload.lane = self.index
        payload.number = delivery.entry + max(delivery.batch_index, 0)  # type: ignore[operator]  # -1: in no batch
        self.process.book.delivered(self.process, self.index, payload.number)
        return delivery._replace(payload=payload)

    # ---- called by the worker

    @property
    def connected(self) -> bool:
        return self.process.alive

    def long_connected(self, seconds: float) -> frozenset[str]:
        return frozenset()

    def seconds_since_empty(self) -> Mapping[str, float]:
        return self.lane.seconds_since_empty()

    @property
    def disconnected_topics(self) -> Sequence[str]:
        return () if self.process.alive else (self.topic,)

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        process = self.process
        if not process.alive:
            return
        for token in tokens:
            process.book.acknowledged(process, self.index, int(str(token).split(",")[1]))
        if not self._unsent:
            self.world.after(self.world.rng.random() * 0.1, self._flush)
        self._unsent += tokens

    def _flush(self) -> None:
        if self.process.alive:
            for token in self._unsent:
                self.process.book.works[self.process][self.index][int(str(token).split(",")[1])].acked = True
            self.lane.acknowledge(self._unsent)
            self._unsent = []

    def resume(self) -> None:
        self.lane.resume()
        self.world.poke(self.topic)

    def stop(self) -> None:
        self.lane.stop()

    def close(self) -> None:
        self._flush()
        self.cut()

    def cut(self) -> None:
        """As the kernel closes the connections of a process that is gone."""
        self.world.epochs[self.topic] += 1
        self.lane.close()
        self.world.poke(self.topic)


class Sender:
    """kodo_consumer.core.values.broker.Publisher. One wire: what is sent arrives in order, and so do the receipts."""

    def __init__(self, process: Process, on_receipts: OnReceipts) -> None:
        self.process, self.world = process, process.world
        self._on_receipts = on_receipts
        self._arrival = self._receipt = 0.0
        self._renewals = 0

    def publish(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        process, world = self.process, self.world
        if not process.alive:
            return
        for _, message in messages:
            process.book.published(process, message)
        self._arrival = max(self._arrival, world.now + world.latency())
        world.at(self._arrival, self._arrive, list(messages), self._renewals)

    def _arrive(self, messages: list[tuple[int, Outgoing]], renewals: int) -> None:
        world = self.world
        if not self.process.alive and world.rng.random() < 0.5:
            return
        answers = [(ticket, self._store(message)) for ticket, message in messages]
        world.flood.stored(self.process, messages)
        self._receipt = max(self._receipt, world.now + world.latency())
        world.at(self._receipt, self._answer, answers, renewals, messages)

    def _store(self, message: Outgoing) -> Receipt | None:
        """What the broker says to it; None: nothing, for ever."""
        faults = self.world.faults
        fault = faults.next_send(message.topic)
        if fault == "refused":
            return Rejected("too big")
        if fault == "lost":
            return Unconfirmed("Timeout")
        token = self.world.store(self.process.book, message)
        if fault in ("receipt lost", "hangs"):
            self.process.book.excuse(self.process, message)
            return Unconfirmed("ConnectError") if fault == "receipt lost" else None
        return Confirmed(token)

    def _answer(
        self, answers: list[tuple[int, Receipt | None]], renewals: int, messages: list[tuple[int, Outgoing]]
    ) -> None:
        if not self.process.alive or renewals != self._renewals:
            if self.process.alive:  # started afresh meanwhile: what was stored will be sent again
                for _, message in messages:
                    self.process.book.excuse(self.process, message)
            return
        came = [(ticket, receipt) for ticket, receipt in answers if receipt is not None]
        for (_, receipt), (_, message) in zip(answers, messages, strict=True):
            if receipt is not None:
                self.process.book.receipt(self.process, message, receipt)
        if came:
            self._on_receipts(came)

    def renew(self) -> None:
        self._renewals += 1

    def close(self) -> None:
        pass

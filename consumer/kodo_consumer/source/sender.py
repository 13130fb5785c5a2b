"""Sender of a source: messages to the partitions of their topics, each under the number of its position.

What a sender needs of a topic is that of any producer: the rules for its messages, its routes, and the numbers
(`kodo-seq`) and marks by which a reader, and `kodoctl pipeline`, prove that nothing is missing.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.adapters.pulsar.sequenced_producers import SequencedClient, SequencedProducer, is_deduplicating
from kodo_consumer.core.checks.message_validation import MessageValidator, NewMessage, validator_of
from kodo_consumer.core.sequences.sequencer import Router, Sequencer
from kodo_consumer.core.values.envelope import Level, Outgoing, wire_size
from kodo_consumer.core.values.limit_policy import NOBODY, value_of
from kodo_consumer.policy_builder import send_target_of
from kodo_consumer.source.identity import PartitionCopies, SourceIdentity, System, routing_of
from kodo_consumer.source.positions import Position, lsn_text
from kodo_consumer.source.row_mapping import NO_MESSAGE
from kodo_consumer.source.stored_messages import read_back
from kodoctl.errors import UsageError, error
from kodoctl.protocol.properties import FOR, SEQ
from kodoctl.protocol.sequence_numbers import NOBODY as NO_SUBSCRIPTION
from kodoctl.protocol.sequence_numbers import new_run
from kodoctl.pulsar.session import Session
from kodoctl.topology import defaults
from kodoctl.topology.route_facts import RouteFacts

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar.sequenced_producers import OnAnswer
    from kodo_consumer.core.values.send_target import SendTarget
    from kodo_consumer.source.progress import OpenTransaction
    from kodo_consumer.source.row_mapping import MappedMessage
    from kodoctl.protocol.sequence_numbers import Number, ProducerWatermark
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.change_sources import ChangeSource
    from kodoctl.topology.loaded_topology import LoadedTopology

log = logging.getLogger("kodo.source")
_DECISIVE: Final[dict[str, Any]] = {
    **dict.fromkeys(("levels", "backup", "draining", "exclusive_levels", "message_properties", "fair_by"), True),
    "subscriptions": {"__all__": {"type", "routes"}},
}
"""Keys of a ground topic that decide whether a change makes a message, and where it goes."""
_ALONE: Final = 512 << 10  # bytes from which on a message is sent alone, because the broker may refuse it


@dataclass(slots=True, eq=False)
class UnconfirmedMessage:
    """Token of a message on its way. A mark (a message of the source without content) has no transaction, number and
    position. `mark`: the sequencer's last number of a partition that the message stores; None: it stores none.
    `covers`: position up to which everything is stored once this message is; 0: the message is no mark of coverage.
    `begins`: the message is the mark without which no other may be sent.
    """

    sequencer: Sequencer
    partition: str
    transaction: OpenTransaction | None = None
    number: Number | None = None
    position: Position | None = None
    covers: int = 0
    mark: ProducerWatermark | None = None
    begins: bool = False


@dataclass(slots=True)
class ReadyTopic:
    """Ready topic to which a source sends. `partitions`: full names of its partitions; of a plain topic, the topic's
    full name alone.
    """

    target: SendTarget
    form: MessageValidator
    partitions: list[str]
    router: Router


class PlacedMessage(NamedTuple):
    """Message that its topic takes, and the partition to which it belongs."""

    new: NewMessage
    ready: ReadyTopic
    partition: int


class SourceTopics:
    """Ready topics of a source (the topics of all levels of its ground topics), and the place of each message in them.
    `system`: the database server; `signer`: verifies signatures, None: nothing is signed; `grounds`: names of its
    ground topics; `home`: the partition that has its marks of coverage. The constructor asks the cluster, and raises
    UsageError if the file has none of its ground topics. All methods raise ClusterError if the broker cannot be
    reached, and UsageError for a message that its topic does not take. The caller closes `client`.
    """

    def __init__(
        self,
        connection: Connection,
        topology: LoadedTopology,
        source: ChangeSource,
        system: System,
        client: SequencedClient,
        signer: Signer | None,
    ) -> None:
        self._connection, self._topology, self._client = connection, topology, client
        self._topics: dict[tuple[str, Level], ReadyTopic] = {}
        self.grounds = sorted(source.targets(topology.spec))
        if not self.grounds:
            detail = f"source {source.name}: the file has none of the topics that its tables name, see `kodoctl lint`"
            raise UsageError(error("K790", "source cannot start", detail))
        self.home = self.of(self.grounds[0]).partitions[0]
        tables = {table.name: table.spec.model_dump(mode="json") for table in source.tables}
        routing = routing_of([tables, {ground: self._decisive(ground) for ground in self.grounds}])
        self.identity = SourceIdentity(source.slot, system, routing, signer)

    def _decisive(self, ground: str) -> list[Any]:
        target, spec = self.of(ground).target, self._topology.spec.topics[ground]
        counts = [len(self.of(ground, level).partitions) for level in defaults.active_levels(spec)]
        return [spec.model_dump(mode="json", include=_DECISIVE), counts, target.payload_type, target.schema]

    def partitions(self) -> Iterator[tuple[str, str]]:
        """Yields (ground topic, full name) of each partition."""
        for ground in self.grounds:
            for level in defaults.active_levels(self._topology.spec.topics[ground]):
                yield from ((ground, partition) for partition in self.of(ground, level).partitions)

    def of(self, ground: str, level: Level = Level.L1) -> ReadyTopic:
        """Ready topic of a level of a ground topic; the first call for it asks the cluster for its limits and
        partitions.
        """
        found = self._topics.get((ground, level))
        if found is None:
            from kodo_consumer.adapters.pulsar.cluster_admin import limits_now

            target = send_target_of(self._topology, ground, str(level))
            largest, _ = limits_now(self._connection, target.topic)
            limits = [size for size in (target.largest.get(target.topic), largest) if size]
            partitions = self._client.partitions(target.topic)
            # its messages keep their order: none that is too large goes alone under another algorithm
            form = validator_of(replace(target, ordered=True), int(min(limits, default=0)))
            found = self._topics[ground, level] = ReadyTopic(target, form, partitions, Router(len(partitions)))
        return found

    def place(self, message: MappedMessage, position: Position, time_ms: int) -> PlacedMessage:
        """Checks a message, and chooses its topic and partition. `time_ms`: of the commit, in ms since the epoch."""
        if message.topic not in self._topology.spec.topics:
            raise UsageError(error("K791", NO_MESSAGE, f"no topic {message.topic!r} in the file"))
        ready = self.of(message.topic)
        new = ready.form.accept(
            message.payload,
            lambda: time_ms,
            key=message.key,
            properties=message.properties,
            event_time=time_ms,
            id=self.identity.id_of(position),
        )
        table = ready.target.dispatch
        if table is not None:
            fair_by = ready.target.fair_by
            tenant = value_of(fair_by, new.properties, new.key) if fair_by else NOBODY
            facts = RouteFacts(new.properties, new.key, tenant, new.id, len(new.payload or b""), Level.L1)
            ready = self.of(message.topic, table.choose(facts))
        return PlacedMessage(new, ready, ready.router.choose(new.key or new.id, 0.0))


@dataclass(slots=True)
class _Sending:
    """Numbers and producers of a ready topic. `producers`: by partition, with the group of their positions; `opened`:
    (partition, group) of each producer that was opened, also of those that are closed.
    """

    ready: ReadyTopic
    sequencer: Sequencer
    producers: dict[int, tuple[str, SequencedProducer]] = field(default_factory=dict)
    markers: dict[int, SequencedProducer] = field(default_factory=dict)
    opened: set[tuple[int, str]] = field(default_factory=set)


class Numbering:
    """Sequence numbers of a process by ready topic. They outlive a sender: numbers without a receipt become void."""

    def __init__(self) -> None:
        self._sequencers: dict[str, Sequencer] = {}

    def of(self, topic: str) -> Sequencer:
        """Returns the sequencer of a ready topic; each has a run of its own."""
        if topic not in self._sequencers:
            run = new_run(time.time_ns() // 1_000_000, secrets.token_hex(4))
            self._sequencers[topic] = Sequencer(run)
        return self._sequencers[topic]


class SourceSender:
    """Sends the messages of one source over one client. `out` gets the token of each message that is sent, `on_answer`
    the token and its answer; `settle` waits until every message has its answer; `keep_alive` is called twice a second
    while a partition is read; exceptions of both pass. Methods raise ClusterError if the broker cannot be reached, and
    UsageError for a message that its topic does not take, if the broker's numbers cannot be trusted, and at the start
    if the broker does not deduplicate. Not thread-safe.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        connection: Connection,
        topology: LoadedTopology,
        source: ChangeSource,
        system: System,
        numbering: Numbering,
        signer: Signer | None,
        out: set[UnconfirmedMessage],
        on_answer: OnAnswer,
        settle: Callable[[], None],
        keep_alive: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._numbering, self._signer, self._out = numbering, signer, out
        self._on_answer, self._settle = on_answer, settle
        self._keep_alive = keep_alive
        self._client = SequencedClient(connection)
        self._sendings: dict[str, _Sending] = {}
        self._remembered: set[Position] = set()  # stored messages of which the broker has forgotten the numbers
        self._known_end = 0  # position up to which earlier processes may have stored messages
        self._coverage: SequencedProducer | None = None
        self._is_named = False  # the last mark has the present topology
        try:
            self._topics = SourceTopics(connection, topology, source, system, self._client, signer)
            self._home = self._sending(self._topics.of(self._topics.grounds[0]))
            self._check_deduplication(self._home.ready)
        except BaseException:
            self._client.close()
            raise

    def target(self, ground: str) -> SendTarget:
        """Send target of a ground topic."""
        return self._topics.of(ground).target

    def send(self, message: MappedMessage, position: Position, time_ms: int, transaction: OpenTransaction) -> bool:
        """Sends a message, and counts it in `transaction`; its answer comes later. Waits for all answers before and
        after a message of 512 KiB or more. Returns False, and sends nothing, if the broker had the message before this
        sender was opened. Positions must rise from call to call. `time_ms`: of the commit, in ms since the epoch.
        """
        new, ready, partition = self._topics.place(message, position, time_ms)
        sending = self._sending(ready)
        producer = self._producer(sending, partition, position)
        number = position.number
        if producer.is_stored(number) or position in self._remembered:
            return False
        to = ready.partitions[partition]
        sequence = sending.sequencer.next(partition)
        outgoing = new.outgoing(ready.target.topic, to, sequence, self._signer)
        if (problem := ready.form.too_large(outgoing)) is not None:
            sending.sequencer.give_up(sequence)
            raise problem
        token = UnconfirmedMessage(sending.sequencer, to, transaction, sequence, position)
        if wire_size(outgoing) >= _ALONE:
            try:
                self._settle()
            except BaseException:  # no message has its number then
                sending.sequencer.give_up(sequence)
                raise
            self._post(producer, number, outgoing, token)
            self._settle()
        else:
            self._post(producer, number, outgoing, token)
        return True

    def send_marks(self, *, end: bool) -> int:
        """Sends the marks of all topics, which are messages with the last sequence number of a partition, and does not
        wait for their receipts. All messages must have their receipts before. Returns the number of marks. `end`: this
        process sends nothing after them.
        """
        count = 0
        for sending in self._sendings.values():
            for mark in sending.sequencer.marks(end=end):
                to = sending.ready.partitions[mark.partition]
                if mark.partition not in sending.markers:
                    sending.markers[mark.partition] = self._client.open(to, None, sending.ready.target)
                token = UnconfirmedMessage(sending.sequencer, to, mark=mark)
                self._post(sending.markers[mark.partition], None, self._mark(sending.ready, mark, {}), token)
                count += 1
        return count

    def open_coverage(self) -> None:
        """Opens the producer of `send_coverage`, unless it is open. Call it when this process alone has the slot."""
        if self._coverage is None:
            name = self._topics.identity.coverage_producer()
            self._coverage = self._client.open(self._topics.home, name, self._home.ready.target)

    def read_coverage(self, start: int, end: int) -> int:
        """Returns the position up to which marks say that everything is stored. If no mark is stored any more, the
        broker's number of the last mark is that position; 0: neither is known. A mark beyond the broker's number is
        somebody else's, because each mark has its position as number. Call it after `open_coverage`.

        Args:
            start: Position of the slot.
            end: Present end of the log. Between the two, earlier processes may have stored messages.
        """
        assert self._coverage is not None
        self._known_end = end
        marks = self._read(
            self._topics.home, lambda found, _: any(span.start < span.end <= start for span in found.spans)
        )
        self._topics.identity.learn(span.routing for span in marks.spans)
        self._is_named = bool(marks.spans) and marks.spans[-1].routing == self._topics.identity.routing
        known = max(0, self._coverage.last_stored)
        own = (span for span in marks.spans if span.start < span.end and (not known or span.end <= known))
        return max((span.end for span in own), default=known)

    def _read(self, partition: str, is_enough: Callable[[PartitionCopies, int], bool]) -> PartitionCopies:
        with Session(self._connection) as session:
            return read_back(session, partition, self._topics.identity, is_enough, self._keep_alive)

    def send_coverage(self, start: int, end: int) -> None:
        """Sends a mark that says: everything from `start` to `end` was read without a gap, and is stored. Does not wait
        for its receipt. `start`: 0 for a snapshot. The broker keeps the number, `end`, also when the mark is gone.
        """
        assert self._coverage is not None
        token = UnconfirmedMessage(self._home.sequencer, self._home.ready.partitions[0], covers=end)
        if self._coverage.is_stored(end):
            self._out.add(token)
            self._on_answer(token, None)
            return
        covered = self._topics.identity.mark_properties(start, end)
        mark = self._home.sequencer.mark_again(0)
        self._post(self._coverage, end, self._mark(self._home.ready, mark, covered), token)

    def send_begin(self, start: int) -> None:
        """Sends a mark with the topology of this process, which covers nothing, and waits until it is stored. Does
        nothing if the last mark has this topology. Without it a process of another topology would not know the messages
        of one that was killed before its first mark of coverage. `start`: position of the slot.
        """
        if self._is_named:
            return
        producer = self._client.open(self._topics.home, self._topics.identity.begin_producer(), self._home.ready.target)
        token = UnconfirmedMessage(self._home.sequencer, self._topics.home, begins=True)
        names = self._topics.identity.mark_properties(start, start)
        mark = self._home.sequencer.mark_again(0)
        self._post(producer, max(1, producer.last_stored + 1), self._mark(self._home.ready, mark, names), token)
        self._settle()
        producer.close()

    def _mark(self, ready: ReadyTopic, mark: ProducerWatermark, more: dict[str, str]) -> Outgoing:
        """Message of a mark to its partition, signed if there are keys. `more`: further properties."""
        properties = {SEQ: str(mark), FOR: NO_SUBSCRIPTION, **more}
        if self._signer is not None:
            properties = self._signer.signed(ready.target.topic, b"", properties)
        return Outgoing(ready.partitions[mark.partition], b"", properties)

    def close(self) -> None:
        """Closes the client with all producers. Messages without an answer get none."""
        self._client.close()

    def _post(
        self, producer: SequencedProducer, number: int | None, message: Outgoing, token: UnconfirmedMessage
    ) -> None:
        if token.transaction is not None:
            token.transaction.out += 1
        self._out.add(token)
        producer.send(number, message, token, self._on_answer)

    def _sending(self, ready: ReadyTopic) -> _Sending:
        topic = ready.target.topic
        if topic not in self._sendings:
            self._sendings[topic] = _Sending(ready, self._numbering.of(topic))
        return self._sendings[topic]

    def _producer(self, sending: _Sending, partition: int, position: Position) -> SequencedProducer:
        """The producer under whose name the position is numbered. If the broker does not know the name, because it
        forgot it or the topology changed, the partition itself says what earlier processes stored.
        """
        group = position.group
        found = sending.producers.get(partition)
        if found is not None and found[0] == group:
            return found[1]
        if found is not None:
            self._settle()
            found[1].close()
        name, to = self._topics.identity.producer(position), sending.ready.partitions[partition]
        producer = self._client.open(to, name, sending.ready.target)
        if (partition, group) not in sending.opened:  # else its last number may be one of this sender's own
            sending.opened.add((partition, group))
            self._check_time(producer, to, group)
        if not position.is_snapshot and position.lsn < self._known_end:
            self._remember(producer, to, name, position)
        sending.producers[partition] = group, producer
        return producer

    def _remember(self, producer: SequencedProducer, partition: str, name: str, position: Position) -> None:
        """Reads the messages that earlier processes stored in a partition from a position on. Those of another topology
        had other names, so the broker's number for this name does not count them. Messages that they stored later stand
        behind the last one of this name.
        """
        log.info("%s: reading what an earlier process stored there", partition)
        copies = self._read(
            partition,
            lambda found, _: (
                name in found.highest or name in found.impostors or (found.first is not None and found.first < position)
            ),
        )
        if producer.is_stored(position.number):
            self._check_number(producer, partition, name, copies)
        self._remembered.update(copies.changes)

    def _check_number(self, producer: SequencedProducer, partition: str, name: str, copies: PartitionCopies) -> None:
        """Raises UsageError if the broker's number of a producer is not that of its last stored message: somebody else
        sent under its name, and changes would be taken for stored. If the partition stores none, nobody can tell.
        `copies`: its last messages.
        """
        last = copies.highest.get(name, -1 if name in copies.impostors else producer.last_stored)
        if last != producer.last_stored:
            detail = (
                f"{partition}: the last number of producer {name} is not that of a message of this source: somebody else"
                " sent under its name, or without the signing keys of this run, so it is not known what is stored. Drop"
                " the slot: the next run sends all rows again"
            )
            raise UsageError(error("K792", "position of a source is lost", detail))

    def _check_time(self, producer: SequencedProducer, partition: str, group: str) -> None:
        """Raises UsageError if the broker has changes that the database does not have yet: it would drop new ones. Only
        for a producer under whose name this sender has sent nothing.
        """
        end = Position(self._topics.identity.system.end, 0)
        if group == end.group and producer.last_stored > end.number:
            detail = (
                f"{partition} has changes after {lsn_text(end.lsn)}, the end of the database's log: the server was"
                " restored to an earlier time. Drop the slot: the next run sends all rows again under new numbers"
            )
            raise UsageError(error("K792", "position of a source is lost", detail))

    def _check_deduplication(self, ready: ReadyTopic) -> None:
        """Raises UsageError if the broker does not deduplicate."""
        self._client.open(ready.partitions[0], None, ready.target).close()  # so that the broker has loaded it
        if is_deduplicating(self._connection, ready.partitions[0]) is False:
            detail = f"{ready.target.topic}: the broker does not deduplicate: `kodoctl apply FILE` switches it on"
            raise UsageError(error("K790", "source cannot start", detail))

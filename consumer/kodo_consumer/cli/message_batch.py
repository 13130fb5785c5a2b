"""Message batch: the messages of one `kodoctl send`, encoded before any is sent, and the outcome of each."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, cast

from kodo_consumer.cli.typed_messages import TypedMessage
from kodo_consumer.core.checks.message_validation import SendOptions, validator_of
from kodo_consumer.core.values.broker import Confirmed, Receipt, Unconfirmed
from kodo_consumer.core.values.envelope import ID, Outgoing
from kodo_consumer.core.values.exceptions import InvalidPayloadError
from kodo_consumer.message import json_value
from kodo_consumer.sending.pending_messages import not_stored
from kodoctl.errors import ClusterError, Diagnostic, UsageError, error
from kodoctl.text.escaping import one_line
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar.receipts import ReceiptPosition
    from kodo_consumer.core.values.send_target import SendTarget
    from kodo_consumer.producer import Producer

_AFTER_INTERRUPT = 5.0  # seconds that receipts are waited for then
_LATE_CALLBACK = 5.0  # seconds; after `close` every callback was called, or is about to be


@dataclass(frozen=True, slots=True)
class MessageArguments:
    """Everything that all messages of a batch have beside payloads. `id`: identity of the only message; None: each
    message gets a new one; `event_time`: ms since the epoch, 0: none.
    """

    properties: Mapping[str, str]
    key: str | None = None
    id: str | None = None
    event_time: int = 0

    @property
    def options(self) -> SendOptions:
        """These arguments as options of a producer."""
        return {"key": self.key, "properties": self.properties, "event_time": self.event_time, "id": self.id}


class EncodedMessage(NamedTuple):
    """A message whose payload its topic allows; its size is not checked yet. `line`: its line in the input, from 1; 0:
    the whole input is one message. `id`: its identity; `payload`: encoded, None: a tombstone.
    """

    line: int
    id: str
    payload: bytes | None


class OutcomeStatus(StrEnum):
    """Status of a message after a batch was sent."""

    STORED = "stored"
    IN_DOUBT = "in_doubt"  # sent, without a receipt
    NOT_STORED = "not_stored"


class SendOutcome(NamedTuple):
    """Outcome of one message. `topic` and `position` (ledger:entry:partition:batch): where it is stored, "" unless it
    is; `finding`: why it is not stored, or in doubt; None: it is stored.
    """

    message: EncodedMessage
    status: OutcomeStatus
    topic: str = ""
    position: str = ""
    finding: Diagnostic | None = None


def encode_messages(
    target: SendTarget, typed: Sequence[TypedMessage], arguments: MessageArguments
) -> tuple[list[EncodedMessage], list[tuple[int, Diagnostic]]]:
    """Encodes messages for a topic. Returns the messages whose payloads it allows, and findings about all that it does
    not allow, each with its line (0: about the arguments of all messages). On an Avro topic the payloads are JSON
    values of its schema.
    """
    form = validator_of(target)
    messages: list[EncodedMessage] = []
    findings: list[tuple[int, Diagnostic]] = []
    try:
        form.accept(None, lambda: 0, **arguments.options)
    except UsageError as problem:
        findings += [(0, finding) for finding in problem.diagnostics]
    for line, payload in typed:
        try:
            data = form.encode(_value(payload) if target.payload_type == "avro" else payload)
        except UsageError as problem:
            findings += [(line, finding) for finding in problem.diagnostics]
        else:
            messages.append(EncodedMessage(line, arguments.id or uuid.uuid4().hex, data))
    return messages, findings


def size_findings(
    target: SendTarget,
    messages: Sequence[EncodedMessage],
    arguments: MessageArguments,
    limit: int,
    *,
    has_file: bool = True,
) -> list[tuple[int, Diagnostic]]:
    """Findings about messages that have more than `limit` bytes with their properties, even compressed as `target`
    allows, each with the line of its message. `limit` 0: there is none, and so no finding. `has_file`: a topology file
    was named; else each finding advises to name one, because its compression may help.
    """
    advice = "" if has_file else "; --topology FILE compresses as the file declares"
    form, properties, key = validator_of(target, limit), arguments.properties, arguments.key or ""
    refusals = [
        (line, form.too_large(Outgoing(target.topic, data, {**properties, ID: name}, key)))
        for line, name, data in messages
    ]
    return [
        (line, replace(finding, detail=f"{finding.detail}{advice}"))
        for line, refusal in refusals
        if refusal
        for finding in refusal.diagnostics
    ]


def _value(payload: bytes) -> object:
    """Value of a payload that is typed as JSON. Raises UsageError."""
    try:
        value: object = json_value(payload)
    except InvalidPayloadError as problem:
        detail = f"{one_line(problem)}; for an Avro topic write it as JSON, it is encoded by the schema"
        raise UsageError(error("K716", "payload refused", detail)) from None
    return value


def send_messages(
    producer: Producer, messages: Sequence[EncodedMessage], arguments: MessageArguments
) -> tuple[list[SendOutcome], bool]:
    """Sends the messages, closes the producer, and returns the outcome of each message in order, and whether Ctrl-C
    interrupted. After an interrupt, or an error of the cluster, no further message is sent; after a message that the
    producer refuses the others are.
    """
    receipts: SimpleQueue[tuple[int, Receipt]] = SimpleQueue()
    posted: dict[int, EncodedMessage] = {}  # by index: these may have been stored
    refusals: dict[int, Diagnostic] = {}
    interrupted = False
    try:
        for index, message in enumerate(messages):
            posted[index] = message
            try:
                options: SendOptions = {**arguments.options, "id": message.id}
                producer.post(message.payload, partial(_put, receipts, index), **options)
            except (ClusterError, UsageError) as problem:
                refusals[index] = problem.diagnostics[0]
                del posted[index]
                if isinstance(problem, ClusterError):
                    break
        with suppress(ClusterError):  # the receipts say more
            producer.close()
    except KeyboardInterrupt:
        interrupted = True
        with suppress(ClusterError):
            producer.close(_AFTER_INTERRUPT)
    received = _received(receipts, len(posted))
    rest = error("K714", "cannot publish", f"not sent: {'interrupted' if interrupted else 'an earlier one failed'}")
    outcomes = []
    for index, message in enumerate(messages):
        if index in posted:
            receipt = received.get(index, Unconfirmed("no receipt in time"))
            outcomes.append(_outcome(message, receipt, producer.topic))
        else:
            outcomes.append(SendOutcome(message, OutcomeStatus.NOT_STORED, finding=refusals.get(index, rest)))
    return outcomes, interrupted


def _put(receipts: SimpleQueue[tuple[int, Receipt]], index: int, receipt: Receipt) -> None:
    receipts.put((index, receipt))


def _received(receipts: SimpleQueue[tuple[int, Receipt]], count: int) -> dict[int, Receipt]:
    """Receipts by index of their message: all that a closed producer has called back with, or is about to."""
    found: dict[int, Receipt] = {}
    with suppress(Empty):
        while len(found) < count:
            index, receipt = receipts.get(timeout=_LATE_CALLBACK)
            found[index] = receipt
    return found


def _outcome(message: EncodedMessage, receipt: Receipt, topic: str) -> SendOutcome:
    if isinstance(receipt, Confirmed):
        place = cast("ReceiptPosition", receipt.position)
        position = f"{place}"[1:-1].replace(",", ":")
        return SendOutcome(message, OutcomeStatus.STORED, whole_topic(place.topic), position)
    status = OutcomeStatus.IN_DOUBT if isinstance(receipt, Unconfirmed) else OutcomeStatus.NOT_STORED
    (finding,) = not_stored(topic, receipt, len(message.payload or b"")).diagnostics
    return SendOutcome(message, status, finding=finding)

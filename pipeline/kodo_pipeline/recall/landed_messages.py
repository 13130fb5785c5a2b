"""Lost messages of a recall plan, read from a landing by Arrow: this process sends them without Spark. A message that
was lost on its way is stored nowhere, and is rebuilt from the message before the move and the audit record of the move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.evidence.audit_evidence import Cause
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS
from kodoctl.protocol import properties as headers
from kodoctl.pulsar.binary.message_reader import ReadMessage
from kodoctl.recall.plan.recall_plan import ExclusionReason
from kodoctl.topology.names import State, partition_name, partition_numbers

if TYPE_CHECKING:
    from contextlib import ExitStack

    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.landing.tables import Table
    from kodoctl.protocol.signing import Signer
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.message.stored_message import Position
    from kodoctl.recall.plan.recall_plan import RecallPlan

LOCK: Final = "kodo-recall-lost"
"""Beginning of the name of a producer on the lane that lost messages. A broker gives a name to one process at a time,
so the producer is a lock.
"""
ERASED: Final = "its payload is not in the landing any more"
_MOVED_ON: Final = frozenset(
    {Cause.UNRECORDED.value, Cause.IDENTITY_MISMATCH.value, Cause.UNCONFIRMED_RECALL.value, Cause.SENT_AGAIN.value}
)
"""Causes of a doubt about messages that are stored, or were sent, elsewhere: they must not be sent once more."""
_AT_ONCE: Final = 500  # messages that are looked up together


def has_payload(payload: bytes | None, size: int | None, state: str | None = None) -> bool:
    """True if the landing has the payload as it was stored; a tombstone counts as a payload. `payload`: the landed
    payload, or a beginning of it; `size`, `state`: columns `size` and `payload_state` of `events`; `state` None: the
    payload was neither masked nor removed.
    """
    return state is None and (payload is not None or size == 0)


def exclusion_reason(row: Mapping[str, Any]) -> ExclusionReason | None:
    """Reason why a lost message cannot, or must not, be sent; None if it can. `row`: `why`: its cause in the audit;
    `landed`: whether the landing has it, or the message before the move on which it was lost; `head`, `landed_size`,
    `payload_state`: first byte, size and state of the landed payload, as `has_payload` takes them; `readable`: whether
    that message can be sent on unchanged.
    """
    if row["why"] in _MOVED_ON:
        return ExclusionReason.MOVED_ON
    if not row["landed"] or not has_payload(row["head"], row["landed_size"], row["payload_state"]):
        return ExclusionReason.NOT_LANDED
    return None if row["readable"] else ExclusionReason.UNREADABLE


def moved_properties(source: Mapping[str, Any], move: Mapping[str, Any]) -> dict[str, str]:
    """Properties that a message had after a move, rebuilt approximately from all that it had before. The move adds one
    to the hop, sets parts of the origin that are missing, sets reason and error if its record has them, and for a dead
    letter the level in which it died, and removes the property that addresses the message to one subscription. So the
    attempts are those before the move. `source`: row in `events` of the message before the move, with `published` (ms);
    `move`: audit record of the move.
    """
    found = dict(source["properties"] or ())
    found.setdefault(headers.ORIGIN_ID, source["id"])
    found.setdefault(headers.ORIGIN_TOPIC, source["msg_topic"])
    found.setdefault(headers.ORIGIN_TIME, str(source["published"]))
    found[headers.HOP] = str((source["hop"] or 0) + 1)
    found.pop(headers.FOR, None)
    if move["reason"]:
        found[headers.REASON] = move["reason"]
    if move["error"]:
        found[headers.ERROR] = move["error"]
    if move["event"] == State.DEAD.value and source["level"]:
        found[headers.FROM_LEVEL] = source["level"]
    return found


def lost_messages(plan: RecallPlan, cluster: RecallCluster, signer: Signer | None) -> LandedMessages:
    """Opens the source of the messages of a plan of lost messages. `signer`: signs headers that are rebuilt (see
    LandedMessages), None: there are no keys. Raises UsageError (K801) if no ingest was completed in the landing that
    the plan names, KodoctlError (K573, K584) if the landing cannot be read.
    """
    from kodo_pipeline.landing.landing_store import Landing, must_hold

    landing = Landing(plan.landing, plan.topology, plan.environment)
    must_hold(landing, f"{plan.path} --landing {plan.landing}")
    return LandedMessages(plan, cluster, landing, signer)


class LandedMessages:
    """Source of the messages of a plan of lost messages (implements
    kodoctl.recall.send.dead_letter_partitions.MessageSource). A message that was lost on a move is rebuilt from the
    message before the move and the audit record of the move. No subscription has these messages, so there is nothing to
    acknowledge, and only the recall ledger records which were sent. Therefore a lock, taken by `open`, ensures one
    attempt at a time per lane and subscription.
    """

    acknowledged = 0

    def __init__(self, plan: RecallPlan, cluster: RecallCluster, landing: Landing, signer: Signer | None) -> None:
        """The messages are those of the landing's newest commit, even if a killed writer added it to no table yet."""
        self._plan, self._cluster, self._landing, self._signer = plan, cluster, landing, signer
        self._files = landing.snapshot(EVENTS, TRANSITIONS).files
        self._positions: list[Position] = []
        self._locked = False

    def open(self, stack: ExitStack, positions: Collection[Position]) -> list[int]:
        """Chooses `positions` for `messages` in place of earlier ones, and returns their partition numbers, sorted. The
        first call takes the lock of the lane, and `stack` releases it when it closes. Raises LockedError if another
        attempt keeps the lock for 15 s, ClusterError for any other failure of the cluster.
        """
        if not self._locked:
            part = partition_name(self._plan.source_topic, partition_numbers(self._plan.source_partitions)[0])
            lock = self._cluster.lane(part, f"{LOCK}-{self._plan.subscription}")
            stack.callback(lock.close)
            self._locked = True
        self._positions = sorted(set(positions))
        return sorted({position.partition for position in self._positions})

    def messages(self, number: int) -> Iterator[tuple[Position, ReadMessage]]:
        """Yields (position, message) for the chosen messages of the partition `number`, in order of position. Messages
        whose payload the landing lacks, or has masked, are left out. The messages have no `token`. Raises KodoctlError
        (K573) if the landing cannot be read.
        """
        wanted = [one for one in self._positions if one.partition == number]
        for begin in range(0, len(wanted), _AT_ONCE):
            some = wanted[begin : begin + _AT_ONCE]
            found = self._stored_messages(some)
            found |= self._moved_messages([one for one in some if one not in found])
            yield from ((position, found[position]) for position in some if position in found)

    def acknowledged_in_batches(self, expected: Collection[Position]) -> set[Position]:  # noqa: ARG002
        """Returns an empty set, because no subscription has these messages."""
        return set()

    def acknowledge(self, position: Position, token: object) -> None:
        """Does nothing, because no subscription has these messages."""

    def count_unacknowledged(self) -> int:
        """Returns 0, because no subscription has these messages."""
        return 0

    def why_missing(self, position: Position) -> str:  # noqa: ARG002
        """Text that says that the payload is not in the landing any more, the same for every position."""
        return ERASED

    def _stored_messages(self, positions: Iterable[Position]) -> dict[Position, ReadMessage]:
        ids = {str(position): position for position in positions}
        rows = self._events(self._plan.source_topic, ids)
        return {ids[row["id"]]: _message(row, ids[row["id"]], row["properties"]) for row in rows}

    def _moved_messages(self, positions: Collection[Position]) -> dict[Position, ReadMessage]:
        """Messages that, by a record, were moved to these positions, at which no message landed."""
        if not positions:
            return {}
        ids = {str(position): position for position in positions}
        same = {"target_topic": self._plan.source_topic, "subscription": self._plan.subscription}
        moves = self._rows(TRANSITIONS, "target_id", ids, same)
        by_source = {(move["msg_topic"], move["id"]): move for move in moves}
        found: dict[Position, ReadMessage] = {}
        for topic in sorted({topic for topic, _ in by_source}):
            for row in self._events(topic, [name for at, name in by_source if at == topic]):
                move = by_source[topic, row["id"]]
                position = ids[move["target_id"]]
                found[position] = _message(row, position, self._moved_headers(row, move))
        return found

    def _moved_headers(self, row: Mapping[str, Any], move: Mapping[str, Any]) -> Mapping[str, str]:
        """Returns the headers with which a worker would have moved the message. They are signed if there are signing
        keys and the landed message had a valid signature.
        """
        made = moved_properties(row, move)
        if self._signer is None:
            return made
        genuine = self._signer.genuine(row["msg_topic"], row["payload"], dict(row["properties"] or ()))
        return self._signer.signed(self._plan.source_topic, row["payload"], made) if genuine else made

    def _events(self, topic: str, ids: Iterable[str]) -> list[dict[str, Any]]:
        same = {"topic": self._plan.topic, "msg_topic": topic}
        rows = self._rows(EVENTS, "id", ids, same)
        for row in rows:
            row["published"] = _ms(row["publish_ts"])
        return [row for row in rows if has_payload(row["payload"], row["size"], row["payload_state"])]

    def _rows(self, table: Table, column: str, values: Iterable[str], same: Mapping[str, str]) -> list[dict[str, Any]]:
        return self._landing.table(table).rows_among(self._files[table.name], column, values, same)


def _ms(moment: Any) -> int:
    """Exact ms since the epoch; 0 for None. The float of a timestamp is not exact beyond some thousand years."""
    from datetime import UTC, datetime, timedelta

    return 0 if moment is None else int((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def _message(row: Mapping[str, Any], position: Position, properties: Any) -> ReadMessage:
    return ReadMessage(
        None, position.partition, position.ledger, position.entry, position.batch, row["payload"], dict(properties or ()),
        row["key"] or "", "", _ms(row["event_ts"]), row["published"], row["broken"] or "",
    )  # fmt: skip

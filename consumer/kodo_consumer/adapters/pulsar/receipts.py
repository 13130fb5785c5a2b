"""Receipts made from the client library's results of a send: stored with its position, unconfirmed, or rejected for
good.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pulsar

from kodo_consumer.adapters.pulsar.producer_openings import OpeningTimeoutError
from kodo_consumer.core.values.broker import TOO_BIG, Receipt, Rejected, Unconfirmed
from kodoctl.errors import ClusterError
from kodoctl.topology.names import whole_topic

NEVER: Final = {
    pulsar.Result.MessageTooBig: TOO_BIG,
    pulsar.Result.IncompatibleSchema: "its schema does not fit",
    pulsar.Result.AuthorizationError: "not authorised",
    pulsar.Result.InvalidMessage: "invalid message",
}
"""Results after which a message is not sent again, each with the reason for people."""
BROKEN: Final = {
    pulsar.Result.AlreadyClosed, pulsar.Result.NotConnected, pulsar.Result.TopicNotFound, pulsar.Result.TopicTerminated,
    pulsar.Result.ProducerNotInitialized, pulsar.Result.ProducerFenced, pulsar.Result.UnknownError, pulsar.Result.Timeout,
}  # fmt: skip
"""Results after which a producer may never work again, even if its topic does: the sender opens a new one."""
_NEVER_RAISED: Final = {getattr(pulsar, result.name): reason for result, reason in NEVER.items()}
"""The same as exceptions, which have the results' names."""


class ReceiptPosition(NamedTuple):
    """Position of a stored message. `topic`: name of its partition, or of the plain topic, because the client's
    position, `token`, lacks the partition.
    """

    topic: str
    token: Any

    def __str__(self) -> str:
        """Returns the text in the form of delivery tokens."""
        token, partition = self.token, self.topic.removeprefix(whole_topic(self.topic)).rpartition("-")[2]
        return f"({token.ledger_id()},{token.entry_id()},{partition or -1},{token.batch_index()})"


def failure_receipt(problem: Exception) -> Receipt:
    """Receipt of a message whose send, or whose producer, failed with an exception. Rejected if the exception is of a
    kind that `NEVER` names, or if it is neither pulsar.PulsarException, ClusterError nor OpeningTimeoutError (the
    client cannot build the message); else Unconfirmed, because a later try may store the message.
    """
    match problem:
        case pulsar.PulsarException():
            never = [reason for kind, reason in _NEVER_RAISED.items() if isinstance(problem, kind)]
            return Rejected(never[0]) if never else Unconfirmed(type(problem).__name__)
        case ClusterError() | OpeningTimeoutError():
            return Unconfirmed(str(problem))
        case _:
            return Rejected(type(problem).__name__)  # what it says has what the message says

"""What a producer has sent and has no receipt for, and what it tells of a message that gets none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from consumer.broker import TOO_BIG, Lost, NeverTaken, Receipt
from kodoctl.errors import ClusterError, error
from kodoctl.topology.numbering import Number

if TYPE_CHECKING:
    from opentelemetry.trace import Span

OnStored = Callable[[Receipt], None]


class Sent(NamedTuple):
    """A message without receipt, or a mark, which has no number. `at`: monotonic seconds. `span`: where there are traces;
    then `topic` is its partition's.
    """

    on_receipt: OnStored
    number: Number | None
    at: float
    span: Span | None = None
    topic: str = ""


def not_stored(topic: str, receipt: Lost | NeverTaken, size: int) -> ClusterError:
    """What to raise for a message without receipt. `size`: bytes of its payload."""
    if receipt == NeverTaken(TOO_BIG):
        detail = f"{topic}: {size} bytes of payload are more than the broker takes: `maxMessageSize` of its configuration, 5 MiB unless changed, or of the topic; it was not stored"
        return ClusterError(error("K729", "message too large", detail))
    sure = "it was not stored" if isinstance(receipt, NeverTaken) else "it may have been stored"
    return ClusterError(error("K715", "message without receipt", f"{topic}: {receipt.reason}; {sure}"))

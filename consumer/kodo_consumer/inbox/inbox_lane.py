"""Lane through the inbox: sink of the lane on the topic, and reader of the lane for the worker."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count, zip_longest
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kodo_consumer.core.values.envelope import position
from kodo_consumer.inbox.inbox_row import InboxToken
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import ClaimSink, LaneReader, LaneRequest
    from kodo_consumer.core.values.envelope import Delivery

log = logging.getLogger("kodo.consumer")
_FIRST: Final = 10  # rows of a lane claimed at once, before the sizes of its messages are known
_NAMED: Final = 10  # messages that a log entry names


class InboxLane:
    """Lane through the inbox: sink of the lane on the topic, and reader of the lane for the worker. `ring` is called
    when there is something to do. Thread-safe.
    """

    def __init__(self, request: LaneRequest, sink: ClaimSink, ring: Callable[[], object]) -> None:
        self.request, self.sink = request, sink
        self.reader: LaneReader  # set once the topic is open
        self.received: deque[Delivery] = deque()
        self.ended: deque[tuple[InboxToken, int]] = deque()  # with its ticket, 0 where the worker awaits no result
        self.unfinished: dict[int, InboxToken] = {}  # delivered rows that are not marked as done
        self.next_look = 0.0
        self.largest = request.batch_bytes // _FIRST  # bytes of the largest payload that was claimed
        self.is_stopped = self.is_away = False
        self._lock, self._is_closed = threading.Lock(), False
        self._ring, run = ring, f"{request.consumer_name[-40:]}-{uuid4().hex[:12]}"
        self._claims = (f"{run}-{number}" for number in count())
        self.claim = next(self._claims)

    @property
    def is_ordered(self) -> bool:
        """True if the lane keeps the order of each key."""
        return self.request.type != "shared"

    # ---- sink of the topic

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Queues received messages to be stored."""
        self.received.extend(deliveries)
        self._ring()

    def room(self) -> int:
        """Number of messages that may be received now: `batch` of the request, less those that wait to be stored; 0
        after `stop`.
        """
        return 0 if self.is_stopped else max(0, self.request.batch - len(self.received))

    def on_disconnect(self, partition: str | None = None) -> None:
        """Does nothing: rows stay, and messages that come again are recognised by their names."""

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        """Does nothing: rows say which messages are done."""

    def fail(self, problem: BaseException) -> None:
        """Fails the worker, because no messages will come any more."""
        self.sink.fail(problem)

    # ---- reader for the worker

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Texts about topics of which no messages can come now: see LaneReader."""
        return self.reader.disconnected_topics

    def long_connected(self, seconds: float) -> frozenset[str]:
        """Numbers, as texts, of the partitions that have been connected for `seconds`: see LaneReader."""
        return self.reader.long_connected(seconds)

    def seconds_since_empty(self) -> Mapping[str, float]:
        """Seconds since the client had no message left: see LaneReader."""
        return self.reader.seconds_since_empty()

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        """Queues rows to be marked as done. `tickets`: one for each of `tokens`, in their order, if the worker awaits
        results; the sink gets a ticket as confirmed when the database has marked the row, and as unknown if another
        worker has claimed it.
        """
        ended = zip_longest(tokens, tickets, fillvalue=0)
        self.ended.extend((token, ticket) for token, ticket in ended if isinstance(token, InboxToken))
        self._ring()

    def resume(self) -> None:
        """Looks for rows again, because the worker has room."""
        self.next_look = 0.0
        self._ring()

    def add_consumers(self) -> None:
        """Does nothing: messages are acknowledged as soon as they are stored."""

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Plans to reconnect the reader of the topic, as LaneReader.reconnect does. Rows that are claimed stay with
        this lane.
        """
        self.reader.reconnect(wait, away, partition)

    def leave(self, wait: float) -> None:
        """Claims no more rows from now on, and leaves the topic in `wait` seconds, both until `join`. Its claims are no
        longer renewed: after they lapse, any worker can claim the rows that this worker dropped.
        """
        self.is_away, self.claim = True, next(self._claims)
        self.reader.leave(wait)

    def join(self) -> None:
        """Lets the lane read the topic and claim rows again; returns at once."""
        self.is_away = False
        self.reader.join()
        self.resume()

    def stop(self) -> None:
        """Ends receiving and claiming; rows are still marked as done, by the InboxBroker until it is closed."""
        self.is_stopped = True
        self.reader.stop()

    def close(self) -> None:
        """Closes the lane on the topic. The broker of this lane marks rows as done and releases claims."""
        with self._lock:
            self.is_stopped = self._is_closed = True
        self.reader.close()

    # ---- the inbox

    def on_renewed(self, rows: AbstractSet[int], until: float) -> AbstractSet[InboxToken]:
        """Lets the messages of `rows` (ids), whose claims were renewed, start until a moment (monotonic seconds), and
        drops the unstarted messages of other rows, because another worker has claimed these. Returns the tokens of
        further messages that it dropped only to keep the order of keys: the caller has to give their rows back.
        """
        mine = {row: token for row, token in self.unfinished.items() if token.claim == self.claim}
        lost = {token for row, token in mine.items() if row not in rows}
        dropped = set(mine.values()) if lost and self.is_ordered else lost
        started = set(self.sink.withdraw(dropped))
        self.unfinished = {row: token for row, token in mine.items() if token not in dropped or token in started - lost}
        topic = self.request.topic
        if lost:
            text = "%s: %s claimed by another worker, because the claim lapsed"
            log.warning(text, topic, many(len(lost), "row"))
        if twice := [token for token in started if token in lost]:
            log.warning("%s: handled twice, because they have started here: %s", topic, positions_text(twice))
        self.sink.start_until(until)
        return dropped - lost - started

    def first_received(self) -> list[Delivery]:
        """Returns the messages that were received first, at most one batch, without removing them; `on_stored` does
        that.
        """
        return [self.received[place] for place in range(min(len(self.received), self.request.batch))]

    def on_stored(self, deliveries: Sequence[Delivery]) -> None:
        """Removes the first received messages, as many as `deliveries`, because they are stored, and acknowledges
        `deliveries` on the topic unless the lane is closed.
        """
        for _ in deliveries:
            self.received.popleft()
        with self._lock:
            if not self._is_closed:
                self.reader.acknowledge([one.token for one in deliveries])
                self.reader.resume()
        self.next_look = 0.0


def positions_text(tokens: Sequence[object]) -> str:
    """Positions of messages on their topic, of the first ten, and how many more there are."""
    more = f" and {len(tokens) - _NAMED} more" if len(tokens) > _NAMED else ""
    return ", ".join(position(token) for token in tokens[:_NAMED]) + more

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
    when there is something to do. Any thread may call the methods of sink and reader; the methods for the inbox are for
    the thread of the InboxBroker.
    """

    def __init__(self, request: LaneRequest, sink: ClaimSink, ring: Callable[[], object]) -> None:
        self.request, self.sink = request, sink
        self.reader: LaneReader  # set once the topic is open
        self.received: deque[Delivery] = deque()
        self.ended: deque[tuple[InboxToken, int]] = deque()  # with its ticket, 0 where the worker awaits no result
        self.unfinished: dict[int, InboxToken] = {}  # delivered rows that are not marked as done
        self.next_look = 0.0
        self.largest = request.batch_bytes // _FIRST  # bytes of the largest payload of the last claim
        self.is_stopped = self.is_away = False
        self._lock, self._is_closed = threading.Lock(), False
        self._ring, run = ring, f"{request.consumer_name[-40:]}-{uuid4().hex[:12]}"
        self._claims = (f"{run}-{number}" for number in count())
        self.claim = next(self._claims)

    @property
    def is_ordered(self) -> bool:
        """True if the lane keeps the order of each key: the type of its subscription is not shared."""
        return self.request.type != "shared"

    # ---- sink of the topic

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Queues received messages to be stored."""
        self.received.extend(deliveries)
        self._ring()

    def room(self) -> int:
        """Number of messages that may be received now: `batch` of the request, less the received messages that are not
        stored yet or whose audit record is not; at least 0, and 0 after `stop` and `close`.
        """
        return 0 if self.is_stopped else max(0, self.request.batch - len(self.received))

    def on_disconnect(self, partition: str | None = None) -> None:
        """Does nothing: received messages and rows stay, and a message that comes again is recognised by the name of
        its row, as long as the row is kept.
        """

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        """Does nothing: rows say which messages are done."""

    def fail(self, problem: BaseException) -> None:
        """Fails the worker, because a thread that reads the topic has ended: messages may come no more."""
        self.sink.fail(problem)

    # ---- reader for the worker

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Texts about topics of which no messages can come now: see LaneReader. Rows still come."""
        return self.reader.disconnected_topics

    def long_connected(self, seconds: float) -> frozenset[str]:
        """Numbers, as texts, of the partitions that have been connected for `seconds`: see LaneReader."""
        return self.reader.long_connected(seconds)

    def seconds_since_empty(self) -> Mapping[str, float]:
        """Seconds, by partition, since the client last had no undelivered message of it: see LaneReader."""
        return self.reader.seconds_since_empty()

    def acknowledge(self, tokens: Sequence[object], tickets: Sequence[int] = ()) -> None:
        """Queues rows to be marked as done by the thread of the inbox. `tickets`: one for each of `tokens`, in their
        order, if the worker awaits results; 0: it does not await this one. The sink gets a ticket as confirmed when the
        database has marked the row; as unknown if the row was done before, or if the claim in the token does not have
        it any more.
        """
        ended = zip_longest(tokens, tickets, fillvalue=0)
        self.ended.extend((token, ticket) for token, ticket in ended if isinstance(token, InboxToken))
        self._ring()

    def resume(self) -> None:
        """Lets the thread of the inbox look for rows at once, because the worker has room. Does not wait for it."""
        self.next_look = 0.0
        self._ring()

    def add_consumers(self) -> None:
        """Does nothing: messages are acknowledged without waiting for their handlers, so few are unacknowledged."""

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Plans to reconnect the reader of the topic, as LaneReader.reconnect does. Rows that are claimed stay with
        this lane.
        """
        self.reader.reconnect(wait, away, partition)

    def leave(self, wait: float) -> None:
        """Claims no more rows until `join` (a claim that is under way still ends), and leaves the topic in `wait`
        seconds. The present claims of the lane are renewed no more: after they lapse, any worker can claim their rows
        that are not done. So the worker first drops the messages that have not started.
        """
        self.is_away, self.claim = True, next(self._claims)
        self.reader.leave(wait)

    def join(self) -> None:
        """Lets the lane read the topic and claim rows again, its earlier ones once their claims have lapsed; returns at
        once.
        """
        self.is_away = False
        self.reader.join()
        self.resume()

    def stop(self) -> None:
        """Ends receiving and claiming, and returns at once. Until the InboxBroker is closed, received messages are
        still stored, and rows are still marked as done.
        """
        self.is_stopped = True
        self.reader.stop()

    def close(self) -> None:
        """Ends receiving and claiming, and closes the lane on the topic as LaneReader.close does. Messages that are
        stored later are not acknowledged.
        """
        with self._lock:
            self.is_stopped = self._is_closed = True
        self.reader.close()

    # ---- the inbox

    def on_renewed(self, rows: AbstractSet[int], until: float) -> None:
        """Lets delivered messages start until a moment (monotonic seconds), because claims were renewed. `rows`: ids of
        the rows that the claims have. Drops unstarted messages of other rows, which another worker has claimed, or a
        person has discarded or retried; on an ordered lane, if there is any such row, all unstarted messages. The rows
        of dropped messages are not in `unfinished` any more: the caller has to give back those that are among `rows`.
        """
        mine = {row: token for row, token in self.unfinished.items() if token.claim == self.claim}
        lost = {token for row, token in mine.items() if row not in rows}
        dropped = set(mine.values()) if lost and self.is_ordered else lost
        started = set(self.sink.withdraw(dropped))
        self.unfinished = {row: token for row, token in mine.items() if token not in dropped or token in started - lost}
        topic = self.request.topic
        if lost:
            text = "%s: this worker no longer has %s: the claim lapsed, or a person discarded or retried them"
            log.warning(text, topic, many(len(lost), "row"))
        if twice := [token for token in started if token in lost]:
            log.warning("%s: handled twice, because they have started here: %s", topic, positions_text(twice))
        self.sink.start_until(until)

    def first_received(self) -> list[Delivery]:
        """Returns the messages that were received first, at most `batch` of the request. They stay until `on_stored`
        removes them.
        """
        return [self.received[place] for place in range(min(len(self.received), self.request.batch))]

    def on_stored(self, deliveries: Sequence[Delivery]) -> None:
        """Removes the first received messages, as many as `deliveries`, because they are stored. Unless the lane is
        closed, acknowledges `deliveries` on the topic, and lets the reader deliver more.
        """
        for _ in deliveries:
            self.received.popleft()
        with self._lock:
            if not self._is_closed:
                self.reader.acknowledge([one.token for one in deliveries])
                self.reader.resume()
        self.next_look = 0.0


def positions_text(tokens: Sequence[object]) -> str:
    """Positions, as text, of the messages with these tokens: of the first ten, and the number of the others."""
    more = f" and {len(tokens) - _NAMED} more" if len(tokens) > _NAMED else ""
    return ", ".join(position(token) for token in tokens[:_NAMED]) + more

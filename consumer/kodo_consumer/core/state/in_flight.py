"""Records of in-flight messages: one for each unacknowledged message, and the state of each lane."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.state.tenant_ring import DeficitRoundRobin
from kodo_consumer.core.values.envelope import FRESH, Delivery, Envelope, Headers
from kodo_consumer.core.values.limit_policy import NOBODY

if TYPE_CHECKING:
    from kodo_consumer.core.limits.limiter_set import Limiters
    from kodo_consumer.core.state.failover_partitions import ActivePartitions
    from kodo_consumer.core.state.tenant_queue import TenantQueue
    from kodo_consumer.core.values.policy import Lane

RECENT_SECONDS: Final = 60.0
_MAX_RECENT: Final = 10_000
OTHER: Final = "other"
_MAX_COUNTED: Final = 60


class Stage(Enum):
    """Stage of an in-flight message: its wait or its work. A message is in exactly one at a time; in none it would
    never be handled or acknowledged. RELEASED ends the record.
    """

    __hash__ = object.__hash__  # by identity: an Enum's own is a Python function, and six are taken for each message
    QUEUED = auto()  # in its tenant's queue, may start when its turn comes
    BLOCKED_BY_KEY = auto()  # behind another message of its key, on an ordered lane
    LIMITED = auto()  # waits at a limit
    EVACUATING = auto()  # soon to be moved: of an isolated tenant, or more than its lane may wait for
    WAITING = auto()  # until a moment
    RUNNING = auto()
    DEFERRED = auto()  # its handler has returned, and a token ends it
    PUBLISHING = auto()  # moved, until the receipt
    RECORDED = auto()  # ended, until the receipt of its audit record
    UNDELIVERABLE = auto()  # refused by every target, until a person helps
    RELEASED = auto()  # acknowledged, or dropped because the broker redelivers it


UNSTARTED: Final = frozenset({Stage.QUEUED, Stage.BLOCKED_BY_KEY, Stage.LIMITED, Stage.EVACUATING, Stage.WAITING})
_DECIDED: Final = frozenset({Stage.WAITING, Stage.PUBLISHING, Stage.RECORDED, Stage.RELEASED})
TRANSITIONS: Final[Mapping[Stage, AbstractSet[Stage]]] = {
    Stage.QUEUED: UNSTARTED | _DECIDED | {Stage.RUNNING},
    Stage.BLOCKED_BY_KEY: {Stage.QUEUED, Stage.LIMITED} | _DECIDED,
    Stage.LIMITED: {Stage.QUEUED, Stage.EVACUATING, Stage.RELEASED},
    Stage.EVACUATING: _DECIDED,
    Stage.WAITING: {Stage.QUEUED, Stage.LIMITED, Stage.EVACUATING} | _DECIDED,
    Stage.RUNNING: _DECIDED | {Stage.DEFERRED},
    Stage.DEFERRED: _DECIDED,
    Stage.PUBLISHING: _DECIDED | {Stage.UNDELIVERABLE},
    Stage.RECORDED: {Stage.RELEASED},
    Stage.UNDELIVERABLE: set(),
    Stage.RELEASED: set(),
}
"""Stages that may follow each stage. A received message begins as QUEUED."""


class BatchEntry:
    """Record of an entry, the unit that the broker stores, mostly a batch. `in_flight`: its messages in flight, parked
    ones too, by batch index; `done`: a bit for each acknowledged one (bit batch index + 1); `at`: monotonic seconds of
    the last acknowledgement, 0 before the first.

    After a broken connection the broker may deliver all messages of the entry again while one is unacknowledged,
    however long ago the others were finished.
    """

    __slots__ = ("at", "done", "in_flight", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.in_flight: dict[int, InFlight] = {}  # by their place in the batch
        self.done = 0  # a bit for each index, the first for a message alone
        self.at = 0.0  # when the last one was acknowledged


@dataclass(slots=True)
class WaitState:
    """History of one in-flight message in memory. Most messages never wait, and share one empty instance that is only
    read.

    `in_local_retry`: the message waits in place (Rule.IN_PLACE) after a failed run. `early`: it came over 5 s before it
    is due, and waits until then. `timer_id`: number of the timer that may wake it. The other fields count its waits so
    far: in place (`local_retries`), with nowhere to go (Rule.STUCK, `undeliverable_retries`), and for a dependency
    (`unavailable`).
    """

    in_local_retry: bool = False
    early: bool = False
    timer_id: int = 0
    local_retries: int = 0
    undeliverable_retries: int = 0
    unavailable: int = 0


_NONE: Final = WaitState()  # never written to


class InFlight:
    """Record of one unacknowledged message. Mutable; only the engine changes it. `ack_token`: token of its latest
    delivery; `size`: bytes of payload; `headers`: those that may be believed, empty until the checks on receipt;
    `limiters`: those that it has to pass, None: not looked up yet. A parked message has lost its data: see `park`.
    """

    __slots__ = (
        "ack_token",
        "delivery",
        "entry",
        "has_reservation",
        "headers",
        "lane",
        "limiters",
        "queue",
        "received",
        "size",
        "slot_time",
        "stage",
        "tenant",
        "waits",
        "why",
    )  # fmt: skip
    received: float  # when it came, by the worker's clock; set by the engine
    queue: TenantQueue[InFlight]  # that it waits or waited in last; set when it is queued

    def __init__(self, lane: LaneState, delivery: Delivery, entry: BatchEntry, tenant: str) -> None:
        self.lane = lane
        self.delivery = delivery
        self.entry = entry
        self.ack_token = delivery.token
        self.size = len(delivery.payload or b"")
        self.tenant = tenant
        self.headers: Headers = FRESH
        self.stage = Stage.QUEUED
        self.limiters: Limiters | None = None
        self.slot_time = 0.0  # seconds that its handler has run since it was received
        self.has_reservation = False  # its moment at the limits has been set aside
        self.waits = _NONE  # to be read; written to by `mutable_waits`
        self.why = "done"  # name of the rule by which it has ended, where confirmations are awaited

    def on_redelivery(self, delivery: Delivery, now: float) -> None:
        """Takes the token of a repeated delivery in place of the earlier token, because the broker expects the
        acknowledgement of the last delivery. On a lane whose active consumers the broker names (failover), also sets
        `received` to `now`, monotonic seconds.
        """
        self.ack_token = delivery.token
        if self.lane.active is not None:  # else the first time counts
            self.received = now

    def enter(self, stage: Stage) -> None:
        """Sets the stage; after the constructor nothing else does. A stage that TRANSITIONS does not allow is a defect
        (AssertionError), which ends the worker: the broker delivers the message again.
        """
        assert stage in TRANSITIONS[self.stage], f"a message goes from {self.stage.name} to {stage.name}"
        self.stage = stage

    def mutable_waits(self) -> WaitState:
        """Returns the message's wait state for writing; creates one of its own if it has none."""
        if self.waits is _NONE:
            self.waits = WaitState()
        return self.waits

    def give_back(self) -> None:
        """Ends the reservation that limits made for the message, because it does not start now, and frees one slot of
        each of its quotas (the oldest that is set aside, whichever message has it). The slots stay if there is no
        reservation, or if an earlier start took the tokens of quotas.
        """
        if self.has_reservation and not self.headers.quota_taken:
            for limiter in self.limiters or ():
                limiter.give_back()
        self.has_reservation = False

    def park(self) -> None:
        """Sets the stage to UNDELIVERABLE (from PUBLISHING only, see `enter`), and drops payload, properties, keys,
        tenant, headers, limiters and waits: the broker has the message. Its position, times and token stay.
        """
        self.enter(Stage.UNDELIVERABLE)
        self.delivery = self.delivery._replace(payload=None, properties={}, key="", ordering_key="", broken="")
        self.size, self.tenant, self.headers, self.limiters, self.waits = 0, NOBODY, FRESH, None, _NONE

    def envelope(self, *, may_wait: bool) -> Envelope:
        """Input of a decision about the message. `may_wait`: memory has room for one more in-place wait."""
        lane = self.lane.lane
        waits = self.waits
        return Envelope(  # by position, as every move makes one
            lane.level,
            lane.state,
            self.headers,
            waits.local_retries,
            waits.undeliverable_retries,
            waits.unavailable,
            may_wait,
            lane.ordered,
        )


class LaneState:
    """State of one lane. `in_flight`: number of its messages in flight, without parked ones. `key_queues`: messages of
    each key in order, of which only the first may be handled; None: the lane keeps no order. `active_entries`: entries
    with messages in flight, parked ones too; `recent_entries` and `older_entries` (the generation before): entries that
    had none left, and acknowledged ones. `ring`: queued messages by tenant; `acks`: tokens to acknowledge that nobody
    has fetched yet; `paused_until`: monotonic seconds; `started`: handler starts so far.
    """

    __slots__ = (
        "acks", "active", "active_entries", "blocked", "cannot_evacuate", "counted", "in_flight", "key_queues", "lane",
        "older_entries", "paused_by_override", "paused_until", "recent_entries", "ring", "started",
    )  # fmt: skip

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.ring: DeficitRoundRobin[InFlight] = DeficitRoundRobin()
        self.in_flight = 0
        self.active_entries: dict[Hashable, BatchEntry] = {}
        self.recent_entries: dict[Hashable, BatchEntry] = {}
        self.older_entries: dict[Hashable, BatchEntry] = {}
        self.key_queues: dict[str, deque[InFlight]] | None = {} if lane.ordered else None
        self.acks: list[object] = []
        self.active: ActivePartitions | None = None  # where the broker names one consumer of each partition
        self.paused_until = float("-inf")
        self.blocked = False  # too much of it has nowhere to go
        self.paused_by_override = False  # an order paused it
        self.cannot_evacuate = False  # its tenants cannot be moved aside, those of other lanes can
        self.started = 0
        self.counted: Counter[tuple[str, str]] = Counter()  # (what, rule or reason): of what was not just done

    def start_as_named(self, active: ActivePartitions) -> None:
        """Lets messages that come from now on start only in partitions whose active consumer is this worker, as the
        broker names it.
        """
        self.active = active

    def count(self, what: str, name: str) -> None:
        """Adds one to a counter of (`what`, `name`): `finished` and `waited` by rule, `failed` by reason, `over` by
        kind of limit, `routed` and `route_unknown` by route, `route_stopped` by cause. Handlers choose reasons, so once
        there are 60 pairs, each new one counts under its `what` and the name `other`.
        """
        key = what, name
        if key not in self.counted and len(self.counted) >= _MAX_COUNTED:
            key = what, OTHER
        self.counted[key] += 1

    def entry(self, key: Hashable, now: float) -> BatchEntry:
        """Returns the record of the entry to which a received message belongs. A record is used again while a message
        of the entry is in flight or parked, and for a minute after the last acknowledgement (for less after
        `forget_acknowledged`, or perhaps if more than 10,000 entries end meanwhile). Else the record is new, and the
        lane keeps it only when `LookaheadBudget.add` counts a message of it. So a copy that comes after that minute,
        such as after the subscription was rewound, counts as a new message. `now`: monotonic seconds.
        """
        entry = self.active_entries.get(key)
        if entry is None:
            entry = self.recent_entries.get(key) or self.older_entries.get(key)
            if entry is None or now - entry.at >= RECENT_SECONDS:
                entry = BatchEntry(key)
        return entry

    def close(self, entry: BatchEntry) -> None:
        """Moves an entry without messages in flight to the recent ones, if any message of it was acknowledged; else
        drops it.
        """
        del self.active_entries[entry.key]
        if entry.done:
            self.recent_entries[entry.key] = entry
            if len(self.recent_entries) > _MAX_RECENT:  # a generation at a time: to take the oldest out is slow
                self.older_entries = self.recent_entries
                self.recent_entries = {}

    def forget_acknowledged(self) -> None:
        """Forgets the acknowledged entries that have no message in flight, so that copies of their messages count as
        new.
        """
        self.recent_entries, self.older_entries = {}, {}

    def enqueue_by_key(self, in_flight: InFlight) -> bool:
        """Adds the message to the queue of its key. Returns True if nothing is before it: the lane keeps no order, or
        it is the first of its key. Else sets its stage to BLOCKED_BY_KEY and returns False.
        """
        if self.key_queues is None:
            return True
        key_queue = self.key_queues.setdefault(order_key(in_flight.delivery), deque())
        key_queue.append(in_flight)
        if len(key_queue) > 1:
            in_flight.enter(Stage.BLOCKED_BY_KEY)
        return len(key_queue) == 1

    def next_for_key(self, in_flight: InFlight) -> InFlight | None:
        """Removes a message that has ended from the queue of its key, and returns the next message of the key, whose
        stage stays BLOCKED_BY_KEY; None if there is none or the lane keeps no order. If the message is not the first of
        its key, returns None and removes nothing, so that a second call has no effect.
        """
        key_queue = self.key_queues.get(order_key(in_flight.delivery)) if self.key_queues is not None else None
        if self.key_queues is None or not key_queue or key_queue[0] is not in_flight:
            return None
        key_queue.popleft()
        if key_queue:
            return key_queue[0]
        del self.key_queues[order_key(in_flight.delivery)]
        return None

    def take_unstarted(self, partition: str | None = None, tokens: AbstractSet[object] | None = None) -> list[InFlight]:
        """Lists the messages that have not started (see `UNSTARTED`; some wait after a failed run), of one partition
        (number as a text) or (`partition` is None) of all, with these acknowledgement tokens or (None) with any, and
        removes them from all key queues. They stay in flight, in the ring and at limiters, from where the caller
        releases them.
        """
        found = [
            in_flight
            for in_flight in self
            if in_flight.stage in UNSTARTED
            and partition in (None, in_flight.delivery.partition)
            and (tokens is None or in_flight.ack_token in tokens)
        ]
        if self.key_queues is not None:
            gone = set(found)
            left = {
                key: deque(in_flight for in_flight in queue if in_flight not in gone)
                for key, queue in self.key_queues.items()
            }
            self.key_queues = {key: queue for key, queue in left.items() if queue}
        return found

    def __iter__(self) -> Iterator[InFlight]:
        """Iterates over the in-flight messages of the lane. No message may be added or removed meanwhile."""
        for entry in self.active_entries.values():
            yield from entry.in_flight.values()


def order_key(delivery: Delivery) -> str:
    """Key within which workers keep the order of messages: the ordering key, else the key. All messages of a partition
    that have neither count as one key.
    """
    return delivery.ordering_key or delivery.key or f"\0{delivery.partition}"

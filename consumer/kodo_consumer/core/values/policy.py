"""Policy of one subscription: the settings of its worker as data, with lanes, waits, limits and routes.

kodo_consumer.policy_builder makes it from a topology. Durations and delays are whole milliseconds; a rate is a whole
amount per period.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

from kodo_consumer.core.values.delay_schedule import JITTER, DelaySchedule
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.exclusive_levels import EVERYBODY, ExclusiveLevels
from kodo_consumer.core.values.limit_policy import NOBODY, WAITS_OF, Limit, value_of
from kodo_consumer.core.values.route_table import MAX_ROUTES, RouteRule, RouteTable

if TYPE_CHECKING:
    from kodo_consumer.core.values.lane_set import Bulkhead
    from kodo_consumer.core.values.send_target import SendTarget
    from kodo_consumer.core.values.tenant_moves import TenantMove
    from kodoctl.protocol.signing import Signer

HOP_RESERVE: Final = 16  # hops beyond the sum of all attempts before a message counts as running in circles
_SKEW: Final = 60_000  # ms that the clocks of worker and broker may differ
MAX_RATE_DUE: Final = 3_600_000  # ms: a rate's refusal is due within this
# Messages every lane may hold, however full the look-ahead is; together a quarter of it at most.
LANE_FLOOR: Final = 200
_QUEUE_SHARE: Final = 5  # a fifth of the look-ahead may sit in receiver queues: fairness works on what is held
_MAX_QUEUE: Final = 2_000

OnFailure = Literal["park", "block", "leave"]


@dataclass(frozen=True, slots=True)
class Target:
    """A topic messages may be moved to."""

    level: Level
    state: State
    topic: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One topic of the subscription that a worker reads (this worker, unless it is in `Policy.unread`). `index`: its
    place in `Policy.every_lane`. `weight`: whole number by which lanes share slot time; `share`: the lane's part of
    that time, 0 to 1, for people; both are 0 for an unread lane. `draining`: workers read the lane and move nothing
    there. `ordered`: order within a key is kept. `partitions`: as the topology file declares; a plain topic counts as
    one. `subscription`: its full name in stores, such as `kodo/trade/orders:billing`.
    """

    index: int
    level: Level
    state: State
    topic: str
    weight: int
    share: float
    draining: bool = False
    ordered: bool = False
    partitions: int = 1
    subscription: str = ""

    @property
    def name(self) -> str:
        """Name of the lane, such as `L1/retrying`."""
        return f"{self.level}/{self.state}"

    @property
    def is_waiting(self) -> bool:
        """True for a waiting state and for a backup level, whose messages `kodoctl waiting` may send elsewhere."""
        return self.state is not State.READY or self.level.is_backup


@dataclass(frozen=True, slots=True)
class AuditTo:
    """The topic of audit records. `wait`: a message is acknowledged only after the receipt of its record."""

    topic: str
    wait: bool


@dataclass(frozen=True)
class ErrorTextPolicy:
    """Error texts that travel with messages. `keep`, `stack`: bytes kept of text and stack at most; `redact`: regular
    expressions of parts to redact; `audit`: audit records have the text, too, but no stack.
    """

    keep: int
    stack: int
    redact: tuple[str, ...] = ()
    audit: bool = False

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """The patterns, compiled."""
        return tuple(re.compile(pattern) for pattern in self.redact)


@dataclass(frozen=True, slots=True)
class IsolationPolicy:
    """Condition and target of isolation: while the look-ahead is full, a tenant with more than `share` (0 to 1) of its
    messages or bytes, and with `least` messages (or `share` of the most there may be in memory, if that is less), is
    isolated: its unstarted messages beyond a part are moved out of ready lanes that keep no order, to `to`, the backup
    level or the waiting state.
    """

    share: float
    least: int
    to: Literal["B1", "pending"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Settings by which one subscription's worker decides. `waits[None]` are those of backup levels. `lanes`: those
    that this worker reads, by their index. `unread`: those that other workers read; their indices follow. `in_place`:
    waits (ms) in memory after failures, on ready lanes of no backup level. `horizon`: longest wait (ms) that the file
    declares, or that its limits or isolation need; waits that a handler or a header asks for, or a limit in another
    topic, are cut to it. `on_failure`, on lanes that keep an order: a message out of attempts becomes a dead letter
    ("park") or is tried for ever ("block"); "leave": messages leave the lane as on any other.

    `targets`: topics that messages may be moved to, by level and state; draining ones are missing. `concurrency`: most
    handlers at once. `handler_timeout`: ms. `tenant_weights`: 1 for tenants that are missing. `fair_by` None: all
    messages are of one tenant. None for `dead_letter`, `isolate`, `audit`, `error_text` or `payload_schema`: there is
    none.
    """

    ground: str
    subscription: str
    lanes: tuple[Lane, ...]
    targets: Mapping[tuple[Level, State], Target]
    dead_letter: Target | None
    waits: Mapping[State | None, DelaySchedule]
    delays_by_code: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # after failures whose reason has a code
    in_place: tuple[int, ...] = ()
    horizon: int = 0
    handler_timeout: int = 30_000
    concurrency: int = 32
    reserves_slots: bool = True  # for quick messages: where the time of a handler is known message by message
    adaptive: bool = False  # the concurrency is the most there may be: how many there are is found out
    bulkheads: tuple[Bulkhead, ...] = ()
    slot_ratio: tuple[int, int] = (1, 1)  # slots of this worker, to those that the file declares
    limits: tuple[Limit, ...] = ()
    routes: tuple[RouteRule, ...] = ()
    exclusive_levels: Mapping[Level, frozenset[str]] = field(default_factory=dict)
    moves: Mapping[str, TenantMove] = field(default_factory=dict)  # by tenant, as ordered by hand
    fair_by: str | None = None
    isolate: IsolationPolicy | None = None
    tenant_weights: Mapping[str, int] = field(default_factory=dict)
    lookahead_messages: int = 50_000
    lookahead_bytes: int = 128 << 20
    on_failure: OnFailure = "park"
    produces: Mapping[str, str] = field(default_factory=dict)  # as the file names it -> full topic
    send_targets: Mapping[str, SendTarget] = field(
        default_factory=dict
    )  # those of `produces` that are topics of the same file
    own_targets: Mapping[Level, SendTarget] = field(default_factory=dict)  # as producers of its ground topic see them
    by_key: frozenset[str] = frozenset()  # topics written whose batches must not mix keys
    expected_workers: int = 1
    payload_schema: Mapping[str, Any] | None = None
    payload_type: Literal["json", "avro"] = "json"
    produced_schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # Avro, by full topic
    subscription_type: Literal["shared", "key_shared", "failover", "exclusive"] = "shared"
    audit: AuditTo | None = None
    error_text: ErrorTextPolicy | None = None
    compat: Literal["soften"] | None = None  # whose headers are read where there are no headers
    largest: Mapping[str, int] = field(default_factory=dict)  # bytes a message may have, by full topic, where declared
    compression: Mapping[str, str] = field(default_factory=dict)  # algorithm by full topic, where declared
    signer: Signer | None = None  # signs and verifies headers; None: they are believed
    unread: tuple[Lane, ...] = ()

    @cached_property
    def every_lane(self) -> tuple[Lane, ...]:
        """All lanes of the subscription, in the order of their indices, whichever worker reads them."""
        return self.lanes + self.unread

    @cached_property
    def keeps_order(self) -> bool:
        """True if a lane of the subscription keeps the order of keys, whichever worker reads that lane: all workers
        decide alike where a message belongs.
        """
        return any(lane.ordered for lane in self.every_lane)

    @cached_property
    def max_hops(self) -> int:
        """Number of moves, without postponements, that a message may make: with one more it is running in circles, and
        becomes a dead letter.
        """
        return sum(waits.attempts for waits in self.waits.values()) + HOP_RESERVE + self._route_hops

    @cached_property
    def longest_in_order(self) -> int:
        """Longest wait (ms) that a handler may ask for where order is kept: `horizon`, or the longest delay of
        RETRYING, of a code or of the backup levels that are read, whichever is longer. `in_place` does not count. Such
        a message waits in memory and needs no topic of a state, so that `horizon` alone could be too short, or 0.
        """
        delays = [self.waits[State.RETRYING].delays, *self.delays_by_code.values()]
        if any(lane.level.is_backup for lane in self.every_lane):
            delays.append(self.waits[None].delays)
        return max(self.horizon, *(delay for some in delays for delay in some))

    @property
    def _route_hops(self) -> int:
        return MAX_ROUTES if self.routes or self.exclusive_levels or self.moves else 0

    def target(self, level: Level, state: State) -> Target | None:
        """Topic for messages of `level` that go to `state`; None: there is none, or it is draining. A level that drains
        or is not in the file has no ready topic to go to, and uses the waiting states of L1.
        """
        found = self.targets.get((level, state))
        if found is None and state is not State.READY and self.is_draining(level):
            return self.targets.get((Level.L1, state))
        return found

    @cached_property
    def ground_lane(self) -> Lane:
        """Ready lane of L1. The subscription on its topic carries data that concern all lanes, such as live orders."""
        return next(lane for lane in self.every_lane if (lane.level, lane.state) == (Level.L1, State.READY))

    @cached_property
    def is_plain(self) -> bool:
        """True if a readable message without headers can be queued without checks: there are no routes, exclusive
        levels, moves of tenants, limits or signatures, headers of soften are not read, and no lane keeps an order.
        """
        special = self.routes or self.limits or self.signer or self.compat or self.moves or self.exclusive.tenants
        return not (special or self.keeps_order)

    @cached_property
    def route_table(self) -> RouteTable:
        """Table of the routes, with the levels that take no messages and the exclusive ones. It has no routes if any
        lane of the subscription keeps an order, because a message on another level would overtake.
        """
        rules = () if self.keeps_order else self.routes
        return RouteTable(rules, frozenset(level for level in Level if self.is_draining(level)), self.exclusive)

    @cached_property
    def exclusive(self) -> ExclusiveLevels:
        """The exclusive levels; none if any lane of the subscription keeps an order, as with routes."""
        return EVERYBODY if self.keeps_order else ExclusiveLevels(self.exclusive_levels)

    def believable(self, due: int, lane: Lane, publish_time: int, received: int) -> int:
        """Due time (ms since the epoch) that counts for a message that claims `due`: never later than `latest`; on a
        ready lane of no backup level 0, which means at once. The publish time is from the sender as well, `received`
        from this worker.
        """
        if lane.state is State.READY and not lane.level.is_backup:
            return 0
        return min(due, self.latest(publish_time, received))

    def latest(self, publish_time: int, received: int) -> int:
        """Time (ms since the epoch) when the longest wait of a message (`horizon`) has ended, with jitter and clock
        differences (63 s together), counted from the earlier one of `publish_time` and `received`.
        """
        return min(publish_time, received) + self.horizon + JITTER + _SKEW

    @property
    def written_topics(self) -> list[str]:
        """Full names of the topics that the worker itself publishes to, each once: targets of moves, topics to which
        handlers may transfer messages, and those of dead letters and audit records.
        """
        dead = [self.dead_letter.topic] if self.dead_letter else []
        audit = [self.audit.topic] if self.audit else []
        topics = [*(target.topic for target in self.targets.values()), *self.produces.values(), *dead, *audit]
        return list(dict.fromkeys(topics))

    def delay_of(self, code: str, attempt: int) -> int | None:
        """Delay (ms) before a retry after a failure with this code; `attempt` 1: the first retry. The last delay of the
        code repeats. None: the code has no delays.
        """
        delays = self.delays_by_code.get(code)
        return delays[min(attempt, len(delays)) - 1] if delays else None

    def holds_back(self, lane: Lane) -> bool:
        """True if a broker with delayed delivery keeps messages of a lane until they are due: not on ready lanes of
        failover and exclusive subscriptions, where one reader gets all messages in order.
        """
        return lane.state is not State.READY or self.subscription_type in ("shared", "key_shared")

    def is_draining(self, level: Level) -> bool:
        """True if no messages may be sent to a level: the file drains it, or does not have it."""
        return (level, State.READY) not in self.targets

    def limit_targets(self, level: Level, state: State, kind: type[Limit]) -> Sequence[Target]:
        """Targets where messages of a lane that this worker reads wait if they exceed a limit of this kind, the first
        choice first; KeyError for any other lane. Empty: the messages stay, because there is no target, or because a
        limit of the kind applies in the lane and not in each target, so that they would come back past the limit.
        Messages of backup levels, and of lanes that keep an order, stay in any case.
        """
        return self._limit_targets[level, state, kind]

    @cached_property
    def _limit_targets(self) -> Mapping[tuple[Level, State, type[Limit]], Sequence[Target]]:
        found: dict[tuple[Level, State, type[Limit]], Sequence[Target]] = {}
        for lane, kind in product(self.lanes, WAITS_OF):
            targets = [target for at in WAITS_OF[kind] if (target := self.target(lane.level, at)) is not None]
            met = [
                one.within for one in self.limits if isinstance(one, kind) and one.within.has(lane.level, lane.state)
            ]
            holds = all(within.has(target.level, target.state) for within in met for target in targets)
            found[lane.level, lane.state, kind] = targets if holds else ()
        return found

    def isolation_target(self, level: Level) -> Target | None:
        """Topic to which the messages of an isolated tenant go from the ready lane of a level, unless that keeps an
        order; None: they stay.
        """
        return self._isolation_targets[level]

    @cached_property
    def _isolation_targets(self) -> Mapping[Level, Target | None]:
        return {level: self._isolation_target(level) for level in Level}

    def _isolation_target(self, level: Level) -> Target | None:
        if self.isolate is None or level.is_backup:
            return None
        if self.isolate.to == "pending":
            return self.target(level, State.PENDING)
        return self.targets.get((Level.B1, State.READY)) if level.rank < Level.B1.rank else None

    def tenant(self, properties: Mapping[str, str], key: str) -> str:
        """Tenant of a message: the value of the property that `fair_by` names (the message key, if it is "key"); NOBODY
        if that is missing or empty, or `fair_by` is None.
        """
        return value_of(self.fair_by, properties, key) if self.fair_by else NOBODY

    @property
    def queue(self) -> int:
        """Size of the receiver queues of one lane, in messages, of all its partitions together: 1 to 2,000. A client
        may have more, because each queue has room for 1 at least, and a batch comes as a whole.
        """
        share = self.lookahead_messages // _QUEUE_SHARE // max(1, len(self.lanes))
        return max(1, min(_MAX_QUEUE, share))

    @property
    def batch(self) -> int:
        """Largest number of messages that are taken from a lane at once: 1 to 500."""
        return max(1, min(500, self.queue // 2))

    @property
    def batch_bytes(self) -> int:
        """Bytes taken from a lane at once, at most; a single message may be larger."""
        return max(1, self.lookahead_bytes // (4 * max(1, len(self.lanes))))

    @property
    def max_held(self) -> int:
        """Messages that the worker may have in memory: the look-ahead without the receiver queues, and without a batch
        that each lane may deliver when there is room for one more message; at least 1.
        """
        return max(1, self.lookahead_messages - (self.queue + self.batch) * len(self.lanes))

    @property
    def max_held_bytes(self) -> int:
        """Bytes of payload that the worker may have in memory: the look-ahead without a batch of each lane."""
        return max(1, self.lookahead_bytes - self.batch_bytes * len(self.lanes))

    @property
    def lane_most(self) -> int:
        """Messages of one lane that may be unacknowledged: in memory, in a batch, and in its receiver queues."""
        return self.max_held + self.batch + self.queue

    @property
    def max_early(self) -> int:
        """Messages that may wait in memory because they came more than 5 s before they are due: 20 % of the look-ahead
        for all ready lanes together, and as many for all lanes of waiting states, where more may wait: see
        LocalDelays.
        """
        return max(1, self.lookahead_messages // 5)

    @property
    def max_early_bytes(self) -> int:
        """Bytes of payload that may wait in memory because they came early, for each of the two kinds of lanes in
        `max_early`: 20 % of the look-ahead. The last message may exceed them; in waiting states more may wait.
        """
        return max(1, self.lookahead_bytes // 5)

    @property
    def max_in_place(self) -> int:
        """Failed messages that may wait in place at a time: 20 % of the look-ahead. Those of lanes that keep an order
        count, and may wait beyond it.
        """
        return max(1, self.lookahead_messages // 5)

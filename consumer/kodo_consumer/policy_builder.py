# pure: every branch is tested
"""Builder of policies: makes the policy of a worker from a topology file. It is the only module of the consumer that
reads the file's model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from math import gcd, lcm
from typing import TYPE_CHECKING, Any, Final, Literal, assert_never

from kodo_consumer.core.payloads.avro_safety import empty_items
from kodo_consumer.core.values.delay_schedule import DelaySchedule
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.exclusive_levels import ExclusiveLevels
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet
from kodo_consumer.core.values.limit_policy import Concurrency, Limit, Pace, Quota, Rate
from kodo_consumer.core.values.policy import AuditTo, ErrorTextPolicy, IsolationPolicy, Lane, Policy, Target
from kodo_consumer.core.values.route_table import DispatchTable, RouteRule, RouteTable
from kodo_consumer.core.values.send_target import SendTarget, level_refusal
from kodoctl.errors import Diagnostic, InvalidFileError, KodoctlError, Severity, UsageError, error
from kodoctl.topology import defaults
from kodoctl.topology.expand import declared_compression, declared_limits, declared_ttls
from kodoctl.topology.lint.linter import check_loaded
from kodoctl.topology.load import choose_environment, load_set, read_files
from kodoctl.topology.model.subscription import ConcurrencyLimit, LimitLanes, QuotaLimit, RateLimit
from kodoctl.topology.names import (
    NamespaceName,
    RouteMoment,
    TopicName,
    audit_name,
    partition_numbers,
    produced_topic,
    state_name,
)
from kodoctl.topology.payload_definition import why_unusable
from kodoctl.topology.route_conditions import condition_of, in_words, share_of, truth
from kodoctl.topology.slot_ranges import ADAPTIVE_SLOTS, declared_slots, lanes_of, total_slots

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import LoadedTopology
    from kodoctl.topology.model.topology import GroundTopic, Subscription
    from kodoctl.topology.units import Rate as FileRate

WAITING: Final = (State.RETRYING, State.PENDING, State.BLOCKING)
_OF_SEVERAL: Final = frozenset({"K302"})  # lint rules that need all files at once


def load(path: str, environment: str | None) -> LoadedTopology:
    """Returns one topology file in one environment (`base`: the file without overlay; None: allowed only if the file
    has no environments).

    Runs no lint rules. Raises InvalidFileError with all findings for a file that is not valid or cannot be read; and
    UsageError if the environment must be named or does not exist, if the path does not exist or cannot be reached, or
    if it is a folder that cannot be read, or that has several topology files or none.
    """
    files = read_files([path])
    if len(files) != 1:
        raise UsageError(error("K701", "one topology file needed", f"{path} holds {len(files)}: name the one to run"))
    if broken := [finding for file in files for finding in file.findings]:
        raise InvalidFileError(*broken)
    loaded = load_set(files, choose_environment(files, environment))
    if loaded.findings or not loaded.topologies:
        raise InvalidFileError(*loaded.findings)
    return loaded.topologies[0]


def lint_warnings(topology: LoadedTopology) -> list[Diagnostic]:
    """Returns the warnings of lint rules about this topology, in its environment, that no comment allows. Raises
    InvalidFileError with all errors of these rules that no comment allows, if there are any.

    Team rules do not judge. Warnings about comments that allow nothing are left out, and those about entries of
    `produces` that no file declares (K302), because one file does not show what the others declare.
    """
    found = [finding for finding in check_loaded(topology) if finding.allowed_because is None]
    if errors := [finding for finding in found if finding.severity is Severity.ERROR]:
        raise InvalidFileError(*errors)
    return [finding for finding in found if finding.severity is Severity.WARNING and finding.code not in _OF_SEVERAL]


def ground_of(topology: LoadedTopology, topic: str) -> GroundTopic:
    """Returns the ground topic of this name. Raises UsageError, which lists the names of the file, if there is none."""
    ground = topology.spec.topics.get(topic)
    if ground is None:
        detail = f"{topology.source.name} has {_list_names(topology.spec.topics)}, not {topic!r}"
        raise UsageError(error("K702", "unknown ground topic", detail))
    return ground


def choose_topic(topology: LoadedTopology, topic: str | None) -> str:
    """Returns the given name, which need not be in the file, or (None) that of the file's only ground topic. Raises
    UsageError if None is given and the file has several or none.
    """
    if topic is not None:
        return topic
    if len(topology.spec.topics) != 1:
        detail = f"{topology.source.name} has the topics {_list_names(topology.spec.topics)}: name one"
        raise UsageError(error("K767", "topic or subscription not named", detail))
    return next(iter(topology.spec.topics))


def choose_subscription(topology: LoadedTopology, topic: str | None, subscription: str | None) -> tuple[str, str]:
    """Returns ground topic and subscription. A name that is not given (None) is found in the file: exactly one
    subscription must fit what is given. Raises UsageError if none fits or several do. If both are given, they are
    returned without a look at the file.
    """
    if topic is not None and subscription is not None:
        return topic, subscription
    grounds = topology.spec.topics if topic is None else {topic: ground_of(topology, topic)}
    pairs = [(ground, name) for ground, spec in grounds.items() for name in spec.subscriptions]
    fitting = [pair for pair in pairs if subscription in (None, pair[1])]
    if len(fitting) == 1:
        return fitting[0]
    where = topology.source.name if topic is None else f"{topic} of {topology.source.name}"
    listed = ", ".join(f"{ground} {name}" for ground, name in fitting or pairs)
    if not pairs:
        raise UsageError(error("K703", "unknown subscription", f"{where} has no subscription"))
    if fitting or subscription is None:
        missing = "the subscription" if topic is not None else "topic and subscription"
        detail = f"{where} has {listed}: name {missing}"
        raise UsageError(error("K767", "topic or subscription not named", detail))
    raise UsageError(error("K703", "unknown subscription", f"{where} has {listed}, not {subscription!r}"))


def policy_of(topology: LoadedTopology, topic: str, subscription: str) -> Policy:
    """Returns the policy of one subscription as its file declares it, with all its lanes and without a `signer`, which
    no file has. Raises UsageError for an unknown topic or subscription, and KodoctlError if a worker could not read the
    payloads (their schema cannot be used or is not safe to read, or the namespace requires encryption), or if the
    payload schema of a topic in `produces` cannot be used.
    """
    ground = ground_of(topology, topic)
    spec = ground.subscriptions.get(subscription)
    if spec is None:
        detail = f"{topic} has {_list_names(ground.subscriptions)}, not {subscription!r}"
        raise UsageError(error("K703", "unknown subscription", detail))
    if unreadable := list(_unreadable(topology, topic)):
        raise KodoctlError(*unreadable)
    family = _Family(topology, topic, ground, subscription, spec)
    largest, ttls = declared_limits(topology), declared_ttls(topology)
    send_targets = _send_targets(topology, family.namespace, spec)
    return Policy(
        ground=topic,
        subscription=subscription,
        lanes=family.lanes(),
        targets=family.targets(),
        dead_letter=family.dead_letter(),
        waits={state: _waits(spec, state) for state in (*WAITING, None)},
        delays_by_code={code: tuple(int(delay) for delay in delays) for code, delays in spec.retrying.by_code.items()},
        in_place=tuple(int(wait) for wait in spec.in_place),
        horizon=int(defaults.horizon(ground, spec)),
        handler_timeout=int(spec.handler_timeout),
        concurrency=total_slots(spec) or ADAPTIVE_SLOTS,
        adaptive=total_slots(spec) is None,
        bulkheads=tuple(_bulkheads(ground, spec)),
        limits=tuple(_limit(limit) for limit in spec.limits),
        routes=tuple(_routes(ground, spec)),
        exclusive_levels=_exclusive(ground),
        fair_by=ground.fair_by,
        isolate=_isolate(ground, spec),
        tenant_weights=spec.tenant_weights,
        lookahead_messages=spec.lookahead.messages,
        lookahead_bytes=int(spec.lookahead.size),
        on_failure=spec.on_failure or "park",
        produces={name: produced_topic(family.namespace, name).full for name in spec.produces},
        send_targets=send_targets,
        own_targets={
            level: _send_target(topology, topic, level, largest, ttls) for level in defaults.active_levels(ground)
        },
        by_key=family.by_key() | {send_target.topic for send_target in send_targets.values() if send_target.by_key},
        expected_workers=spec.expected_workers,
        payload_schema=_payload_schema(topology, topic),
        payload_type=_payload_type(topology, topic),
        produced_schemas=_produced_schemas(topology, family.namespace, spec),
        subscription_type=spec.type,
        audit=family.audit(),
        error_text=_error_text(spec),
        compat=spec.compat,
        largest=largest,
        compression=declared_compression(topology),
    )


def send_target_of(topology: LoadedTopology, topic: str, level: str) -> SendTarget:
    """Send target of producers for one level of a ground topic. Raises UsageError for an unknown topic or a level that
    takes no messages, and InvalidFileError for a payload schema that cannot be used.
    """
    ground = ground_of(topology, topic)
    written = defaults.active_levels(ground)
    if level not in written:
        raise level_refusal(topic, level, written, draining=level in ground.draining)
    if bad := list(_bad_schema(topology, topic)):
        raise InvalidFileError(*bad)
    return _send_target(topology, topic, Level(level), declared_limits(topology), declared_ttls(topology))


def _send_target(
    topology: LoadedTopology, topic: str, level: Level, largest: Mapping[str, int], ttls: Mapping[str, int]
) -> SendTarget:
    """Send target of a level that takes messages. `largest`: bytes a message may have; `ttls`: ms after which messages
    expire; both by full topic, for topics that have such a limit. The target has the limits of its own ground topic.
    """
    ground = ground_of(topology, topic)
    namespace = NamespaceName(topology.spec.tenant, topology.spec.namespace)
    ready = {
        one: TopicName(namespace, state_name(topic, one, "", State.READY)).full
        for one in defaults.active_levels(ground)
    }
    full = ready[level]
    return SendTarget(
        topic=full,
        schema=_payload_schema(topology, topic),
        properties=ground.message_properties,
        payload_type=_payload_type(topology, topic),
        by_key=any(spec.type == "key_shared" for spec in ground.subscriptions.values()),
        ordered=any(spec.type != "shared" for spec in ground.subscriptions.values()),
        largest={name: largest[name] for name in ready.values() if name in largest},
        compression="" if ground.compression == "none" else ground.compression,
        dispatch=_dispatch(ground),
        fair_by=ground.fair_by,
        ground=topic,
        level=level,
        undelayed=tuple(name for name, spec in ground.subscriptions.items() if spec.type in ("exclusive", "failover")),
        ttl=ttls.get(full, 0),
    )


class _Family:
    """Topics of one ground topic that one subscription uses."""

    def __init__(
        self, topology: LoadedTopology, name: str, ground: GroundTopic, subscription: str, spec: Subscription
    ) -> None:
        self.namespace = NamespaceName(topology.spec.tenant, topology.spec.namespace)
        self.name, self.ground, self.subscription, self.spec = name, ground, subscription, spec
        self.partitions = len(partition_numbers(defaults.partitions(topology.spec, ground)))
        self.written = defaults.active_levels(ground)

    def topic(self, level: Level, state: State) -> str:
        return TopicName(self.namespace, state_name(self.name, level, self.subscription, state)).full

    def _places(self) -> Iterator[tuple[Level, State, bool]]:
        """Yields (level, state, draining) of every lane, highest level first."""
        for level, state in lanes_of(self.ground, self.spec):
            yield level, state, level not in self.written or state in self.spec.draining

    def lanes(self) -> tuple[Lane, ...]:
        places = list(self._places())
        shares = _shares(self.spec, [(level, state) for level, state, _ in places])
        scale = lcm(*(share.denominator for share in shares))
        common = gcd(*(int(share * scale) for share in shares)) or 1
        total = sum(shares) or Fraction(1)
        return tuple(
            Lane(
                index=index,
                level=level,
                state=state,
                topic=self.topic(level, state),
                weight=int(share * scale) // common,
                share=float(share / total),
                draining=draining,
                ordered=state is State.READY and self.spec.type != "shared",
                partitions=self.partitions,
                subscription=f"{self.namespace}/{self.name}:{self.subscription}",
            )
            for index, ((level, state, draining), share) in enumerate(zip(places, shares, strict=True))
        )

    def targets(self) -> dict[tuple[Level, State], Target]:
        return {
            (level, state): Target(level, state, self.topic(level, state))
            for level, state, draining in self._places()
            if not draining
        }

    def by_key(self) -> frozenset[str]:
        """Ready topics, if any subscription of the ground topic is of type key_shared; else empty."""
        if all(spec.type != "key_shared" for spec in self.ground.subscriptions.values()):
            return frozenset()
        return frozenset(self.topic(level, state) for level, state, _ in self._places() if state is State.READY)

    def dead_letter(self) -> Target | None:
        if defaults.dead_letter(self.spec) is None:
            return None
        return Target(Level.L1, State.DEAD, self.topic(Level.L1, State.DEAD))

    def audit(self) -> AuditTo | None:
        spec = defaults.audit(self.spec)
        if spec is None:
            return None
        return AuditTo(TopicName(self.namespace, audit_name(self.name, self.subscription)).full, spec.mode == "wait")


def _shares(spec: Subscription, places: list[tuple[Level, State]]) -> list[Fraction]:
    """Share of each lane: its level's weight × its state's share within the level."""
    within = {
        level: sum(defaults.state_weight(spec, level, state) for other, state in places if other is level)
        for level, _ in places
    }
    return [
        Fraction(defaults.level_weight(spec, level) * defaults.state_weight(spec, level, state), within[level] or 1)
        for level, state in places
    ]


def _waits(spec: Subscription, state: State | None) -> DelaySchedule:
    resolved = defaults.waits(spec, state)
    return DelaySchedule(tuple(int(delay) for delay in resolved.delays), resolved.attempts)


def _error_text(spec: Subscription) -> ErrorTextPolicy | None:
    found = defaults.error_text(spec)
    if found is None:
        return None
    return ErrorTextPolicy(int(found.keep), int(found.stack), found.redact, found.audit)


def _isolate(ground: GroundTopic, spec: Subscription) -> IsolationPolicy | None:
    found = defaults.isolation(ground, spec)
    if found is None or found.to is None:
        return None
    return IsolationPolicy(float(found.share.rstrip("%")) / 100, found.min, found.to)


def _bulkheads(ground: GroundTopic, spec: Subscription) -> Iterator[Bulkhead]:
    for one in declared_slots(ground, spec):
        if one.lanes:
            states, levels = (one.state,) if one.state else (), (one.level,) if one.level else ()
            yield Bulkhead(LaneSet(states, levels), one.slots.max, one.slots.min or 0)


def _selection(chosen: LimitLanes | None) -> LaneSet:
    """Set of lanes of a limit, in the order of the enumerations, not of the file, so that equal selections compare as
    equal.
    """
    states, levels = (chosen.states or (), chosen.levels or ()) if chosen is not None else ((), ())
    return LaneSet(
        tuple(state for state in State if state in states), tuple(level for level in Level if level in levels)
    )


def _limit(limit: RateLimit | ConcurrencyLimit | QuotaLimit) -> Limit:
    shared, within = limit.scope == "subscription", _selection(limit.in_)
    match limit:
        case RateLimit():
            overrides = {value: _pace(rate, limit.burst) for value, rate in limit.overrides.items()}
            return Rate(limit.by, _pace(limit.limit, limit.burst), shared, overrides, within)
        case ConcurrencyLimit():
            return Concurrency(limit.by, limit.limit, shared, dict(limit.overrides), within)
        case QuotaLimit():
            counts = {value: (rate.amount, int(rate.period)) for value, rate in limit.overrides.items()}
            return Quota(limit.by, limit.limit.amount, int(limit.limit.period), shared, counts, within)
        case _:
            assert_never(limit)


def _pace(rate: FileRate, burst: int | None) -> Pace:
    """Pace of a rate. Without a burst the burst is the amount of one second, at least 1."""
    return Pace(rate.amount, int(rate.period), burst or max(1, int(rate.per_second)))


def _routes(ground: GroundTopic, spec: Subscription) -> Iterator[RouteRule]:
    read = defaults.read_levels(ground)
    for number, route in enumerate(spec.routes, 1):
        if route.to in read:
            words = in_words(route.when)
            yield RouteRule(
                holds=partial(truth, condition_of(route.when)),
                to=route.to,
                at=frozenset(route.at),
                share=share_of(route),
                salt=f"{words}\0{route.to}",  # the same for every subscription, so that senders may agree with all
                name=f"route {number}: {words}",
            )


def _dispatch(ground: GroundTopic) -> DispatchTable | None:
    """Dispatch table of senders. None if each message is sent to the level that its sender names: no subscription has a
    route at dispatch and the ground topic has no exclusive levels, or some subscription keeps an order.
    """
    subscriptions = ground.subscriptions.values()
    closed = frozenset(Level) - {*defaults.active_levels(ground)}
    exclusive = ExclusiveLevels(_exclusive(ground))
    tables = tuple(RouteTable(tuple(_routes(ground, spec)), closed, exclusive) for spec in subscriptions)
    ordered = any(spec.type != "shared" for spec in subscriptions)
    some = bool(exclusive.tenants) or any(RouteMoment.DISPATCH in table.moments for table in tables)
    return DispatchTable(tables) if some and not ordered else None


def _exclusive(ground: GroundTopic) -> dict[Level, frozenset[str]]:
    """Tenants by exclusive level, for levels that take messages: nobody can be sent to the others."""
    active = defaults.active_levels(ground)
    return {level: frozenset(tenants) for level, tenants in ground.exclusive_levels.items() if level in active}


def _payload_schema(topology: LoadedTopology, topic: str) -> Mapping[str, Any] | None:
    payload = topology.payloads.get(topic)
    return payload.definition if payload is not None and isinstance(payload.definition, dict) else None


def _payload_type(topology: LoadedTopology, topic: str) -> Literal["json", "avro"]:
    payload = topology.payloads.get(topic)
    return "avro" if payload is not None and payload.type == "avro" else "json"


def _send_targets(topology: LoadedTopology, namespace: NamespaceName, spec: Subscription) -> dict[str, SendTarget]:
    """Send targets of those topics of this file to which the handler transfers, by full topic name."""
    produced = {produced_topic(namespace, name) for name in spec.produces}
    return {
        name.full: send_target_of(topology, topic, level)
        for topic, ground in topology.spec.topics.items()
        for level in defaults.active_levels(ground)
        if (name := TopicName(namespace, state_name(topic, Level(level), "", State.READY))) in produced
    }


def _produced_schemas(
    topology: LoadedTopology, namespace: NamespaceName, spec: Subscription
) -> dict[str, Mapping[str, Any]]:
    """Schemas of the Avro topics of this file to which the handler transfers messages, by topic."""
    schemas = {
        produced_topic(namespace, name).full: _payload_schema(topology, name)
        for name in spec.produces
        if _payload_type(topology, name) == "avro"
    }
    return {topic: schema for topic, schema in schemas.items() if schema is not None}


def _bad_schema(topology: LoadedTopology, topic: str) -> Iterator[Diagnostic]:
    """Error (K705) if the payload schema of this topic cannot be used to validate payloads; else none."""
    payload = topology.payloads.get(topic)
    if payload is None:
        return
    problem = payload.problem or why_unusable(payload.type, payload.definition)
    if not problem and not isinstance(payload.definition, dict):
        problem = "it is not a map"
    if problem:
        where = topology.where("topics", topic, "payload")
        yield error("K705", "payload schema cannot be used", f"{payload.path}: {problem}", where)


def _unreadable(topology: LoadedTopology, topic: str) -> Iterator[Diagnostic]:
    """Findings about payloads that a worker of this topic could not read."""
    payload = topology.payloads.get(topic)
    if problem := list(_bad_schema(topology, topic)):
        yield from problem
    elif payload is not None and payload.type == "avro" and empty_items(payload.definition):
        detail = f"{payload.path}: an array whose items take no bytes: ten bytes could claim any number of them"
        yield error("K756", "payload schema is not safe to read", detail, topology.where("topics", topic, "payload"))
    policies = topology.spec.namespace_policies
    if policies is not None and policies.encryption_required is True:
        detail = "the consumer has no keys: it can neither read such payloads nor publish where all must be encrypted"
        where = topology.where("namespace_policies", "encryption_required")
        yield error("K757", "namespace requires encrypted payloads", detail, where)


def _list_names(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"

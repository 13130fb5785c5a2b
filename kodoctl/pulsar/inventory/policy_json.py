"""JSON codecs of Pulsar's policies: for each shape of JSON one function that writes it and one that reads it.

Every body is complete, because Pulsar sets missing members to 0. A reader returns None for unset, and Foreign for a
value that the file format cannot express. As measured with 4.2.4 and 4.0.7: docs/explanation/pulsar.md#policies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from kodoctl.topology.model.policies import (
    OFFLOAD_DEFAULTS,
    OFFLOAD_MEMBERS,
    OFFLOAD_SECRETS,
    OFFLOAD_SETTINGS,
    AutoTopicCreation,
    BacklogQuota,
    BookieAffinity,
    DelayedDeliveryPolicy,
    DispatchRate,
    Foreign,
    InactiveTopic,
    Offload,
    Persistence,
    PolicyValue,
    PublishRate,
    Retention,
    SubscribeRate,
)
from kodoctl.topology.units import UNLIMITED, Duration, Rate, Size, SizeRate, Unlimited

Json = Any


@dataclass(frozen=True, slots=True)
class Shape:
    """JSON codec of one kind of policy. `encode` makes JSON of a value; `read` makes a value of JSON, None of an unset
    policy, Foreign of a value that no file can express or its model refuses.
    """

    encode: Callable[[Any], Json]
    read: Callable[[Json], PolicyValue | None]

    def decode(self, raw: Json) -> PolicyValue | None:
        """Value of a policy that Pulsar answered; None: it is unset; Foreign: no file can express the value.
        `decode(encode(value))` means the same as `value` (`normalize` makes them equal), except for `BUNDLES`, which is
        never read.
        """
        try:
            return self.read(raw)
        except ValidationError:  # Pulsar takes values that the file's bounds exclude
            return _foreign(raw)


def is_set(raw: Any) -> bool:
    """False for an answer by which Pulsar means unset: 204, an empty body, null, {} or []
    (docs/explanation/pulsar.md#policies).
    """
    return raw is not None and raw not in ("", {}, [], "null")


def _milli(value: Duration | Unlimited, unit: int, unlimited: int) -> int:
    return unlimited if value == UNLIMITED else int(value) // unit


def _count(value: int | Unlimited) -> int:
    return 0 if value == UNLIMITED else int(value)


def _unlimited_or(read: Callable[[Any], PolicyValue]) -> Callable[[Json], PolicyValue | None]:
    """Returns a reader of a number: None means unset, 0 and less mean unlimited."""
    return lambda raw: None if raw is None else UNLIMITED if raw <= 0 else read(raw)


def _unless_empty(read: Callable[[Json], PolicyValue]) -> Callable[[Json], PolicyValue | None]:
    """Returns a reader of an object: an empty one, or None, means unset."""
    return lambda raw: read(raw) if raw else None


def _if_printable(read: Callable[[Json], PolicyValue | None]) -> Callable[[Json], PolicyValue | None]:
    """Returns a reader of texts. A text with a control character, which no file may hold, makes the value a Foreign."""
    return lambda raw: read(raw) if all(map(str.isprintable, _texts_in(raw))) else _foreign(raw)


def _texts_in(raw: Json) -> Iterator[str]:
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, dict | list):
        for one in (*raw, *raw.values()) if isinstance(raw, dict) else raw:
            yield from _texts_in(one)


def _same(raw: Json) -> PolicyValue | None:
    return raw


def _write_retention(value: Retention) -> Json:
    assert value.time is not None
    assert value.size is not None
    return {
        "retentionTimeInMinutes": _milli(value.time, 60_000, -1),
        "retentionSizeInMB": -1 if value.size == UNLIMITED else int(value.size) >> 20,
    }


def _read_retention(raw: Json) -> PolicyValue:
    time, size = raw["retentionTimeInMinutes"], raw["retentionSizeInMB"]
    return Retention(
        time=UNLIMITED if time < 0 else Duration(time * 60_000),
        size=UNLIMITED if size < 0 else Size(size << 20),
    )


QUOTA_BY_SIZE: Final = "destination_storage"
QUOTA_BY_TIME: Final = "message_age"
_WHEN_FULL: Final = {
    "hold_producers": "producer_request_hold",
    "fail_producers": "producer_exception",
    "evict": "consumer_backlog_eviction",
}
_WHEN_FULL_BACK: Final = {wire: word for word, wire in _WHEN_FULL.items()}


def _write_quota(value: BacklogQuota) -> Json:
    """{type: body} for the types that are set; both limits in each, because one left out becomes 0."""
    found = {}
    if value.size is not None:
        limit = -1 if value.size == UNLIMITED else int(value.size)
        found[QUOTA_BY_SIZE] = {"limitSize": limit, "limitTime": -1, "policy": _WHEN_FULL[value.when_full]}
    if value.time is not None:
        limit = _milli(value.time, 1000, -1)
        action = _WHEN_FULL[value.when_old or value.when_full]
        found[QUOTA_BY_TIME] = {"limitSize": -1, "limitTime": limit, "policy": action}
    return found


def _read_quota(raw: Json) -> PolicyValue:
    size, time = raw.get(QUOTA_BY_SIZE), raw.get(QUOTA_BY_TIME)
    actions = [_WHEN_FULL_BACK.get(entry["policy"]) for entry in (size, time) if entry]
    if not actions or None in actions:
        return _foreign(raw)
    members: dict[str, Any] = {}
    if size:
        limit = size.get("limitSize", size.get("limit"))
        members["size"] = UNLIMITED if limit < 0 else Size(limit)
    if time:
        members["time"] = UNLIMITED if time["limitTime"] < 0 else Duration(time["limitTime"] * 1000)
    if len(set(actions)) > 1:
        members["when_old"] = actions[1]
    return BacklogQuota(when_full=actions[0], **members)  # type: ignore[arg-type]  # the table's values


def _write_dispatch(value: DispatchRate) -> Json:
    return {
        "dispatchThrottlingRateInMsg": -1 if value.messages == UNLIMITED else value.messages,
        "dispatchThrottlingRateInByte": -1 if value.size == UNLIMITED else int(value.size),
        "ratePeriodInSecond": int(value.period) // 1000,
        "relativeToPublishRate": value.relative,
    }


def _read_dispatch(raw: Json) -> PolicyValue:
    messages, size = raw["dispatchThrottlingRateInMsg"], raw["dispatchThrottlingRateInByte"]
    if raw["ratePeriodInSecond"] <= 0:
        return _foreign(raw)
    return DispatchRate(
        messages=UNLIMITED if messages <= 0 else messages,
        size=UNLIMITED if size <= 0 else Size(size),
        period=Duration(raw["ratePeriodInSecond"] * 1000),
        relative=bool(raw.get("relativeToPublishRate")),
    )


def _write_publish(value: PublishRate) -> Json:
    return {
        "publishThrottlingRateInMsg": value.messages.amount if isinstance(value.messages, Rate) else -1,
        "publishThrottlingRateInByte": int(value.size.amount) if isinstance(value.size, SizeRate) else -1,
    }


def _read_publish(raw: Json) -> PolicyValue:
    messages, size = raw["publishThrottlingRateInMsg"], raw["publishThrottlingRateInByte"]
    return PublishRate(
        messages=UNLIMITED if messages <= 0 else Rate(messages, Duration(1000)),
        size=UNLIMITED if size <= 0 else SizeRate(Size(size)),
    )


def _write_subscribe(value: SubscribeRate) -> Json:
    amount = -1 if value.subscribes == UNLIMITED else value.subscribes
    return {"subscribeThrottlingRatePerConsumer": amount, "ratePeriodInSecond": int(value.period) // 1000}


def _read_subscribe(raw: Json) -> PolicyValue:
    amount, period = raw["subscribeThrottlingRatePerConsumer"], raw["ratePeriodInSecond"]
    if period <= 0:
        return _foreign(raw)
    return SubscribeRate(subscribes=UNLIMITED if amount <= 0 else amount, period=Duration(period * 1000))


def _write_persistence(value: Persistence) -> Json:
    return {
        "bookkeeperEnsemble": value.ensemble,
        "bookkeeperWriteQuorum": value.write_quorum,
        "bookkeeperAckQuorum": value.ack_quorum,
        "managedLedgerMaxMarkDeleteRate": value.mark_delete_rate,
    }


def _read_persistence(raw: Json) -> PolicyValue:
    if min(raw["bookkeeperEnsemble"], raw["bookkeeperWriteQuorum"], raw["bookkeeperAckQuorum"]) < 1:
        return _foreign(raw)
    return Persistence(
        ensemble=raw["bookkeeperEnsemble"],
        write_quorum=raw["bookkeeperWriteQuorum"],
        ack_quorum=raw["bookkeeperAckQuorum"],
        mark_delete_rate=raw["managedLedgerMaxMarkDeleteRate"],
    )


_INACTIVE: Final = {
    "no_subscriptions": "delete_when_no_subscriptions",
    "caught_up": "delete_when_subscriptions_caught_up",
}
_INACTIVE_BACK: Final = {wire: word for word, wire in _INACTIVE.items()}


def _write_inactive(value: InactiveTopic) -> Json:
    return {
        "inactiveTopicDeleteMode": _INACTIVE.get(value.delete or "never", "delete_when_no_subscriptions"),
        "maxInactiveDurationSeconds": int(value.after or 60_000) // 1000,
        "deleteWhileInactive": value.delete != "never",
    }


def _read_inactive(raw: Json) -> PolicyValue:
    if not raw["deleteWhileInactive"]:
        return InactiveTopic(delete="never")
    mode = _INACTIVE_BACK.get(raw["inactiveTopicDeleteMode"])
    if mode is None:
        return _foreign(raw)
    return InactiveTopic(delete=mode, after=Duration(raw["maxInactiveDurationSeconds"] * 1000))  # type: ignore[arg-type]


def _write_auto_topic(value: bool | AutoTopicCreation) -> Json:  # noqa: FBT001  # a policy value
    if isinstance(value, bool):
        return (
            {"allowAutoTopicCreation": value, "topicType": "non-partitioned"}
            if value
            else {"allowAutoTopicCreation": False}
        )
    body: dict[str, Json] = {"allowAutoTopicCreation": True, "topicType": value.type}
    return {**body, "defaultNumPartitions": value.partitions or 1} if value.type == "partitioned" else body


def _read_auto_topic(raw: Json) -> PolicyValue:
    if not raw["allowAutoTopicCreation"]:
        return False
    if raw.get("topicType") != "partitioned":
        return True
    return AutoTopicCreation(type="partitioned", partitions=raw.get("defaultNumPartitions") or 1)


def _write_auto_subscription(value: bool) -> Json:  # noqa: FBT001  # a policy value
    return {"allowAutoSubscriptionCreation": value}


def _read_auto_subscription(raw: Json) -> PolicyValue | None:
    return bool(raw["allowAutoSubscriptionCreation"]) if raw else None


def _read_compatibility(raw: Json) -> PolicyValue | None:
    return None if raw in (None, "", "UNDEFINED") else raw if raw in _COMPATIBILITIES else _foreign(raw)


_COMPATIBILITIES: Final = frozenset({
    "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL",
    "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
})  # fmt: skip


def _foreign(raw: Json) -> Foreign:
    return Foreign(json.dumps(raw, sort_keys=True))


def _seconds(value: Duration | Unlimited) -> int:
    return _milli(value, 1000, 0)


def _minutes(value: Duration | Unlimited) -> int:
    return _milli(value, 60_000, 0)


def _read_texts(raw: Json) -> PolicyValue | None:
    return tuple(sorted(raw)) if raw else None


def _or_none(raw: Json) -> PolicyValue | None:
    """Reads a value of which every empty one, such as false, means unset."""
    return raw or None


_TYPES: Final = {"exclusive": "Exclusive", "failover": "Failover", "key_shared": "Key_Shared", "shared": "Shared"}
_TYPES_BACK: Final = {wire: word for word, wire in _TYPES.items()}


def _write_types(value: tuple[str, ...]) -> Json:
    return [_TYPES[one] for one in value]


def _read_types(raw: Json) -> PolicyValue:
    return tuple(sorted(_TYPES_BACK[one] for one in raw)) if _TYPES_BACK.keys() >= set(raw) else _foreign(raw)


def _write_filters(value: tuple[str, ...]) -> Json:
    return {"entryFilterNames": ",".join(value)}


def _read_filters(raw: Json) -> PolicyValue | None:
    return tuple(one.strip() for one in raw["entryFilterNames"].split(",") if one.strip()) or None


def _write_delays(value: DelayedDeliveryPolicy) -> Json:
    return {
        "active": value.enabled,
        "tickTime": int(value.tick),
        "maxDeliveryDelayInMillis": _milli(value.max_delay, 1, 0),
    }


def _read_delays(raw: Json) -> PolicyValue:
    longest = raw["maxDeliveryDelayInMillis"]
    return DelayedDeliveryPolicy(
        enabled=raw["active"],
        max_delay=UNLIMITED if longest <= 0 else Duration(longest),
        tick=Duration(raw["tickTime"]),
    )


def _write_bookies(value: BookieAffinity) -> Json:
    return {"bookkeeperAffinityGroupPrimary": value.primary, "bookkeeperAffinityGroupSecondary": value.secondary or ""}


def _read_bookies(raw: Json) -> PolicyValue:
    primary, secondary = raw.get("bookkeeperAffinityGroupPrimary"), raw.get("bookkeeperAffinityGroupSecondary")
    return BookieAffinity(primary=primary, secondary=secondary or None) if primary else _foreign(raw)


_OFFLOAD_FACTS: Final = frozenset({"s3Driver", "gcsDriver", "fileSystemDriver"})  # that follow from the driver
# Pulsar stores null for any other word, and reports no error.
_READ_FIRST: Final = {"bookkeeper": "BOOKKEEPER_FIRST", "tiered_storage": "TIERED_STORAGE_FIRST"}
_READ_FIRST_BACK: Final = {wire: word for word, wire in _READ_FIRST.items()}
_OFFLOAD_NUMBERS: Final = (("after_size", Size, 1), ("after", Duration, 1000), ("delete_after", Duration, 1))


def _write_offload(value: Offload) -> Json:
    members = {name: getattr(value, name) for name in OFFLOAD_MEMBERS if getattr(value, name) is not None}
    for name, _, unit in _OFFLOAD_NUMBERS:
        if name in members:
            members[name] = _milli(members[name], unit, -1)
    if value.read_first:
        members["read_first"] = _READ_FIRST[value.read_first]
    return {**{OFFLOAD_MEMBERS[name]: member for name, member in members.items()}, **(value.settings or {})}


def _read_offload(raw: Json) -> PolicyValue | None:
    """Reads an offload policy without the members that Pulsar adds. Credentials are not kept, not even in a Foreign."""
    kept = {
        name: "(hidden)" if name in OFFLOAD_SECRETS else value
        for name, value in raw.items()
        if value is not None and name not in _OFFLOAD_FACTS and value != OFFLOAD_DEFAULTS.get(name)
    }
    members: dict[str, Any] = {name: kept.pop(wire) for name, wire in OFFLOAD_MEMBERS.items() if wire in kept}
    if not members and not kept:
        return None
    read_first = _READ_FIRST_BACK.get(members.get("read_first", "BOOKKEEPER_FIRST"))
    is_plain = all(isinstance(value, str | int) and not isinstance(value, bool) for value in kept.values())
    is_plain = is_plain and kept.keys() <= set(OFFLOAD_SETTINGS)
    if not members.get("driver") or read_first is None or not is_plain:
        return _foreign({**members, **kept})
    for name, kind, unit in _OFFLOAD_NUMBERS:
        if name in members:
            members[name] = UNLIMITED if members[name] < 0 else kind(members[name] * unit)
    if "read_first" in members:
        members["read_first"] = read_first
    return Offload(**members, settings=kept or None)


def _read_properties(raw: Json) -> PolicyValue | None:
    kept = {name: value for name, value in raw.items() if not name.startswith("kodoctl")}
    return _if_printable(_or_none)(kept)


def _write_roles(value: dict[str, tuple[str, ...]]) -> Json:
    return {name: list(roles) for name, roles in value.items()}


def _read_roles(raw: Json) -> PolicyValue | None:
    return {name: tuple(sorted(roles)) for name, roles in raw.items() if roles} or None


def _write_rates(value: dict[str, DispatchRate]) -> Json:
    return {name: {"dispatchRate": _write_dispatch(rate)} for name, rate in value.items()}


def _read_rates(raw: Json) -> PolicyValue | None:
    found = {name: _read_dispatch(one["dispatchRate"]) for name, one in raw.items() if one.get("dispatchRate")}
    return _foreign(raw) if any(isinstance(rate, Foreign) for rate in found.values()) else found or None


def _write_bundles(value: int) -> Json:
    return {"numBundles": value}


def _read_no_bundles(_: Json) -> PolicyValue | None:
    """Reads nothing: the number is a state, which brokers change."""
    return None


def _write_auth(value: str) -> Json:
    return value.capitalize()


def _read_auth(raw: Json) -> PolicyValue:
    return raw.lower() if raw in ("None", "Prefix") else _foreign(raw)


def _read_message_size(raw: Json) -> PolicyValue | None:
    return Size(raw) if raw and raw > 0 else None


RETENTION: Final = Shape(_write_retention, _unless_empty(_read_retention))
QUOTA: Final = Shape(_write_quota, _unless_empty(_read_quota))  # {type: body}, one request a type
DISPATCH_RATE: Final = Shape(_write_dispatch, _unless_empty(_read_dispatch))
PUBLISH_RATE: Final = Shape(_write_publish, _unless_empty(_read_publish))
SUBSCRIBE_RATE: Final = Shape(_write_subscribe, _unless_empty(_read_subscribe))
PERSISTENCE: Final = Shape(_write_persistence, _unless_empty(_read_persistence))
INACTIVE_TOPIC: Final = Shape(_write_inactive, _unless_empty(_read_inactive))
AUTO_TOPIC: Final = Shape(_write_auto_topic, _unless_empty(_read_auto_topic))
AUTO_SUBSCRIPTION: Final = Shape(_write_auto_subscription, _read_auto_subscription)
COMPATIBILITY: Final = Shape(_same, _read_compatibility)
FLAG: Final = Shape(_same, _same)
COUNT: Final = Shape(_count, _unlimited_or(int))
SIZE: Final = Shape(_count, _unlimited_or(Size))
MESSAGE_SIZE: Final = Shape(int, _read_message_size)
SECONDS: Final = Shape(_seconds, _unlimited_or(lambda raw: Duration(raw * 1000)))
MINUTES: Final = Shape(_minutes, _unlimited_or(lambda raw: Duration(raw * 60_000)))
TEXTS: Final = Shape(list, _if_printable(_read_texts))
TEXT: Final = Shape(_same, _if_printable(_or_none))
SWITCH: Final = Shape(_same, _or_none)  # true or unset
OFFLOAD: Final = Shape(_write_offload, _unless_empty(_if_printable(_read_offload)))
PROPERTIES: Final = Shape(dict, _unless_empty(_read_properties))
ROLES: Final = Shape(_write_roles, _unless_empty(_if_printable(_read_roles)))
RATES: Final = Shape(_write_rates, _unless_empty(_if_printable(_read_rates)))
BUNDLES: Final = Shape(_write_bundles, _read_no_bundles)
TYPES: Final = Shape(_write_types, _unless_empty(_read_types))
FILTERS: Final = Shape(_write_filters, _unless_empty(_if_printable(_read_filters)))
DELAYS: Final = Shape(_write_delays, _unless_empty(_read_delays))
BOOKIES: Final = Shape(_write_bookies, _unless_empty(_if_printable(_read_bookies)))
AUTH: Final = Shape(_write_auth, _read_auth)

"""Conversion of stored messages to events, from Arrow to Arrow, column by column. Uses no Spark.

The topology says to which ground topic, level, state and subscription a topic belongs; names are not parsed. All
messages of a split are of one topic, so these columns are constants. A header that no message of a batch has costs
nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_pipeline.landing.tables import AUDIT, EVENTS
from kodoctl.protocol import properties as headers
from kodoctl.protocol.error_causes import cause_of
from kodoctl.pulsar.binary.undeliverable_entries import UNREAD
from kodoctl.topology.model.topology import KEY
from kodoctl.topology.names import State
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    import pyarrow as pa

    from kodoctl.topology.expand import Expansion

NOBODY: Final = "(none)"  # tenant of a message without the fair_by property, as the consumer counts it
UNKNOWN: Final = "(unknown)"  # tenant of a message whose properties, or key, cannot be read
_ATTEMPTS: Final = {
    State.RETRYING.value: headers.ATTEMPTS_RETRYING,
    State.PENDING.value: headers.ATTEMPTS_PENDING,
    State.BLOCKING.value: headers.ATTEMPTS_BLOCKING,
    "backup": headers.ATTEMPTS_BACKUP,
}
_PLAIN: Final = r"^(?P<run>[0-9a-f]{15,43}):(?P<partition>[0-9]{1,15}):(?P<number>[0-9]{1,15})$"
_MARK: Final = re.compile(r"([0-9a-f]{15,43}):([0-9]{1,15}):high=([0-9]{1,15})(?::void=([0-9,-]+))?(:end)?")
_LOST_PROPERTIES: Final = rf"lost: ([^;]*, )?properties\b|^{re.escape(UNREAD)}"
_LOST_KEY: Final = rf"lost: ([^;]*, )?key\b|^{re.escape(UNREAD)}"
_BOTH: Final = "\0"  # between a reason and an error text: the first one parts them
_DIGITS: Final = 18  # that always fit into 64 bits
_PLAIN_NUMBER: Final = "^[0-9]{1,15}$"
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
_INT: Final = 2**31 - 1


class TopicRole(NamedTuple):
    """Role of a topic in its topology: the values of the columns `topic`, `level`, `state` and `subscription` of
    kodo_pipeline.landing.tables.EVENTS, which all of its messages share, and `fair_by`, the property that names the
    tenant (`key`: the message key), None without one.
    """

    topic: str
    level: str | None
    state: str
    subscription: str | None
    fair_by: str | None


def roles(expansion: Expansion) -> dict[str, TopicRole]:
    """Returns the role of each topic of a topology, whether or not it exists on the cluster, by the topic's full name.
    Topics of audit records have the state `audit`.
    """
    grounds = expansion.topology.spec.topics
    return {
        one.name.full: TopicRole(
            one.ground,
            one.level.value if one.level else None,
            one.state.value if one.state else AUDIT,
            one.subscription,
            grounds[one.ground].fair_by,
        )
        for one in expansion.topics
    }


def events(batch: pa.RecordBatch, role: TopicRole, run: str) -> pa.RecordBatch:
    """Converts messages of one topic to events: rows of kodo_pipeline.landing.tables.MESSAGES, with payloads, to rows
    of kodo_pipeline.landing.tables.EVENTS to which no payload policy was applied yet. `role`: of the topic; `run`: id
    of the ingest.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    properties, schema = _BatchProperties(batch.column("properties")), EVENTS.arrow()
    places = [batch.column(name).cast(pa.string()) for name in ("ledger", "entry", "partition", "batch_index")]
    own = pc.binary_join_element_wise(*places, ":")
    published = batch.column("publish_ts")
    origin = properties.numbers(headers.ORIGIN_TIME, LATEST).cast(pa.timestamp("ms", tz="UTC")).cast(published.type)
    made = {
        "mid": pc.coalesce(properties.naming(headers.ORIGIN_ID), own),
        "id": own,
        "kodo_id": properties.texts(headers.ID),
        "msg_topic": batch.column("topic"),
        "msg_partition": batch.column("partition"),
        "tenant": _tenants(batch.column("key"), properties, batch.column("broken"), role),
        "hop": pc.coalesce(properties.numbers(headers.HOP, _INT), 0).cast(pa.int32()),
        "attempts": _attempts(properties),
        "reason": properties.texts(headers.REASON),
        "cause": _causes(properties),
        "died_in": properties.texts(headers.FROM_LEVEL),
        "parent": properties.texts(headers.PARENT),
        "recall": pc.coalesce(
            properties.texts(headers.RELEASE), properties.texts(headers.RECALL)
        ),  # the later of the two
        "for_subscription": properties.texts(headers.FOR),
        "origin_publish_ts": pc.coalesce(origin, published),
        **_sequence_columns(properties.texts(headers.SEQ)),
        **{name: pa.nulls(batch.num_rows, pa.string()) for name in ("payload_state", "payload_digest")},
    }
    same = {**role._asdict(), "ingest_run": run}

    def column(field: pa.Field) -> pa.Array:
        if field.name in same:
            return pa.repeat(pa.scalar(same[field.name], field.type), batch.num_rows)
        return made[field.name] if field.name in made else batch.column(field.name)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


class _BatchProperties:
    """Properties of the messages of a batch, as one Arrow array for each name."""

    def __init__(self, properties: pa.MapArray) -> None:
        import pyarrow.compute as pc

        self._properties = properties
        self._names = set(pc.unique(properties.keys).to_pylist())

    def __len__(self) -> int:
        return len(self._properties)

    def naming(self, name: str) -> pa.Array:
        """Property `name` of each message as the name of a message; null if there is none, or if it is empty or longer
        than `headers.MAX_ID`.
        """
        import pyarrow.compute as pc

        found = self.texts(name)
        length = pc.utf8_length(found)
        names = pc.and_(pc.greater(length, 0), pc.less_equal(length, headers.MAX_ID))
        return pc.if_else(names, found, None)

    def texts(self, name: str) -> pa.Array:
        """Property `name` of each message; null if the message does not have it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if name not in self._names:
            return pa.nulls(len(self), pa.string())
        return pc.map_lookup(self._properties, name, "first")

    def numbers(self, name: str, most: int) -> pa.Array:
        """Property `name` of each message as int64; null also if it is no whole number, or beyond `most` on either side
        of 0.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        def strange(text: str) -> int | None:
            return int(text) if _WHOLE.fullmatch(text := text.strip()) and abs(int(text)) <= most else None

        texts = self.texts(name)
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), pa.int64())
        plain = pc.match_substring_regex(texts, _PLAIN_NUMBER)
        found = pc.if_else(plain, texts, None).cast(pa.int64())
        found = pc.if_else(pc.less_equal(found, most), found, None)
        return pc.coalesce(found, _each(pc.if_else(plain, None, texts), strange, pa.int64()))


def _each(texts: pa.Array, does: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """Applies `does` to each distinct text once and returns the results as an array of type `kind`. Null stays null."""
    import pyarrow as pa

    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind)
    coded = texts.dictionary_encode()
    return pa.array([does(one) for one in coded.dictionary.to_pylist()], kind).take(coded.indices)


def _causes(properties: _BatchProperties) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    reasons, errors = properties.texts(headers.REASON), properties.texts(headers.ERROR)
    if reasons.null_count == errors.null_count == len(properties):
        return pa.nulls(len(properties), pa.string())
    both = pc.binary_join_element_wise(reasons, errors, _BOTH, null_handling="replace", null_replacement="")
    return _each(both, lambda text: cause_of(*text.split(_BOTH, 1)), pa.string())


def _tenants(keys: pa.Array, properties: _BatchProperties, broken: pa.Array, role: TopicRole) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if role.state == AUDIT:
        return pa.nulls(len(properties), pa.string())
    found = keys if role.fair_by == KEY else properties.texts(role.fair_by or "")
    missing: Any = NOBODY
    if role.fair_by and broken.null_count < len(broken):
        lost = pc.match_substring_regex(broken, _LOST_KEY if role.fair_by == KEY else _LOST_PROPERTIES)
        missing = pc.if_else(pc.fill_null(lost, fill_value=False), UNKNOWN, NOBODY)
    return pc.if_else(pc.fill_null(pc.not_equal(found, ""), fill_value=False), found, missing)


def _attempts(properties: _BatchProperties) -> pa.Array:
    """Column of maps: the attempts by state that each message has counted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counted = [properties.numbers(key, _INT).cast(pa.int32()) for key in _ATTEMPTS.values()]
    there = [pc.is_valid(found).cast(pa.int32()) for found in counted]
    number = functools.reduce(pc.add, there)
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(number)])
    if not ends[-1].as_py():
        return pa.MapArray.from_arrays(ends, pa.nulls(0, pa.string()), pa.nulls(0, pa.int32()))
    values = pa.array(
        list(chain.from_iterable(zip(*(found.to_pylist() for found in counted), strict=True))), pa.int32()
    )
    names = pa.array(list(_ATTEMPTS) * len(properties), pa.string())
    return pa.MapArray.from_arrays(ends, names.filter(pc.is_valid(values)), values.drop_null())


def _sequence_columns(texts: pa.Array) -> dict[str, pa.Array]:
    """The columns seq_*: run, partition and number of a message, or the content of a producer's mark."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = EVENTS.arrow()
    kinds = {name: schema.field(name).type for name in schema.names if name.startswith("seq_")}
    if texts.null_count == len(texts):
        return {name: pa.nulls(len(texts), kind) for name, kind in kinds.items()}
    plain = pc.extract_regex(texts, _PLAIN)
    marks = _each(pc.if_else(pc.is_null(plain), texts, None), _mark, pa.struct(list(kinds.items())))
    made = {name: pc.struct_field(marks, name) for name in kinds}
    partition = pc.struct_field(plain, "partition").cast(pa.int64())
    partition = pc.if_else(pc.less_equal(partition, _INT), partition, None).cast(pa.int32())
    return made | {
        "seq_run": pc.coalesce(pc.struct_field(plain, "run"), made["seq_run"]),
        "seq_partition": pc.coalesce(partition, made["seq_partition"]),
        "seq_number": pc.struct_field(plain, "number").cast(pa.int64()),
    }


def _mark(text: str) -> dict[str, Any] | None:
    found = _MARK.fullmatch(text)
    if found is None:
        return None
    run, partition, high, void, end = found.groups()
    return {
        "seq_run": run,
        "seq_partition": int(partition) if int(partition) <= _INT else None,
        "seq_high": int(high),
        "seq_void": [_range(part) for part in void.split(",")] if void else None,
        "seq_end": end is not None,
    }


def _range(text: str) -> dict[str, int | None]:
    """Parses `40-52`, or `17`, which is both ends. An end that is not a number of at most `_DIGITS` digits is None."""
    first, _, last = text.partition("-")
    ends = [int(one) if one.isdigit() and len(one) <= _DIGITS else None for one in (first, last)]
    return {"first": ends[0], "last": ends[0] if ends[1] is None else ends[1]}

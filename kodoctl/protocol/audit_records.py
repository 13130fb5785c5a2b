"""Audit records: a worker writes one for every message that it acknowledges in a lane; encoded and decoded here.

One form for the consumer that writes records, `kodo-consumer why` and the pipeline that judges by them. Many records
are one Pulsar message: a JSON object of columns, so that a table engine reads it without code of ours (`arrays_zip`,
`explode`). The message's properties have the records' numbers, so that a search for holes decodes no payload.

    {"format": 1, "run": "billing-host-17-a1b2c3", "subscription": "billing", "first": 4711, "at": 1700000000000,
     "topics": ["persistent://kodo/trade/orders", "persistent://kodo/trade/orders-billing-RETRYING"],
     "after": [0, 3], "topic": [0, 0], "id": ["7:12:0:3", "7:13:0:-1"], "identity": ["order-17", null], "hop": [0, 0],
     "event": ["done", "moved"], "rule": ["done", "retrying"], "target": [-1, 1], "target_id": [null, "9:4:0:-1"],
     "reason": [null, "ValueError"], "tenant": ["u1", "(none)"], "age": [15, 20], "error": [null, "invalid literal"],
     "slot_time": [12, 3]}

`after`: ms after `at`; `topic`, `target`: indices into `topics`, -1: none; `identity` null: it equals `id`. The column
`error` is there if a record has an error text (a setting of the topology), `slot_time` if one has a time above 0.

Numbers of a run begin at 1 and have no hole. A message whose receipt was lost is sent again, so that a record may be
stored twice: (run, number) names it. The Pulsar message's key is the run: its records are in one partition, in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

FORMAT: Final = 1
RECORDS_METADATA: Final = "kodo-records"  # of a consumer on the broker: `wait`, it records before it acknowledges
FORMAT_PROPERTY: Final = "kodo-audit"  # number of the form: marks a message of records
RUN_PROPERTY: Final = "kodo-audit-run"
FIRST_PROPERTY: Final = "kodo-audit-first"  # number of the first record in the message
COUNT_PROPERTY: Final = "kodo-audit-count"
SLOT_TIME: Final = "slot_time"  # name of its column
MAX_TEXT: Final = 200  # characters of an identity, a tenant or a reason
_LARGEST: Final = 2**63 - 1


class Event(StrEnum):
    """Events by which a message ends in the lane it was in. After `moved` and `dead` the message continues in the
    target topic (after `moved` perhaps in the same lane), after `transferred` a new message does. After `stored` it is
    handled from a database, and one more record of the same lane says how that ended.
    """

    STORED = "stored"  # in the inbox of its subscription, from which it is handled: another record follows
    DONE = "done"
    REPEATED = "repeated"  # its work was done before: the handler was not asked again
    DISCARDED = "discarded"  # the handler found it not worth its work
    SKIPPED = "skipped"  # meant for another subscription
    TRANSFERRED = "transferred"  # a new message on another ground took its place
    MOVED = "moved"
    DEAD = "dead"


TERMINAL: Final = frozenset({Event.DONE, Event.REPEATED, Event.DISCARDED, Event.SKIPPED, Event.TRANSFERRED})
"""Events after which this subscription has nothing more to do for the message."""
_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Record(NamedTuple):
    """Record that a worker finished with one message in one lane, at `at`. Times are ms since the epoch.

    `topic` and `id` (`ledger:entry:partition:batch index`) are the position at which the worker received the message;
    `target` and `target_id` are the position at which the message or its successor was stored then ("" unless the event
    is moved, dead or transferred). `identity`: the same on all hops; `hop`: number of moves before this event, as the
    message's headers count them; an inbox, which reads no headers, writes the `id` and 0 for these two. `rule`: name of
    the rule that decided; `reason`: text about the decision, often ""; `error`: redacted error text of the failed run,
    only of a message with a `target`, and only if the topology asks for error texts. `age`: ms until `at` since the
    message was first sent, in records of an inbox since it was sent to this lane; `slot_time`: ms that handlers ran for
    it since the worker received it, 0 if none ran. `number`: counts the records of one `run` (the life of one worker,
    or of its inbox) from 1; a number that is missing shows a record that was given up or lost.
    """

    run: str
    subscription: str
    number: int
    at: int
    topic: str
    id: str
    identity: str
    hop: int
    event: Event
    rule: str
    target: str = ""
    target_id: str = ""
    reason: str = ""
    tenant: str = ""
    age: int = 0
    error: str = ""
    slot_time: int = 0

    @property
    def terminal(self) -> bool:
        """True if this subscription has nothing more to do for the message; False for `stored`, `moved` and `dead`."""
        return self.event in TERMINAL


@dataclass(frozen=True, slots=True)
class Encoded:
    """A Pulsar message with audit records: payload, properties and message key. It has no signature: whoever has keys
    adds one before publishing it.
    """

    payload: bytes
    properties: Mapping[str, str]
    key: str


class BrokenAuditError(ValueError):
    """A payload has no audit records, has broken ones, or is of a format that this version cannot read. The text of the
    exception says what is wrong.
    """


def encode(records: Sequence[tuple[Any, ...]]) -> Encoded:
    """Encodes at least one record as one Pulsar message. All records must be of one run and one subscription, with
    consecutive numbers, which is not checked. Reasons, tenants and identities (unless equal to the `id`) are cut to 200
    characters (MAX_TEXT). A record may be a plain tuple of all its fields in their order, which is faster to make.
    """
    first = Record(*records[0])
    of: dict[str, Sequence[Any]] = dict(zip(Record._fields, zip(*records, strict=True), strict=True))
    ids = of["id"]
    topics = {topic: number for number, topic in enumerate(dict.fromkeys([*of["topic"], *filter(None, of["target"])]))}
    columns: dict[str, str] = {  # one after the other, which takes half the time of one record after the other
        "format": _json(FORMAT),
        "run": _json(first.run),
        "subscription": _json(first.subscription),
        "first": _json(first.number),
        "at": _json(first.at),
        "topics": _json(list(topics)),
        "after": _array(of["at"], lambda at: at - first.at),
        "topic": _array(of["topic"], topics.__getitem__),
        "id": _json(ids),
        "identity": _array(
            [None if one == at else one[:MAX_TEXT] for one, at in zip(of["identity"], ids, strict=True)]
        ),
        "hop": _array(of["hop"]),
        "event": _array(of["event"]),
        "rule": _array(of["rule"]),
        "target": _array(of["target"], lambda target: topics[target] if target else -1),
        "target_id": _array(of["target_id"], lambda text: text or None),
        "reason": _array(of["reason"], lambda text: text[:MAX_TEXT] or None),
        "tenant": _array(of["tenant"], lambda text: text[:MAX_TEXT]),
        "age": _array(of["age"]),
    }
    if any(of["error"]):
        columns["error"] = _array(of["error"], lambda text: text or None)
    if any(of[SLOT_TIME]):
        columns[SLOT_TIME] = _array(of[SLOT_TIME])
    text = ",".join([f'"{name}":{column}' for name, column in columns.items()])
    properties = {
        FORMAT_PROPERTY: str(FORMAT),
        RUN_PROPERTY: first.run,
        FIRST_PROPERTY: str(first.number),
        COUNT_PROPERTY: str(len(records)),
    }
    return Encoded(f"{{{text}}}".encode("utf-8", "replace"), properties, first.run)


def _array(values: Sequence[Any], convert: Callable[[Any], Any] | None = None) -> str:
    """JSON list of a column. A value that many records share is converted and encoded once."""
    first = values[0]
    if first == values[-1] and values.count(first) == len(values):
        return f"[{','.join([_json(convert(first) if convert else first)] * len(values))}]"
    if len(distinct := set(values)) * 4 <= len(values):
        texts = {value: _json(convert(value) if convert else value) for value in distinct}
        return f"[{','.join(map(texts.__getitem__, values))}]"
    return _json([convert(value) for value in values] if convert else values)


_COLUMNS: Final = (
    "after", "topic", "id", "identity", "hop", "event", "rule", "target", "target_id", "reason", "tenant", "age",
)  # fmt: skip


def decode(payload: bytes) -> list[Record]:
    """Decodes the records in a payload. Raises BrokenAuditError if the payload is invalid or of another format: anyone
    who may produce to the topic can write any content, and readers of records do not check types again.
    """
    try:
        found = json.loads(payload)
        form, topics, first = found["format"], found["topics"], _whole(found["first"])
        rows = list(zip(*(found[name] for name in _COLUMNS), strict=True)) if form == FORMAT else []
        errors, slot_times = found.get("error", [None] * len(rows)), found.get(SLOT_TIME, [0] * len(rows))
        records = [
            _record(found, topics, number, row, error)._replace(slot_time=_whole(slot_time))
            for number, (row, error, slot_time) in enumerate(zip(rows, errors, slot_times, strict=True), first)
        ]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as problem:
        raise BrokenAuditError(f"no audit records: {type(problem).__name__}: {problem}") from None
    if form != FORMAT:
        raise BrokenAuditError(f"form {form!r}: a newer kodoctl reads it")
    return records


def _record(head: Mapping[str, Any], topics: Sequence[str], number: int, row: tuple[Any, ...], error: Any) -> Record:
    after, topic, position, identity, hop, event, rule, target, target_id, reason, tenant, age = row
    return Record(
        run=_text(head["run"]),
        subscription=_text(head["subscription"]),
        number=_whole(number),
        at=_whole(_whole(head["at"]) + _whole(after)),
        topic=_text(topics[topic]),
        id=_text(position),
        identity=_text(position if identity is None else identity),
        hop=_whole(hop),
        event=Event(event),
        rule=_text(rule),
        target="" if _whole(target) < 0 else _text(topics[target]),
        target_id=_text(target_id or ""),
        reason=_text(reason or ""),
        tenant=_text(tenant),
        age=_whole(age),
        error=_text(error or ""),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} in place of a text")
    return value


def _whole(value: Any) -> int:
    """A number of 64 bits, as tables have them."""
    if type(value) is not int or not -_LARGEST <= value <= _LARGEST:
        raise TypeError(f"a {type(value).__name__} in place of a whole number of 64 bits")
    return value

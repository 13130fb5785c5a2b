"""One condition, two commands: what `kodoctl recall` chooses and what is chosen in Spark's tasks is the same, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kodo_pipeline.evidence.audit_evidence import MessageStatus
from kodo_pipeline.landing.tables import EVENTS, MESSAGES, TRANSITIONS
from kodo_pipeline.recall import lost_messages
from kodo_pipeline.recall.dead_letter_rows import is_chosen, letter_of_row
from kodo_pipeline.spark.spark_columns import POSITION, cause_column
from kodo_pipeline.spark.spark_session import small_table
from pyspark.sql import functions as F

from kodoctl.errors import UsageError
from kodoctl.expressions.filter_errors import ConditionError
from kodoctl.protocol.error_causes import cause_of
from kodoctl.protocol.properties import ENCRYPTED, MAX_ID
from kodoctl.recall.filter.condition import Condition, literal, parse
from kodoctl.recall.plan.destinations import DeadLetters
from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.recall.plan.selection import SelectionRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kodoctl.recall.message.stored_message import DeadLetter

NOW = 1_800_000_000_000
DEAD = "persistent://kodo/trade/orders-billing-DLQ"
COLUMNS = [
    "topic",
    "partition",
    "ledger",
    "entry",
    "batch_index",
    "key",
    "publish_ts",
    "event_ts",
    "properties",
    "payload",
]
NUMBERS = [
    "0", "-0", "1", "007", "+5", "1.5", "1.50", ".5", "5.", "1e3", "1E+3", "1e-7", "1e400", "-1e400", "1e99999", "1e999999",
    "9007199254740993", "0.1", "0.30000000000000004", "1" * 400, "1" * 401, "12\n", " 1", "0x10", "1d", "1_0", "nan", "NaN",
    "Infinity", "-inf", "１", "2.2250738585072014e-308", "4.9e-324", "1e23", "123456789012345678901234567890",
]  # fmt: skip
MOMENTS = [
    "2027-01-15", "2027-01-15T07:00", "2027-01-15 07:00Z", "2027-01-15T07:00:00Z", "2027-01-15T07:59:59.9999995",
    "2027-01-15T07:59:59.999999", "2027-01-15T08:00:00.0004", "2027-01-15T08:00:00.123456-17:59", "2027-01-15T08:00+18:00",
    "2027-01-15T08:00+18:01", "2027-01-15T08:00+23:00", "2027-01-15T24:00", "2027-02-29", "0000-01-01", "0001-01-01T00:00+10:00",
    "9999-12-31T23:59:59.999999-18:00", "1582-10-10", "1969-12-31T23:59:59.9995", "2027-1-5", "2027-01-15\n", "now", "12:00",
    "1890-01-01T00:00:60",
]  # fmt: skip
TEXTS = [
    "",
    "x",
    "timeout",
    "true",
    "false",
    "TRUE",
    "50%",
    "a_b",
    "a\\b",
    "é",
    "İ",
    "ß",
    "ΣΑΣ",
    "日本",
    "😀",
    "it's",
    '"',
    "a\nb",
    "\t",
    "\x00",
]
VALUES = st.sampled_from([*NUMBERS, *MOMENTS, *TEXTS])
JSON_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), VALUES, st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.sampled_from([1.0, 1e16, 1.5])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "c d", "é"]), inner, max_size=3)),
    max_leaves=5,
)  # fmt: skip
ODD = [
    b"", b"null", b"5", b"-0", b'"a"', b"[1,2]", b'{"a":1} x', b'{"a":1}{"b":2}', b'{"a":1}],[2', b'{"a":1},{"a":2}', b'{"a":1,"b":',
    b"{'a':1}", b'{"a":NaN}', b'{"a":1,"b":NaN}', b'{"a":1,"a":2}', b'{"a":"\\ud800"}', b'{"a":"\\ud83d\\ude00"}', b'{"a":"tab\there"}',
    b'{"a":01}', b'{"a":1e400}', b'{"a":[1e400]}', b'{"a":[null]}', b'{"a":["null"]}', b'{"a":[[null]]}', b'{"a":0.1234567890123456789}', b'{"a":1.50}', b'{"a":1E2}', b'{"a":2.0e-3}',
    b'{"a":{"b":1.0,"a":"x"}}', b'{"a":{"b":{"a":[1,{"a":true}]}}}', b' {"a":1}\n', b'\xef\xbb\xbf{"a":1}', b'/**/{"a":1}', b"\xff\xfe",
    b'{"a":"\xff"}', b"\xed\xa0\x80", b'{"a":' + b"9" * 500 + b"}", b'{"a":' + b"9" * 1200 + b"}", b"[" * 2000 + b"]" * 2000, b'{"a":null}',
    b'{"a":""}', b'{"a":"1.5"}', b'{"a":true}', b'{"a":"true"}', b'{"":1}', b'{"c d":1,"a.b":2}', b'{"a":12345678.9}', b'{"a":-0.0}',
    b"Infinity", b'{"a":Infinity}', b'{"a":1,}', b'{"a" : [ 1 , 2 ] }', b'{"a":"\\/"}',
    b'{" a":"1","a":"2"}', b'{"a":"2","\\ta":"1"}', b'{"a ":"1","a":"2"}', b'{" ":"1"}', b'{"b":{"\\n c":"1","c":"2"}}', b'{"\xc2\xa0a":"1","a":"2"}',
    *(b'{"a":' + b"[" * depth + b"1" + b"]" * depth + b"}" for depth in (498, 499, 500, 950, 998, 999, 1000)),
    b'{"a":"' + b"[" * 700 + b'"}', b'{"a":[' + b"[]," * 600 + b"1]}",
]  # fmt: skip
PAYLOADS = st.one_of(
    st.none(),
    st.sampled_from(ODD),
    st.dictionaries(st.sampled_from(["a", "b", "c d"]), JSON_VALUES, max_size=3).map(
        lambda one: json.dumps(one, ensure_ascii=False).encode("utf-8", "surrogatepass")
    ),
)
NAMES = ["uid", "n", "at", "kodo-id", "kodo-origin-id", "kodo-reason", "kodo-level", "kodo-recall", "kodo-hop", "kodo-due",
         "kodo-origin-time", "kodo-attempts-retrying", "kodo-attempts-backup", "kodo-origin-topic", "kodo-error", "kodo-error-stack"]  # fmt: skip
COUNTS = st.sampled_from(
    [
        "0",
        "3",
        "12",
        "x",
        "",
        "-1",
        "1000000000000000",
        "1000000000000001",
        "9" * 18,
        "9" * 19,
        "1799999999999",
        "5\n",
        "٣",
    ]
)
LETTERS = st.fixed_dictionaries({
    "topic": st.just(DEAD),
    "partition": st.integers(-1, 3),
    "ledger": st.integers(0, 2**40),
    "entry": st.integers(0, 50_000),
    "batch_index": st.integers(-1, 9),
    "key": st.one_of(st.none(), VALUES),
    "publish_ts": st.sampled_from([0, 1, NOW, NOW - 1, NOW - 3_600_000, NOW + 5]),
    "event_ts": st.sampled_from([None, 1, NOW, NOW - 7]),
    "properties": st.dictionaries(st.sampled_from(NAMES), st.one_of(VALUES, COUNTS), max_size=8),
    "payload": PAYLOADS,
})  # fmt: skip

LOOSE = ["properties['uid']", "properties['n']", "properties['at']", "properties['none']", "payload.a", "payload.b", "payload.a.b",
         "payload['c d']", "payload.a[0]", "payload.a[1].a", "payload.a.b.a"]  # fmt: skip
TEXT = [
    "key",
    "reason",
    "error",
    "error_stack",
    "cause",
    "level",
    "tenant",
    "id",
    "position",
    "topic",
    "recall",
    "origin_id",
    "origin_topic",
    "payload",
]
NUMERIC = [
    "attempts",
    "attempts_retrying",
    "attempts_pending",
    "attempts_blocking",
    "attempts_backup",
    "hops",
    "partition",
    "payload_size",
]
TIMES = ["dead_at", "published_at", "event_at", "due_at"]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_numbers: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(NUMERIC),
        st.sampled_from(["0", "1", "-1", "1.5", "0.1", "100", "1e300", "1e-300", "3", "1000000"]),
        st.sampled_from(LOOSE).map(lambda one: f"CAST({one} AS DOUBLE)"),
        _texts.map(lambda one: f"length({one})"),
        st.tuples(_numbers, st.sampled_from("+-*/%"), _numbers).map(lambda one: f"({' '.join(one)})"),
    )
)
_times: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from([*TIMES, "now()"]),
        st.sampled_from(LOOSE).map(lambda one: f"CAST({one} AS TIMESTAMP)"),
        st.tuples(_times, st.sampled_from(["+", "-"]), st.sampled_from(["1 hour", "1 millisecond", "36500 days"])).map(
            lambda one: f"({one[0]} {one[1]} interval '{one[2]}')"
        ),
    )
)
_texts: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(TEXT),
        VALUES.map(_quoted),
        st.sampled_from(LOOSE).map(lambda one: f"CAST({one} AS STRING)"),
        st.tuples(st.sampled_from(["lower", "upper"]), _texts).map(lambda one: f"{one[0]}({one[1]})"),
        st.tuples(st.sampled_from(LOOSE), _texts).map(lambda one: f"coalesce({one[0]}, {one[1]})"),
    )
)
_ORDER = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
_PATTERNS = st.sampled_from(["%", "_", "", "%o%", "t%", "%\\\\%%", "a\\\\_b", "É", "%é", "1_%", "{%", "_", "__"])
_truths = st.recursive(
    st.one_of(
        st.tuples(_numbers, _ORDER, _numbers).map(" ".join),
        st.tuples(_times, _ORDER, _times).map(" ".join),
        st.tuples(_texts, _ORDER, _texts).map(" ".join),
        st.tuples(st.sampled_from(LOOSE), _ORDER, _numbers).map(" ".join),
        st.tuples(st.sampled_from(LOOSE), _ORDER, _times).map(" ".join),
        st.tuples(st.sampled_from(LOOSE), st.sampled_from(["=", "!="]), st.sampled_from(LOOSE)).map(" ".join),
        st.tuples(st.sampled_from(LOOSE), VALUES).map(lambda one: f"{one[0]} = {_quoted(one[1])}"),
        st.tuples(_texts, st.sampled_from(["LIKE", "ILIKE", "NOT LIKE"]), _PATTERNS).map(lambda one: f"{one[0]} {one[1]} '{one[2]}'"),
        st.tuples(st.sampled_from(LOOSE), st.lists(VALUES, min_size=1, max_size=14)).map(
            lambda one: f"{one[0]} IN ({', '.join(map(_quoted, one[1]))})"
        ),
        st.tuples(st.sampled_from([*LOOSE, *NUMERIC]), st.lists(st.integers(-2, 120), min_size=1, max_size=14)).map(
            lambda one: f"{one[0]} IN ({', '.join(map(str, one[1]))})"
        ),
        st.sampled_from([*LOOSE, *TEXT, *TIMES]).map(lambda one: f"{one} IS NULL"),
        st.sampled_from(LOOSE),  # as true or false
        st.sampled_from([f"now() - {one} > interval '2 hours'" for one in TIMES]),
        st.sampled_from([f"{one} BETWEEN 1 AND 100" for one in LOOSE]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map(lambda one: f"({''.join(one)})"),
        inner.map(lambda one: f"(NOT {one})"),
    ),
    max_leaves=4,
)  # fmt: skip


def _table(spark: SparkSession, letters: list[dict[str, Any]]) -> Any:
    def moment(ms: int | None) -> datetime | None:
        return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)

    kinds = {column.name: column.kind for column in MESSAGES.columns} | {"number": "int"}
    names = ["number", *COLUMNS]
    rows = [
        {**one, "publish_ts": moment(one["publish_ts"]), "event_ts": moment(one["event_ts"]), "number": number}
        for number, one in enumerate(letters)
    ]
    schema = ", ".join(f"`{name}` {kinds[name]}" for name in names)
    made = spark.createDataFrame([tuple(row[name] for name in names) for row in rows], schema)
    return made.withColumn("broken", F.lit(None))


def _disagreements(spark: SparkSession, letters: list[dict[str, Any]], texts: list[str]) -> list[tuple[Any, ...]]:
    """Where Spark, whose tasks get what a condition reads, chooses otherwise than the condition does with all of a letter."""
    conditions = [condition for text in texts if (condition := _parsed(text)) is not None]
    asked = [is_chosen(condition, "uid").alias(f"t{at}") for at, condition in enumerate(conditions)]
    found: list[tuple[Any, ...]] = []
    for row in _table(spark, letters).select("number", *asked).collect():
        letter = letter_of_row(letters[row["number"]], "uid")
        for at, condition in enumerate(conditions):
            if row[f"t{at}"] is not condition.chooses(letter):
                found.append((condition.text, row[f"t{at}"], letters[row["number"]]))
    return found


def _parsed(text: str) -> Condition | None:
    try:
        return parse(text, NOW)
    except ConditionError:
        return None


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> Iterator[SparkSession]:
    """Without compiled plans: hundreds of expressions over a few rows take longer to compile than to compute."""
    names = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield spark
    for name, former in before.items():
        spark.conf.set(name, former or "")


def _property(examples: int) -> Any:
    """No shrinking: every example is a query of Spark's."""
    return settings(
        max_examples=examples, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


_TABLES = st.lists(LETTERS, min_size=20, max_size=40)
_TEXTS = st.lists(_truths, min_size=6, max_size=12)


@_property(2)
@given(letters=_TABLES, texts=_TEXTS)
def test_both_commands_choose_the_same(plain: SparkSession, letters: list[dict[str, Any]], texts: list[str]) -> None:
    assert _disagreements(plain, letters, ["true", *texts]) == []


@pytest.mark.full
@pytest.mark.timeout(1800)
@_property(150)
@given(letters=_TABLES, texts=_TEXTS)
def test_both_commands_choose_the_same_at_length(
    plain: SparkSession, letters: list[dict[str, Any]], texts: list[str]
) -> None:
    assert _disagreements(plain, letters, ["true", *texts]) == []


def test_odd_payloads_and_texts_reach_the_condition_as_they_are(plain: SparkSession) -> None:
    """Every odd payload and every odd text against every way to read it."""
    base = {"topic": DEAD, "partition": 0, "ledger": 1, "batch_index": -1, "publish_ts": NOW, "event_ts": None}
    values = [*NUMBERS, *MOMENTS, *TEXTS]
    odd = [*ODD, *(json.dumps({"a": value}).encode() for value in values), None]
    letters = [
        {**base, "entry": number, "key": value or None, "properties": {"uid": value, "kodo-hop": value, "kodo-due": value},
         "payload": odd[number % len(odd)]}
        for number, value in enumerate(values * -(-len(odd) // len(values)))
    ]  # fmt: skip
    texts = []
    for one in ("payload.a", "properties['uid']"):
        texts += [
            f"{one} IS NULL", f"{one} = 1", f"{one} < 2", f"{one} = 1.5", f"{one} = '1.5'", f"{one} > now()", f"{one} = true", one,
            f"{one} <= '2027-01-15T08:00:00' OR {one} LIKE '%.%'", f"CAST({one} AS TIMESTAMP) < now()", f"{one} IN (0, 100)",
            f"length({one}) > 3", f"upper({one}) = 'É'", f"{one} ILIKE 'TRUE'", f"CAST({one} AS DOUBLE) * 1e300 > 0", f"{one} < 'b'",
            f"CAST({one} AS TIMESTAMP) = CAST('2027-01-15T07:59:59.999' AS TIMESTAMP)", f"coalesce({one}, '100') = 100",
        ]  # fmt: skip
    texts += [
        "payload.a.b = 1",
        "payload.a.b = '1.0'",
        "hops > 2",
        "due_at < now()",
        "lower(key) = 'i̇'",
        "key < 'x' OR payload IS NULL",
        "payload.a[0] IS NULL",
        "payload.a[0] > 'm'",
        "payload.a[0][0] IS NULL",
        "coalesce(payload.a[0], 'none') = 'none'",
        "payload.a[0].b IS NULL",
        *(
            f"payload['{key}'] = '1' OR payload['{key}'] IS NULL"
            for key in (" a", "\ta", "\n a", "a ", " ", "\u00a0a", "\x1ca", "\u2003a")
        ),
        "payload.b['\n c'] = '1'",
        "payload[' a'] = '1'",
    ]
    assert _disagreements(plain, letters, texts) == []


def test_a_message_has_the_same_cause_in_tables_as_in_recalls(plain: SparkSession) -> None:
    base = {
        "topic": DEAD,
        "partition": 0,
        "ledger": 1,
        "batch_index": -1,
        "publish_ts": NOW,
        "event_ts": None,
        "payload": b"",
    }
    errors = [
        "bank 7 answered 503 for order 42", "it's \\ 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "10.0.0.7:6650, 12.5/3", "é9 ü-9 ９ #:# $1",
        "\U0001f600" * 150 + "9" * 90 + "x" * 90, "a_b-c_9", "", " ", "\n9\n", *MOMENTS, *NUMBERS,
    ]  # fmt: skip
    pairs = [(reason, error) for reason in (None, "", "ValueError", "r2") for error in (*errors, None)]
    letters = [
        {**base, "entry": number, "key": None,
         "properties": {name: text for name, text in (("kodo-reason", reason), ("kodo-error", error)) if text is not None}}
        for number, (reason, error) in enumerate(pairs)
    ]  # fmt: skip
    column = F.expr(cause_column("properties['kodo-reason']", "properties['kodo-error']"))
    found = {
        row["number"]: row["cause"] for row in _table(plain, letters).select("number", column.alias("cause")).collect()
    }
    assert found == {number: cause_of(reason, error) for number, (reason, error) in enumerate(pairs)}
    causes = sorted({cause for cause in found.values() if cause is not None})
    texts = [f"cause = {literal(cause)}" for cause in causes]
    assert _disagreements(plain, letters, [*texts, "cause IS NULL", "length(cause) = 200", "cause LIKE 'r%'"]) == []


def test_a_fact_that_tables_do_not_hold_is_told() -> None:
    with pytest.raises(UsageError, match="ordering_key"):
        is_chosen(parse("ordering_key = 'x'", NOW), None)


def _stored(number: int, **properties: str) -> dict[str, Any]:
    place = {"topic": DEAD, "partition": 0, "ledger": 7, "entry": number, "batch_index": -1}
    return {**place, "key": None, "publish_ts": NOW, "event_ts": None, "properties": properties, "payload": b""}


def test_a_message_has_the_same_name_in_tables_as_in_recalls(spark: SparkSession) -> None:
    names = ["", "a", "é" * MAX_ID, "x" * MAX_ID, "x" * (MAX_ID + 1), "😀" * MAX_ID, "😀" * (MAX_ID + 1), None]
    pairs = [{"kodo-id": own, "kodo-origin-id": origin} for own in names for origin in names]
    letters = [
        _stored(number, **{name: value for name, value in pair.items() if value is not None})
        for number, pair in enumerate(pairs)
    ]
    identities = {letter_of_row(letter, None).identity for letter in letters}
    assert _disagreements(spark, letters, [f"id = {literal(one)}" for one in sorted(identities)]) == []


def test_a_message_has_the_same_position_in_tables_as_in_recalls(spark: SparkSession) -> None:
    letters = [{**_stored(number), "partition": number - 1, "batch_index": 1 - number} for number in range(3)]
    found = _table(spark, letters).select("number", F.expr(POSITION).alias("position")).collect()
    assert {row["number"]: row["position"] for row in found} == {
        number: str(letter_of_row(letter, None).position) for number, letter in enumerate(letters)
    }


def test_an_encrypted_letter_is_chosen_and_one_of_which_something_is_lost_is_not(spark: SparkSession) -> None:
    told = ["", ENCRYPTED, f"not UTF-8 text, and lost: key; {ENCRYPTED}"]
    letters = [_stored(number, uid="a") for number in range(len(told))]
    told_of = F.element_at(F.array(*map(F.lit, told)), F.col("number") + 1)
    marked = _table(spark, letters).withColumn("broken", F.nullif(told_of, F.lit("")))
    found = marked.select("number", is_chosen(parse("properties.uid = 'a'", NOW), None).alias("chosen")).collect()
    assert [row["chosen"] for row in sorted(found)] == [
        replace(letter_of_row(letter, None), broken=broken).whole for letter, broken in zip(letters, told, strict=True)
    ]
    assert [row["chosen"] for row in sorted(found)] == [True, True, False]


class _Considered:
    """What a selection is told of the only message."""

    def __init__(self) -> None:
        self.read = 0
        self.found: list[tuple[DeadLetter, bool]] = []

    def consider(self, letter: DeadLetter, *, chosen: bool) -> None:
        self.found.append((letter, chosen))


def test_a_condition_reads_a_message_that_was_lost_on_its_way_as_the_plan_has_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, at = b'{"a": "' + b"x" * 2_000 + b'"}', datetime.fromtimestamp(NOW / 1000, UTC)
    place = {
        "id": "7:1:0:-1",
        "msg_topic": "persistent://kodo/trade/orders",
        "topic": "orders",
        "subscription": "billing",
    }
    before = {
        **place, "msg_partition": 0, "ledger": 7, "entry": 1, "batch_index": -1, "hop": 1, "level": "L1", "key": "k",
        "payload": whole, "size": len(whole), "publish_ts": at, "event_ts": at - timedelta(seconds=9),
        "properties": {"kodo-hop": "1", "kodo-reason": "retry", "uid": "a"},
    }  # fmt: skip
    move = {**place, "number": 1, "event": "dead", "target_topic": DEAD, "target_id": "9:4:0:-1", "error": "boom",
            "reason": "attempts exhausted"}  # fmt: skip
    events, transitions = (
        spark.createDataFrame([tuple(row.get(name) for name in table.names)], table.spark())
        for table, row in ((EVENTS, before), (TRANSITIONS, move))
    )
    columns = "fate string, cause string, topic string, subscription string, msg_topic string, id string"
    lost = small_table(spark, [("lost", "vanished", "orders", "billing", DEAD, "9:4:0:-1")], columns)
    monkeypatch.setattr(lost_messages, "findings", lambda *_: lost)
    tables = SimpleNamespace(events=events, transitions=transitions)
    audited: Any = SimpleNamespace(verdicts=None, lanes=None, tables=tables)
    family = DeadLetters(
        name="trade", ground="orders", subscription="billing", source_topic=DEAD, source_partitions=1, fair_by="uid",
        payload_type=None, holder="billing", retrying={}, ready={},
    )  # fmt: skip
    for text, chosen in {
        "reason = 'attempts exhausted' AND error = 'boom' AND level = 'L1'": True,
        "reason = 'retry' OR hops = 1 OR topic NOT LIKE '%-DLQ'": False,
        "hops = 2 AND position = '9:4:0:-1' AND origin_id = '7:1:0:-1' AND tenant = 'a' AND key = 'k'": True,
        f"payload_size = {len(whole)} AND length(payload.a) = 2000": True,
        "now() - event_at = interval '9 seconds'": True,
    }.items():
        asked = SelectionRequest(RecallAction.RESEND, family, parse(text, NOW), "r", None, 10, again=False, edit=None)
        told: Any = _Considered()
        lost_messages.LostMessageSelector(audited, [MessageStatus.LOST])(asked, told)
        ((letter, found),) = told.found
        assert (text, found) == (text, chosen)
        assert (letter.reason, letter.size, str(letter.position)) == ("attempts exhausted", len(whole), "9:4:0:-1")

"""The condition language: what it means, what it refuses and where, and that nothing typed into it is a traceback."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kodoctl.expressions.ast import ValueKind
from kodoctl.expressions.fault_list import FaultList
from kodoctl.expressions.filter_errors import ConditionError
from kodoctl.pulsar.binary.message_reader import ReadMessage
from kodoctl.recall.cluster import letter_of
from kodoctl.recall.filter.condition import literal, parse
from kodoctl.recall.filter.fields import LetterFacts
from kodoctl.topology.units import LATEST
from tests.unit.recall.letters import DEAD, NOW, letter

LETTER = letter(
    {
        "amount": 150,
        "big": 1e300,
        "a": {"b": [1, {"c": "x"}]},
        "paid": True,
        "none": None,
        "s": "42",
        "f": 1.5,
        "n": False,
    },
    entry=7,
    key="k1",
    event_time=NOW - 60_000,
    publish_time=NOW - 3_600_000,
    tenant="u1",
    reason="timeout",
    level="L2",
    uid="u1",
    size="100",
    word="1x",
    at="2027-01-15T07:00:00Z",
    properties={"kodo-attempts-retrying": "3", "kodo-attempts-pending": "2", "kodo-hop": "x", "kodo-due": "5"},
)
TRUE = [
    "true",
    "reason = 'timeout' AND payload.amount > 100 AND dead_at > now() - interval '2 hours'",
    "reason IN ('a', 'timeout') OR 1 = 2",
    "NOT reason = 'x'",
    "reason != 'x' and reason <> 'y'",
    "key LIKE 'k_' and key like 'k%' and key like '%1' and key like '%k%1%' and key ilike 'K1' and not key like 'x%'",
    "key not like '%2' and key not ilike 'q%'",
    r"'50%' like '50\%' and not '50x' like '50\%' and 'a\\b' like 'a\\\\b'",
    "payload.a.b[1].c = 'x' and payload['a']['b'][0] = 1 and payload.a['b'][1]['c'] = 'x'",
    "payload.a.b[7] is null and payload.a.zz is null and payload.amount.x is null and payload.amount[0] is null",
    'payload.a is not null and payload.a.b = \'[1,{"c":"x"}]\'',
    "payload.none is null and payload.paid and not payload.n and payload.paid = true",
    "payload.s = 42 and payload.s = '42' and payload.f = 1.5 and payload.f = '1.5' and payload.amount = '150'",
    "properties['size'] > 99 and properties.size between 100 and 100 and properties['size'] in (1, 100)",
    "properties['word'] = '1x' and properties['none'] is null and properties.uid = 'u1'",
    "cast(properties['size'] as double) = 100 and cast(size_of as string) is null".replace("size_of", "payload.none"),
    "cast(key as string) = 'k1' and cast('7' as double) = 7 and cast('true' as boolean) and cast(payload as string) is not null",
    "attempts = 5 and attempts_retrying = 3 and attempts_blocking = 0 and hops = 0 and attempts_pending < 3",
    "level = 'L2' and tenant = 'u1' and topic like '%-DLQ' and partition = 0 and position = '1:7:0:-1'",
    "id = '1:7:0:-1' and recall is null and origin_id is null and origin_topic is null and ordering_key is null",
    "due_at = cast('1970-01-01 00:00:00.005' as timestamp)",
    "properties['at'] < now() and properties['at'] + interval 1 day > '2027-01-15'",
    "dead_at <= '2030-01-01' and dead_at > timestamp '2020-01-01 00:00' and dead_at > date '2020-01-01'",
    "dead_at > '2020-01-01T00:00:00+01:00' and published_at = dead_at and event_at > dead_at",
    "now() - dead_at = interval '60 minutes' and interval 1 hour - interval 1 minute < interval 1 hour",
    "now() - dead_at < interval 1 hour + interval 1 second and current_timestamp = now()",
    "interval 1 hour + dead_at <= now() and -interval 1 hour + now() < now()",
    "1 + 2 * 3 = 7 and (1 + 2) * 3 = 9 and 7 % 4 = 3 and -7 % 4 = -3 and 1 / 4 = 0.25 and -1 < 0 and - attempts < 0",
    "length(key) = 2 and upper(key) = 'K1' and lower(reason) = 'timeout' and coalesce(properties['q'], key) = 'k1'",
    "coalesce(properties['q'], properties['size']) = 100 and coalesce(ordering_key, 'none') = 'none'",
    "payload_size > 10 and payload like '{%' and properties['size'] * 2 = 200",
    "properties['uid'] = payload.a.b or properties['uid'] = properties['uid']",
    'KEY = "k1" -- a remark',
    "'true' = payload.paid and (payload.none = 1 or true) and not (payload.none = 1 and false)",
]
NOT_TRUE = [
    "false",
    "properties['none'] = 'x'",
    "not properties['none'] = 'x'",
    "properties['word'] > 0",
    "payload.none > 1 or false",
    "payload.none > 1 and true",
    "1 / 0 = 1",
    "7 % 0 = 1",
    "payload.big * payload.big > 1",
    "properties['none'] in ('a')",
    "properties['none'] like '%'",
    "length(properties['none']) = 0",
    "properties['none'] + 1 = 1",
    "payload.s",
    "coalesce(payload.none, properties['none']) = 'x'",
    "key like 'kk%' or key like '%11' or key like 'k%k1' or key like '%x%'",
    "cast(properties['word'] as timestamp) < now()",
]


@pytest.mark.parametrize("text", TRUE)
def test_a_condition_that_holds(text: str) -> None:
    assert parse(text, NOW).chooses(LETTER)


@pytest.mark.parametrize("text", NOT_TRUE)
def test_a_condition_that_is_false_or_unknown(text: str) -> None:
    assert not parse(text, NOW).chooses(LETTER)


def test_a_payload_that_is_no_json_or_no_text_has_no_values() -> None:
    condition = parse("payload.a is null and payload.b = 1 is null".replace(" and payload.b = 1 is null", ""), NOW)
    for payload in (b"\xff\xfe", b"no json", b"[" * 100_000, b'{"a": NaN}', b"9" * 5000, None, b""):
        assert condition.chooses(letter(payload))
    assert parse("payload is null", NOW).chooses(letter(b"\xff"))
    assert parse("payload is null and payload_size is null and dead_at is null", NOW).chooses(letter(publish_time=0))


def test_a_time_that_no_table_holds_is_what_tables_have_for_it() -> None:
    """As kodo_pipeline.source.split_reader: else Spark would choose other letters."""
    none = parse("event_at is null", NOW)
    for at in (0, LATEST + 1, time.time_ns(), 2**63, 2**64 - 1):
        assert none.chooses(letter(event_time=at))
    assert parse("event_at > '9999-12-30' and event_at < '9999-12-31'", NOW).chooses(letter(event_time=LATEST))
    stored = ReadMessage(None, 0, 1, 2, -1, b"", {}, "", "", 2**64 - 1, 2**64 - 1, "")
    found = letter_of(stored, DEAD, None)
    assert parse("dead_at = published_at and dead_at < '9999-12-31' and event_at is null", NOW).chooses(found)
    assert found.event_time == 2**64 - 1, "it goes on as it is"


REFUSED = [
    ("", "K550", 1, "a condition is needed"),
    ("-- nothing", "K550", 1, "a condition is needed"),
    ("key = 'a", "K550", 7, "is never closed"),
    ("key = ", "K550", 5, "missing beside"),
    ("(key = 'a'", "K550", 11, "is missing"),
    ("key = 'a' foo", "K550", 11, "foo does not belong here"),
    ("key\n= 'a'\nfoo", "K550", 11, "does not belong"),
    ("1; drop table x", "K550", 4, "drop does not belong here"),
    ("select 1", "K550", 1, "does not belong here"),
    ("key in (select 1)", "K550", 1, "IN takes a list"),
    ("key in (key)", "K550", 9, "not what must be computed"),
    ("exec('x')", "K550", 1, "not allowed"),
    ("__import__('os')", "K550", 1, "not allowed"),
    ("reason rlike '(a+)+'", "K550", 1, "not allowed"),
    ("case when true then true end", "K550", 1, "not allowed"),
    ("key = null", "K550", 1, "nothing equals NULL"),
    ("payload.paid is true", "K550", 1, "IS goes with NULL"),
    ("key like key", "K550", 10, "quoted pattern"),
    (r"key like 'a\\x'", "K550", 10, "backslash"),
    ("payload.id = 9007199254740993", "K550", 14, "in quotes"),
    ("payload.id = 1e999", "K550", 14, "no number"),
    ("dead_at > now() - interval '1 day 2 hours'", "K550", 19, "one unit"),
    ("dead_at > now() - interval 1 month", "K550", 19, "one unit"),
    ("dead_at > now() - interval 99999 weeks", "K550", 19, "hundred years"),
    ("cast(key as int array) = 1", "K550", None, ""),
    ("cast(key as decimal(3, 1)) = 1", "K550", 6, "a cast goes to"),
    ("properties = 'x'", "K550", 1, "properties['uid']"),
    ("properties[1] = 'x'", "K550", 1, "properties['uid']"),
    ("payload['it''s'] = 1".replace("''", "\\'"), "K550", 1, "cannot be reached"),
    ("payload[key] = 1", "K550", 1, "payload.list[0]"),
    ("payload[''] = 1", "K550", 1, "cannot be reached"),
    ("payload[99999999999] = 1", "K550", 1, "payload.list[0]"),
    ("payload.* = 1", "K550", None, ""),
    ("key between symmetric 1 and 2", "K550", None, ""),
    ("@x = 1", "K550", None, ""),
    ("{{x}}", "K550", None, ""),
    ("'a' 'b' = key", "K550", 1, "not allowed"),
    ("keyy = 'a'", "K552", 1, "did you mean key?"),
    ("zzzzz = 'a'", "K552", 1, "payload.zzzzz"),
    ("key.x = 1", "K552", 1, "no fact"),
    ("key", "K553", 1, "needed is a true or false"),
    ("attempts > 'many'", "K553", 12, "needed is a number"),
    ("now() > 3", "K553", 9, "needed is a time"),
    ("dead_at > 'soon'", "K553", 11, "is no time"),
    ("dead_at > '2026-02-30'", "K553", 11, "is no time"),
    ("map ( @ nulls string_agg decode / true", "K550", 1, "not understood"),
    ("interval " * 3_000 + "1", "K551", None, "nested"),
    ("if = 1", "K550", None, ""),
    ("payload.paid and true = 'maybe'", "K553", 25, "is no true or false"),
    ("true < false", "K553", 1, "no order"),
    ("properties['a'] > interval '1 hour'", "K553", 1, "never a duration"),
    ("now() - dead_at between payload.a and interval '1 hour'", "K553", 25, "never a duration"),
    ("coalesce(payload.a, now() - dead_at) < interval '1 hour'", "K553", 10, "never a duration"),
    ("properties['a'] < properties['b']", "K553", 1, "neither side"),
    ("now() + now() > now()", "K553", 1, "means nothing"),
    ("key + 1 = 2", "K553", 1, "means nothing"),
    ("lower(attempts) = 'x'", "K553", 7, "needed is a text"),
    ("key in (1)", "K553", 9, "needed is a text"),
    ("coalesce(attempts, key) = 1", "K553", 20, "needed is a number"),
    ("(" * 40 + "true" + ")" * 40, "K551", 33, "nested"),
    ("not " * 40 + "true", "K551", None, "nested"),
    ("1" + " + 1" * 60 + " > 1", "K551", None, "nested"),
    ("a" * 70_000, "K551", None, "at most"),
    ("key in (" + "'a'," * 9_000 + "'a')", "K551", None, "at most"),
]


@pytest.mark.parametrize(("text", "code", "at", "said"), REFUSED, ids=[case[0][:40] for case in REFUSED])
def test_an_error_points_at_its_character(text: str, code: str, at: int | None, said: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse(text, NOW)
    found = caught.value.diagnostics[0]
    assert found.code == code
    assert said in found.detail
    if at is not None and text:
        first, line, caret = found.detail.split("\n")[0], *found.detail.split("\n")[-2:]
        assert first.startswith(f"at character {at}:")
        assert line[caret.index("^") :].lstrip("·")[:1] == text[at - 1 : at].strip() or len(text) > 60 or at > len(text)


def test_all_findings_come_at_once_in_the_order_of_the_text() -> None:
    with pytest.raises(ConditionError) as caught:
        parse("keyy = 1 and dead_at > 'x' and exec(1) and key in (2) and attempts + keyy > 1 and 日本 = 1", NOW)
    assert [found.code for found in caught.value.diagnostics] == ["K552", "K553", "K550", "K553", "K552", "K552"]


def test_the_caret_is_under_the_character_after_wide_ones_and_in_the_middle_of_a_long_text() -> None:
    with pytest.raises(ConditionError) as caught:
        parse("key = '日本' and keyy = 1" + " and true" * 20, NOW)
    _, line, caret = caught.value.diagnostics[0].detail.split("\n")
    assert line.endswith("…")
    assert caret.index("^") == line.index("keyy") + 2  # two wide characters before it
    with pytest.raises(ConditionError) as caught:
        parse("true and " * 20 + "keyy = 1", NOW)
    _, line, caret = caught.value.diagnostics[0].detail.split("\n")
    assert line.lstrip().startswith("…")
    assert line[caret.index("^") :].startswith("keyy")


def test_a_long_chain_is_no_deep_one() -> None:
    assert parse(" or ".join(["key = 'k1'"] * 800), NOW).chooses(LETTER)
    assert parse("key in (" + ",".join(f"'k{i}'" for i in range(3000)) + ")", NOW).chooses(LETTER)


def test_like_takes_no_more_time_than_text_times_pattern() -> None:
    hostile = letter(b"a" * 200_000)
    assert not parse("payload like '" + "%a" * 200 + "%b'", NOW).chooses(hostile)
    assert parse("payload like '" + "%a" * 200 + "'", NOW).chooses(hostile)


WORDS = st.sampled_from(
    [
        "key",
        "properties",
        "payload",
        ".",
        "[",
        "]",
        "(",
        ")",
        "'a'",
        "'x'",
        "1",
        "2.5",
        "and",
        "or",
        "not",
        "in",
        "like",
        "between",
        "is",
        "null",
        "true",
        "interval",
        "hours",
        "now",
        "(",
        ")",
        "=",
        "<",
        ">",
        "!=",
        "+",
        "-",
        "*",
        "/",
        "%",
        ",",
        "cast",
        "as",
        "double",
        "coalesce",
        ";",
        "--",
        "/*",
        "*/",
        "{",
        "}",
        "@",
        ":",
        "$",
        "\\",
        "'",
        '"',
        "`",
        "select",
        "from",
        "case",
        "when",
        "end",
    ]
)


@given(
    st.one_of(st.lists(WORDS, max_size=25).map(" ".join), st.text(max_size=80), st.text(string.printable, max_size=80))
)
@example("\x00")
@example("'\ud800' = key")
@example("/*")
@example("key = '\\")
@example("$$ = key")
@example("interval")
@example("cast(1 as)")
def test_whatever_is_typed_is_a_condition_or_an_error_with_a_place(text: str) -> None:
    try:
        condition = parse(text, NOW)
    except ConditionError:
        return
    assert condition.chooses(LETTER) in (True, False)


LEAVES = st.sampled_from(
    ["key", "payload.amount", "properties['uid']", "attempts", "reason", "1", "'x'", "payload.none"]
)
TRUTHS = st.recursive(
    st.one_of(
        st.tuples(
            LEAVES, st.sampled_from(["=", "!="]), st.sampled_from(["'x'", "payload.s", "properties['none']"])
        ).map(" ".join),
        st.sampled_from(["true", "false", "payload.none", "attempts > 1", "payload.none is null"]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda found: f"({''.join(found)})"),
        inner.map(lambda found: f"(not {found})"),
    ),
    max_leaves=8,
)


@given(TRUTHS)
def test_not_turns_true_and_false_round_and_leaves_unknown(text: str) -> None:
    from kodoctl.expressions.evaluator import evaluate

    try:
        plain, turned, either = (parse(form, NOW) for form in (text, f"not ({text})", f"({text}) or not ({text})"))
    except ConditionError:
        return
    value = evaluate(plain.root, LetterFacts(LETTER))
    assert evaluate(turned.root, LetterFacts(LETTER)) == (None if value is None else not value)
    assert evaluate(either.root, LetterFacts(LETTER)) is (None if value is None else True)


def test_kinds_have_words() -> None:
    assert ValueKind.MOMENT == "time"


@pytest.mark.parametrize(
    "reason", ["it's", 'say "no"', "a\\b", "a\\'b", "plain", "'", "\\", "a\nb\r", "\x00\x1b\u202e\U000e0001"]
)
def test_a_text_in_quotes_is_that_text(reason: str) -> None:
    assert literal(reason).isprintable()
    assert parse(f"reason = {literal(reason)}", NOW).chooses(letter(1, reason=reason))
    assert not parse(f"reason = {literal(reason)}", NOW).chooses(letter(1, reason=reason + "x"))


@pytest.mark.parametrize(
    ("text", "word", "at"),
    [("payload.n >> 3", ">>", 11), ("tenant || 'x' = 'y'", "||", 8), ("payload['a'] & payload.b = 1", "&", 14)],
)
def test_an_operator_that_conditions_lack_is_named_as_it_stands_with_those_there_are(
    text: str, word: str, at: int
) -> None:
    with pytest.raises(ConditionError) as problem:
        parse(text, 1)
    place, _, caret = problem.value.diagnostics[0].detail.split("\n")
    assert place.startswith(f'at character {at}: "{word}" is not allowed in a condition: use =, <>, <, <=,')
    assert caret.index("^") - 2 == at - 1


@pytest.mark.parametrize("text", ["payload.n >> NULL", "NULL >> payload.n"])
def test_an_operator_beside_what_has_no_place_is_named_by_its_kind(text: str) -> None:
    with pytest.raises(ConditionError) as problem:
        parse(text, 1)
    assert "BITWISERIGHTSHIFT is not allowed in a condition: use =, <>, <, <=," in problem.value.diagnostics[0].detail


def test_a_fault_of_nothing_is_at_the_first_character() -> None:
    faults = FaultList("a = 1")
    faults.add(None, "no tree")
    with pytest.raises(ConditionError) as problem:
        faults.check()
    assert problem.value.diagnostics[0].detail.startswith("at character 1: no tree")

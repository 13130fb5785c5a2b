"""Whatever stands in control properties: a message is handled, a dead letter, or another subscription's, and nothing raises."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from kodo_consumer import Consumer
from kodo_consumer.cli.message_history import FoundMessage, Search, SearchedTopic, lines, to_json
from kodo_consumer.core.values.envelope import (
    BrokenHeadersError,
    Headers,
    Outgoing,
    effect_key,
    message_identity,
    read_headers,
    reroute_message,
)
from kodo_consumer.testing import Harness

from kodoctl.protocol import properties as names
from kodoctl.pulsar.binary.message_reader import ReadMessage
from kodoctl.recall.cluster import letter_of
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.message_json import as_json
from kodoctl.render.recall import peek_lines
from tests.samples.profiles import examples
from tests.unit.consumer.engine_bench import delivery
from tests.unit.consumer.topologies import DOUBLE, write

NAMES = sorted(value for name, value in vars(names).items() if name.isupper() and str(value).startswith(names.PREFIX))
SOFTEN = [
    "X-ORIGIN-MESSAGE-ID",
    "X-ORIGIN-PUBLISH-TIME",
    "X-ORIGIN-LEVEL",
    "X-Message-Counter",
    "X-Retrying-Message-Counter",
]
VALUES = st.sampled_from(
    ["", "0", "1", "-1", "+1", "1_0", "1.5", " 7", "7\n", "٣", "²", "9" * 18, "9" * 19, "9" * 5_000, "1e3", "0x1", "null", "true", "{}",
     "[" * 2_000, "x" * 1_025, "\0", "\u202e", "\U0001f600", "1:2:0:-1", "9:9", "a:b:c:d", "run;0;1", "high=9", "L1", "L2", "B1", "DLQ",
     "billing", "(none)", "2026-01-01T00:00:00Z", str(10**15), str(2**63), "v1.AAAA.BBBB"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.integers(-(2**65), 2**65).map(str)  # fmt: skip
PROPERTIES = st.dictionaries(st.sampled_from([*NAMES, *SOFTEN, "uid", "size"]), VALUES, max_size=6)
SINGLE = "  orders: {subscriptions: {billing: {type: exclusive, states: [], in_place: []}}}\n"
SHAPES = {
    "all": (DOUBLE, ""),
    "signed": (DOUBLE, 'signing_keys = ["a key of sixteen characters and more"]\n'),
    "the only reader": (SINGLE, ""),
    "soften": ("  orders: {subscriptions: {billing: {compat: soften, in_place: []}}}\n", ""),
}


@given(PROPERTIES)
@example({"kodo-origin-id": ""})
def test_control_properties_are_read_or_broken_and_nothing_else(properties: Mapping[str, str]) -> None:
    try:
        headers = read_headers(properties)
    except BrokenHeadersError:
        headers = Headers()
    message = delivery()._replace(properties=properties)
    assert message_identity(message, headers)
    assert effect_key(message, headers)
    moved = reroute_message(message, headers, "here", "there", None)
    assert read_headers(moved.properties).origin_id, "what a worker writes is readable, whatever stood there"


@pytest.mark.simulated
@pytest.mark.parametrize("shape", SHAPES)
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_property_ends_a_worker_or_loses_a_message(tmp_path: Path, shape: str, data: st.DataObject) -> None:
    topics, toml = SHAPES[shape]
    file = write(tmp_path, topics)
    (tmp_path / "kodo-consumer.toml").write_text(toml, encoding="utf-8")
    with chdir(tmp_path):
        consumer = Consumer.load(file, topic="orders", subscription="billing", environ={})
    seen: list[bytes] = []
    consumer.handler(lambda message: seen.append(message.data))
    harness = Harness(consumer)
    sent = data.draw(
        st.lists(st.tuples(st.sampled_from(harness.policy.lanes), PROPERTIES, VALUES), min_size=1, max_size=8)
    )
    for number, (lane, properties, key) in enumerate(sent):
        harness.broker.send(Outgoing(lane.topic, b"%d" % number, properties, key=key))
    harness.advance(harness.policy.horizon / 1000 + 120)
    assert harness.worker.problem is None
    assert harness.worker.engine.check_invariants() == []
    ended = [*seen, *(letter.payload for letter in harness.dead_letters)]
    unseen = harness.counts.finished["not_for_me"] + harness.counts.marks
    assert len(set(ended)) + unseen >= len(sent)
    assert len(ended) == len(set(ended))
    assert all(not harness.broker.left(lane.topic, "billing") for lane in harness.policy.lanes)


@given(PROPERTIES, VALUES, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_no_property_ends_those_who_only_look(
    properties: dict[str, str], key: str, happened: int, published: int
) -> None:
    stored = ReadMessage(None, 0, 7, 3, -1, b"{", properties, key, "", happened, published, "")
    letter = letter_of(stored, "persistent://p/n/orders-billing-DLQ", "uid")
    for text in ("true", "attempts > 1", "dead_at < now()", "payload.a = 1", "reason = 'x'"):
        parse(text, 1_000).chooses(letter)
    counts = {"format_version": 1, "read": 1, "matched": 1, "marks": 0}
    document: Any = {**counts, "complete": True, "read_all": True, "messages": [as_json(letter)]}
    assert list(peek_lines(document, 1_000))
    search = Search("7:3:0:-1", [SearchedTopic("t", "L1/ready")])
    search.message(FoundMessage("t", "7:3:0:-1", b"", properties, published, acknowledged=False))
    assert list(lines(to_json("7:3:0:-1", search, [SearchedTopic("t", "L1/ready")]), str))

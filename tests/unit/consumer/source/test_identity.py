"""Identity of a source: which stored messages are its own, whatever their properties say."""

from __future__ import annotations

from typing import Any

import pytest
from kodo_consumer.source.identity import (
    OUT_OF_ORDER,
    UNSIGNED,
    PartitionCopies,
    SourceIdentity,
    Span,
    Stranger,
    System,
    forks_of,
    routing_of,
)
from kodo_consumer.source.positions import Position

from kodoctl.protocol.signing import Signer
from kodoctl.pulsar.binary.message_reader import ReadMessage

PARTITION = "persistent://shop/ns/orders-partition-1"
SYSTEM = System("73", 1, 0x9000)
FORKED = System("73", 3, 0x9000, ((1, 0x100), (2, 0x200)))
SIGNER = Signer(["0123456789abcdef"])
HERE = Position(0x150, 0)


def identity(system: System = SYSTEM, routing: str = "r1", signer: Signer | None = None) -> SourceIdentity:
    return SourceIdentity("kodo_shop_db", system, routing, signer)


def message(properties: dict[str, str], producer: str, partition: int = 1, batch: int = -1) -> ReadMessage:
    return ReadMessage(None, partition, 1, 2, batch, b"x", properties, "", "", 0, 0, "", producer=producer)


def change(
    position: Position = HERE, *, source: SourceIdentity | None = None, number: str = "0123456789abcde:1:5", **more: Any
) -> ReadMessage:
    source = source or identity()
    properties = {"kodo-id": source.id_of(position), "kodo-seq": number, **more.pop("properties", {})}
    return message(properties, more.pop("producer", source.producer(position)), **more)


def copies(*messages: ReadMessage, source: SourceIdentity | None = None, start: int = 0) -> PartitionCopies:
    found = PartitionCopies(source or identity(), PARTITION, start)
    for one in messages:
        found.add(one)
    return found


def test_a_message_of_its_own_producer_counts() -> None:
    found = copies(change(Position(0x140, 2)), change(), change(Position(0x160, 0, is_snapshot=True)))
    assert found.changes == {Position(0x140, 2): 1, HERE: 1}
    assert (found.first, found.doubts, found.strangers) == (Position(0x140, 2), {}, {})
    plain = change(partition=-1, number="0123456789abcde:0:5")
    assert copies(plain).changes == {HERE: 1}, "of a topic without partitions"


@pytest.mark.parametrize(
    "forged",
    [
        {"producer": "shop-4-2"},
        {"producer": "kodo-source-kodo_shop_db-0123456789ab-0"},
        {"producer": "kodo-source-kodo_shop_db-73-1-covered"},
        {"batch": 0},
        {"number": "0123456789abcde:0:5"},
        {"number": "0123456789abcde:1:high=5"},
        {"number": "5"},
    ],
)
def test_a_message_of_somebody_else_counts_for_nothing(forged: dict[str, Any]) -> None:
    one = change(**forged)
    found = copies(one)
    assert (found.changes, found.doubts, found.first) == ({}, {}, None)
    assert found.strangers == {one.producer: 1}
    assert bool(found.impostors) == (one.producer == identity().producer(HERE))
    assert copies(one, start=0x151).strangers == {}, "it has the id of an earlier change"


@pytest.mark.parametrize(
    "properties",
    [
        {"kodo-id": "kodo_shop_db:74:0/150#0"},
        {"kodo-id": "kodo_shop:73:0/150#0"},
        {"kodo-id": "kodo_shop_db:73@2:0/150#0"},
        {"kodo-id": "kodo_shop_db:73:0/150"},
        {"kodo-origin-id": "1:2:0:-1"},
    ],
)
def test_a_message_with_another_id_is_not_looked_at(properties: dict[str, str]) -> None:
    assert identity().change_of(change(properties=properties), PARTITION) is None


def test_not_all_names_of_strangers_are_kept() -> None:
    found = copies(*(change(producer=f"p{number}") for number in range(150)), change(producer="p0"))
    assert len(found.strangers) == 101
    assert (found.strangers["p0"], found.strangers["and others"]) == (2, 50)


def test_a_message_out_of_the_order_of_its_numbers_decides_nothing() -> None:
    """The broker would have dropped it, had the source sent it."""
    lost = Position(0x140, 0)
    found = copies(change(Position(0x130, 0)), change(), change(lost))
    assert (found.changes[lost], found.doubts) == (0, {lost: OUT_OF_ORDER})
    assert (found.highest, found.impostors) == ({identity().producer(HERE): HERE.number}, {identity().producer(HERE)})
    again = copies(change(), change())
    assert (again.changes, again.doubts) == ({HERE: 1}, {HERE: OUT_OF_ORDER})


def test_with_keys_only_signed_messages_count() -> None:
    signing = identity(signer=SIGNER)
    plain = change()
    signed = plain._replace(properties=SIGNER.signed(PARTITION, plain.payload, plain.properties))
    assert copies(signed, source=signing).changes == {HERE: 1}
    assert copies(plain, source=signing).doubts == {HERE: UNSIGNED}
    assert copies(signed._replace(payload=b"y"), source=signing).doubts == {HERE: UNSIGNED}
    mark = message(signing.mark_properties(0x10, 0x20), signing.coverage_producer())
    assert signing.span_of(mark, PARTITION) is None
    signed = mark._replace(properties=SIGNER.signed(PARTITION, mark.payload, mark.properties))
    assert signing.span_of(signed, PARTITION) == Span(0x10, 0x20, "r1")


def test_marks_are_those_of_its_own_producer() -> None:
    source = identity()
    properties = source.mark_properties(0, 0x20)
    assert copies(message(properties, source.coverage_producer())).spans == [Span(0, 0x20, "r1")]
    other = SourceIdentity("kodo_shop_other", SYSTEM, "r1")
    assert copies(message(properties, other.coverage_producer())).spans == [], "of another source on the topic"
    assert source.span_of(message({"kodo-covered": "0/0..0/x"}, source.coverage_producer()), PARTITION) is None
    assert source.span_of(message({"kodo-covered": "0/1..0/2"}, source.coverage_producer()), PARTITION) == Span(1, 2)
    begin = message(source.mark_properties(0x20, 0x20), source.begin_producer())
    assert source.span_of(begin, PARTITION) == Span(0x20, 0x20, "r1"), "it covers nothing, and names a topology"


def test_names_of_earlier_topologies_are_learned_from_marks() -> None:
    before, now = identity(routing="r0"), identity()
    assert copies(change(source=before), source=now).strangers == {before.producer(HERE): 1}
    now.learn(["r0", ""])
    assert copies(change(source=before), source=now).changes == {HERE: 1}


def test_a_position_of_another_timeline_is_another_change() -> None:
    """After a fail-over the log goes on from the fork, and a position after it may have another commit."""
    old, new = identity(), identity(FORKED)
    shared, late = Position(0x80, 0), Position(0x150, 0)
    assert old.id_of(shared) == new.id_of(shared) == "kodo_shop_db:73:0/80#0"
    assert (old.id_of(late), new.id_of(late)) == ("kodo_shop_db:73:0/150#0", "kodo_shop_db:73@2:0/150#0")
    assert new.id_of(Position(0x200, 0)) == "kodo_shop_db:73@3:0/200#0"
    assert copies(change(shared, source=old), source=new).changes == {shared: 1}, "sent before the fork"
    assert new.change_of(change(late, source=old), PARTITION) is None
    mark = message(old.mark_properties(0x10, 0x180), old.coverage_producer())
    assert new.span_of(mark, PARTITION) == Span(0x10, 0x100, "r1"), "up to the fork"
    assert old.span_of(message(old.mark_properties(1, 2), new.coverage_producer()), PARTITION) is None


def test_a_stranger_is_named() -> None:
    assert identity().change_of(change(producer="x"), PARTITION) == Stranger(HERE, "x")


def test_histories_and_hashes() -> None:
    text = "1\t0/100\tno recovery target specified\n\n2\t1/200\tbefore 2000-01-01\n"
    assert forks_of(text) == ((1, 0x100), (2, (1 << 32) + 0x200))
    assert forks_of("") == ()
    assert routing_of({"a": 1, "b": 2}) == routing_of({"b": 2, "a": 1}) != routing_of({"a": 1})

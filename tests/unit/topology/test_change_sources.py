"""Sources of change data, resolved: names, what is published, where rows go, and what the model refuses."""

import pytest

from kodoctl.topology.change_sources import change_sources, slot_name, sourced_grounds, verification_slot
from kodoctl.topology.names import State
from tests.unit.topology.topology_files import expanded, found_in, loaded

HEAD = "topics: {orders: {subscriptions: {s: {states: []}}}, other: {}}\n"


def with_tables(tables: str) -> str:
    return HEAD + f"sources: {{shop-db: {{database: SHOP_URL, tables: {{{tables}}}}}}}\n"


OUTBOX = "s.out: {outbox: {topic: t, payload: p}}"


def test_the_slot_is_named_by_topology_and_source() -> None:
    assert slot_name("Trade.EU", "shop-db") == "kodo_trade_eu_shop_db"
    assert verification_slot("kodo_trade_eu_shop_db") == verification_slot("kodo_trade_eu_shop_db")
    assert len({verification_slot(name) for name in ("kodo_a_b", "kodo_a_b_c", "k" * 63)}) == 3
    assert len(verification_slot("k" * 63)) < 64


@pytest.mark.parametrize(
    ("tables", "operations"),
    [
        (OUTBOX, ("insert",)),
        ("s.a: {topic: orders, deletes: ignore}, " + OUTBOX, ("insert", "update", "truncate")),
        ("s.a: {topic: orders, deletes: ignore}, s.b: {topic: other}", ("insert", "update", "delete", "truncate")),
    ],
)
def test_only_what_becomes_a_message_is_published(tables: str, operations: tuple[str, ...]) -> None:
    (source,) = change_sources(loaded(with_tables(tables)).spec)
    assert source.operations == operations
    assert source.publication == source.slot == "kodo_trade_shop_db"


def test_tables_have_a_schema_and_targets() -> None:
    spec = loaded(with_tables("s.a: {topic: orders}, s.b: {topic: nowhere}, " + OUTBOX)).spec
    (source,) = change_sources(spec)
    assert [table.parts for table in source.tables] == [("s", "a"), ("s", "b"), ("s", "out")]
    targets = {ground: [table.name for table in tables] for ground, tables in source.targets(spec).items()}
    assert targets == {"orders": ["s.a", "s.out"], "other": ["s.out"]}


def test_topics_of_a_source_are_deduplicated() -> None:
    expansion = expanded(with_tables("s.a: {topic: orders}"))
    assert sourced_grounds(expansion.topology.spec) == {"orders"}
    ready = {topic.ground: topic.resource.policies for topic in expansion.topics if topic.state is State.READY}
    assert ready["orders"]["deduplication"] is True
    assert "deduplication" not in ready["other"]


@pytest.mark.parametrize("url", ["postgresql://shop:geheim@db/shop", "host=db password=geheim", "7up"])
def test_an_address_in_the_file_is_refused_and_not_repeated(url: str) -> None:
    (finding,) = found_in(HEAD + f"sources: {{db: {{database: '{url}', tables: {{s.a: {{topic: orders}}}}}}}}\n")
    assert finding.code == "K004"
    assert "should be the NAME of an environment variable" in finding.detail
    assert "geheim" not in str(finding)


def test_a_value_that_is_no_text_is_no_variable() -> None:
    (finding,) = found_in(HEAD + "sources: {db: {database: {a: b}, tables: {s.a: {topic: orders}}}}\n")
    assert finding.code == "K004"


def test_an_environment_has_a_database_of_its_own() -> None:
    body = with_tables("s.a: {topic: orders}") + "environments: {prod: {sources: {shop-db: {database: PROD_URL}}}}\n"
    assert [one.spec.database for one in change_sources(loaded(body, "prod").spec)] == ["PROD_URL"]

"""What the schema allows at a place, in words, and what to write instead of a key that is not known there."""

import pytest

from kodoctl.topology.json_schema.file_schema import topology_schema
from kodoctl.topology.yaml.schema_hints import Path, SchemaHints, VariantStep, in_yaml

HINTS = SchemaHints(topology_schema())
SUB: Path = ("topics", "orders", "subscriptions", "billing")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("topics",), "a map such as {orders: {subscriptions: {billing: {}}}}"),
        (("topics", "orders", "levels"), "one of single, double, or a list such as [L1, L2]"),
        (("topics", "orders", "partitions"), "a whole number"),
        (("topics", "orders", "fair_by"), "a text such as uid"),
        (("defaults", "policies", "retention"), "`inherit`, or a map such as {time: 7d, size: 20GiB}"),
        (("defaults", "policies", "ttl"), "`inherit`, or a text such as 7d, or `unlimited`"),
        ((*SUB, "weights", "ready"), "a whole number from 0 to 200"),
        ((*SUB, "retrying", "delays"), "a list such as [10s, 1m, 5m]"),
        ((*SUB, "dead_letter"), "true or false, or a map such as {ttl: unlimited, partitions: 1}"),
        ((*SUB, "limits", 0, "kind"), "`rate`, or `concurrency`, or `quota`"),
        ((*SUB, "limits", 0, VariantStep("concurrency"), "limit"), "a whole number"),
        ((*SUB, "limits", 0, VariantStep("nothing"), "limit"), "something else"),
        ((*SUB, "routes", 0, "when", "at_least"), "a number"),
        ((*SUB, "routes", 0, "when", "equals"), "a text such as vip, or a number, or true or false"),
        (("nowhere",), "something else"),
    ],
)
def test_a_place_is_described_with_its_example(path: Path, words: str) -> None:
    assert HINTS.describe_expected(path) == words


@pytest.mark.parametrize(
    ("path", "key", "advice"),
    [
        ((), "topic", "did you mean 'topics'?"),
        (("topics", "orders"), "levls", "did you mean 'levels'?"),
        (("topics", "orders"), "ttl", "it belongs into `policies` or `state_policies`"),
        (("topics", "orders"), "retention", "it belongs into `policies` or `state_policies`"),
        (SUB, "delays", "it belongs into `backup` or `blocking` or `pending`"),
        (SUB, "dlq", "did you mean 'dead_letter'?"),
        ((*SUB, "retrying"), "backoff", "did you mean 'delays'?"),
        ((*SUB, "lookahead"), "quite_something", "known here: messages, size"),
        (
            (*SUB, "limits", 0, VariantStep("concurrency")),
            "quantity",
            "known here: by, in, kind, limit, overrides, scope",
        ),
        (("sinks", "warehouse"), "archive", "did you mean 'package'?"),
        (("sources", "uploads"), "archive", "a connector of Pulsar IO belongs into `io_sources`"),
    ],
)
def test_an_unknown_key_is_mended_by_spelling_by_place_or_by_another_word(path: Path, key: str, advice: str) -> None:
    assert HINTS.advise_on_key(path, key) == advice


def test_keys_of_a_place() -> None:
    assert sorted(HINTS.keys(("defaults",))) == ["partitions", "policies", "state_policies"]
    assert HINTS.subschemas(("name", "deeper")) == []


def test_the_order_is_that_of_the_models_and_of_what_an_overlay_overlays() -> None:
    assert HINTS.canonical_keys(())[:4] == ["version", "name", "formerly", "description"]
    assert HINTS.canonical_keys(("environments", "prod"))[:3] == ["production", "version", "name"]
    assert HINTS.canonical_keys(("environments", "prod", "defaults")) == ["partitions", "policies", "state_policies"]
    assert HINTS.canonical_keys(("environments",)) == HINTS.canonical_keys(("topics",)) == []
    assert HINTS.canonical_keys(("topics", "a", "subscriptions", "s", "audit"))[0] == "mode"


def test_empty_maps_are_suggested_only_where_nothing_is_needed() -> None:
    assert HINTS.all_optional(("topics", "orders"))
    assert not HINTS.all_optional(("create_tenant",))
    assert not HINTS.all_optional(("name",))


def test_values_are_shown_as_the_file_would_have_them() -> None:
    assert in_yaml({"a": [True, {"b": None}]}) == "{a: [true, {b: null}]}"

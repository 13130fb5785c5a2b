"""Help about single keys of the topology file."""

from __future__ import annotations

import pytest

from kodoctl.topology.json_schema.field_help import UnknownKeyError, first_sentence, key_help, key_paths, value_words


def test_every_key_of_the_file_has_a_meaning_and_a_value() -> None:
    paths = list(key_paths())
    assert len(paths) == len(set(paths)) > 300
    assert {"name", "defaults.partitions", "topics.NAME.subscriptions.NAME.limits.limit"} <= set(paths)
    for path in paths:
        told = key_help(path)
        assert told.meaning, path
        assert told.value, path


def test_a_key_is_told_with_its_default_its_examples_and_the_keys_below_it() -> None:
    told = key_help("topics.orders.policies.retention")
    assert told.meaning == "How long and how much acknowledged data is kept."
    assert (told.value, told.default, told.examples) == ("inherit or map", None, ("{time: 7d, size: 20GiB}",))
    assert dict(told.keys)["time"] == "Whole minutes, or unlimited"
    assert told.inherited[0] == "defaults.policies.retention"
    assert key_help("topics.a.subscriptions.b.handler_timeout").default == "30s"
    assert key_help("topics.a.backup").default == "false"
    assert (key_help("version").needed, key_help("version").default) == (True, None)


@pytest.mark.parametrize("path", ["topics.o.subscriptions.s.limits.kind", "topics.o.subscriptions.s.limits.2.kind"])
def test_items_of_a_list_need_no_number(path: str) -> None:
    told = key_help(path)
    assert told.value == "rate or concurrency or quota"
    assert all(f"{kind}: Limit of " in told.meaning for kind in ("rate", "concurrency", "quota"))
    assert told.needed


def test_an_overlay_has_the_keys_of_the_file_and_a_name_the_meaning_of_its_map() -> None:
    assert key_help("environments.prod.defaults.partitions").value == "whole number"
    assert key_help("namespace_grants.planner").meaning == "Permissions on the whole namespace, by role."
    assert "fair_by" in dict(key_help("topics.orders").keys)
    switch = key_help("environments.prod.production")
    assert (switch.value, switch.needed) == ("true, false", False)
    assert "production" in dict(key_help("environments.prod").keys)
    assert not key_help("environments.prod.sources.db.database").needed, "the file below has it"
    assert key_help("sources.db.database").needed


def test_a_key_that_each_form_of_a_limit_explains_has_all_of_these_meanings() -> None:
    told = key_help("topics.a.subscriptions.b.limits.limit").meaning
    assert told == "rate: The rate. concurrency: Handlers at once. quota: Messages per window: s, m, h or d."
    assert key_help("topics.a.subscriptions.b.limits.by").meaning.startswith("The message property")
    assert "\n" not in key_help("topics.a.subscriptions.b.limits.kind").meaning


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("topcs.orders", "no key 'topcs' at the top of the file; did you mean 'topics'?"),
        ("topics.orders.polices", "no key 'polices' at topics.orders; did you mean 'policies'?"),
        ("max_message_size", "it is one at defaults.policies.max_message_size, defaults.state_policies"),
        ("retention", "topics.NAME.subscriptions.NAME.audit.retention, and 1 more"),
        ("mask", "it is one at payloads.mask, topics.NAME.payloads.mask"),
        ("defaults.zzz", "no key 'zzz' at defaults; keys there: partitions, policies, state_policies"),
        ("name.x", "no key 'x' at name; nothing is below it"),
        ("environments.prod.version", "no key 'version' at environments.prod"),
    ],
)
def test_an_unknown_key_is_told_with_what_is_meant(path: str, text: str) -> None:
    with pytest.raises(UnknownKeyError) as problem:
        key_help(path)
    assert text in str(problem.value)


def test_values_are_written_as_in_the_file() -> None:
    assert value_words({"a": [True, 1, "x"], "b": {}}) == "{a: [true, 1, x], b: {}}"
    assert first_sentence("One. Two.") == "One"
    assert first_sentence("One; two.") == "One"

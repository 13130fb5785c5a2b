"""Tests of single values by team rules: paths, operands, and whether a value holds."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.topology.model.policies import Retention
from kodoctl.topology.team_rules.field_tests import CompiledTest, compile_test, shown_value
from kodoctl.topology.team_rules.rule_fields import UnknownFieldError, field_type, is_list
from kodoctl.topology.team_rules.rules_model import FieldTest
from kodoctl.topology.units import Duration, Rate, Size, SizeRate

TIME = "policies.retention.time"
SECOND = Duration(1_000)


def compiled(path: str, *, of: str = "topics", **tests: Any) -> CompiledTest:
    found, problems = compile_test(of, path, FieldTest.model_validate(tests))
    assert not problems, problems
    assert found is not None
    return found


def problem(path: str, *, of: str = "topics", **tests: Any) -> tuple[str, str]:
    found, problems = compile_test(of, path, FieldTest.model_validate(tests))
    assert found is None
    (one,) = problems
    return one


@pytest.mark.parametrize(
    ("of", "path", "has_list"),
    [
        ("topologies", "owners", True),
        ("topologies", "namespace_policies.auto_topic_creation", False),
        ("topologies", "labels.cost-center", False),
        ("topics", "fed_by", True),
        ("topics", "levels", True),
        ("topics", "policies.persistence.write_quorum", False),
        ("topics", "message_properties.uid.with.dots", False),
        ("subscriptions", "dead_letter.ttl", False),
        ("subscriptions", "retrying.delays", True),
        ("pulsar_topics", "state", False),
    ],
)
def test_fields_are_the_keys_of_the_file(of: str, path: str, has_list: bool) -> None:
    assert is_list(field_type(of, path)) is has_list


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("ownrs", "topics has no 'ownrs'; did you mean 'owners'?"),
        ("retention", "topics has no 'retention'; did you mean 'policies.retention'?"),
        ("policies.retention.tim", "`policies.retention` has no 'tim'; did you mean 'time'?"),
        ("policies.retention.xyz", "`policies.retention` has no 'xyz'; known there: time, size"),
        ("description.size", "`description` has no parts: write it without `.size`"),
    ],
)
def test_an_unknown_field_is_named_with_what_is_known(path: str, said: str) -> None:
    with pytest.raises(UnknownFieldError) as found:
        field_type("topics", path)
    assert str(found.value) == said
    assert problem(path, present=True) == ("", said)


@pytest.mark.parametrize(
    ("path", "tests", "operator", "said"),
    [
        (TIME, {"at_least": 3}, "at_least", "3 has no unit: write one of ms, s, m, h, d"),
        (TIME, {"equals": "90s"}, "equals", "cannot be stored: Pulsar counts in whole minutes here"),
        ("name", {"at_least": 3}, "at_least", "compares numbers, durations, sizes and rates, and this is none"),
        ("owners", {"at_most": "one"}, "at_most", "of a list is a number of entries"),
        ("owners", {"at_most": True}, "at_most", "of a list is a number of entries"),
        ("owners", {"at_most": -1}, "at_most", "of a list is a number of entries"),
        ("owners", {"in": []}, "in", "should hold at least one entry"),
        ("owners", {"in": [4]}, "in", "4 is no value of it"),
        ("compression", {"in": ["gzip"]}, "in", "input should be 'lz4', 'zlib', 'zstd', 'snappy' or 'none'"),
        ("compression", {"includes": ["lz4"]}, "includes", "asks for entries of a list, and this is none"),
        ("compression", {"matches": "(a+)+"}, "matches", "repeats what may also follow the repetition"),
        ("policies.ttl", {"at_most": "inherit"}, "at_most", "and 'inherit' is none"),
        ("partitions", {"at_least": 4, "at_most": 2}, "at_most", "can never hold together with `at_least`: 4 is more"),
        ("partitions", {"equals": 4, "at_most": 2}, "equals", "decides by itself: remove `at_most`"),
        ("compression", {"in": ["lz4"], "not_in": ["lz4", "zstd"]}, "not_in", "can never hold together with `in`"),
    ],
)
def test_a_test_that_cannot_be_meant_is_refused(path: str, tests: dict[str, Any], operator: str, said: str) -> None:
    found, text = problem(path, **tests)
    assert found == operator
    assert said in text


@pytest.mark.parametrize(
    ("path", "tests", "value", "said"),
    [
        ("owners", {"present": True}, ("a",), ""),
        ("owners", {"present": True}, None, "it is needed"),
        ("replication", {"present": False}, None, ""),
        ("replication", {"present": False}, ("east",), "it must not be set"),
        ("compression", {"equals": "zstd"}, "zstd", ""),
        ("compression", {"equals": "zstd"}, "lz4", "should be zstd"),
        ("compression", {"equals": "zstd"}, None, "should be zstd"),
        ("compression", {"in": ["zstd", "lz4"]}, "none", "should be one of zstd, lz4"),
        ("compression", {"in": ["zstd"]}, "none", "should be zstd"),
        ("owners", {"in": ["a", "b"]}, ("a", "c"), "should be one of a, b"),
        ("owners", {"in": ["a", "b"]}, ("a", "b"), ""),
        ("compression", {"not_in": ["none"]}, "none", "must not be none"),
        ("compression", {"not_in": ["none"]}, None, ""),
        ("owners", {"not_in": ["x"]}, ("a", "x"), "must not be x"),
        ("replication", {"includes": ["east"]}, ("west",), "should have east"),
        ("replication", {"includes": ["east"]}, ("west", "east"), ""),
        (TIME, {"at_least": "3d", "at_most": "90d"}, Duration(86_400_000), "should be at least 3d"),
        (TIME, {"at_least": "3d", "at_most": "90d"}, "unlimited", "should be at most 90d"),
        (TIME, {"at_least": "3d", "at_most": "90d"}, Duration(4 * 86_400_000), ""),
        ("policies.retention.size", {"at_most": "1GiB"}, Size(2 << 30), "should be at most 1GiB"),
        ("policies.publish_rate.messages", {"at_most": "100/s"}, Rate(200, SECOND), "should be at most 100/s"),
        ("policies.publish_rate.size", {"at_most": "1MiB/s"}, SizeRate(Size(1 << 20)), ""),
        ("fed_by", {"at_most": 1}, ("a", "b"), "should have at most 1 entry"),
        ("fed_by", {"at_least": 2}, ("a",), "should have at least 2 entries"),
        ("name", {"matches": "[a-z]+"}, "Orders", "should match [a-z]+"),
        ("name", {"matches": "[a-z]+"}, "orders", ""),
        ("owners", {"matches": "[a-z]+"}, ("a", "B"), "should match [a-z]+"),
        ("backup", {"matches": "true"}, True, ""),
        ("partitions", {"at_most": 4, "optional": True}, None, ""),
        ("partitions", {"at_most": 4, "not_in": [3]}, None, "should be at most 4"),
        (TIME, {"at_least": "3d", "not_in": ["1h"]}, Duration(3_600_000), "must not be 1h; should be at least 3d"),
    ],
)
def test_a_value_holds_or_the_words_say_what_it_should_be(
    path: str, tests: dict[str, Any], value: Any, said: str
) -> None:
    assert compiled(path, **tests).failure(value) == said


def test_a_word_in_place_of_a_number_is_not_compared() -> None:
    test = compiled("concurrency", of="subscriptions", at_least=4)
    assert test.failure("adaptive") == "should be at least 4"
    assert test.failure(4) == ""


def test_values_are_shown_as_the_file_writes_them() -> None:
    assert shown_value(Retention.model_validate({"time": "7d", "size": "unlimited"})) == "{time: 7d, size: unlimited}"
    assert shown_value(("a", "b")) == "[a, b]"
    assert shown_value(True) == "true"

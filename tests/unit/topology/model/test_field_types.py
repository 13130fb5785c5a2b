"""Values of single fields that load, and what they become."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from kodoctl.topology.model.field_types import FileModel
from kodoctl.topology.model.platform import Platform
from kodoctl.topology.model.policies import to_json
from kodoctl.topology.model.subscription import SlotRange
from kodoctl.topology.model.topology import Topology
from kodoctl.topology.team_rules.rules_model import RulesFile
from tests.unit.topology.topology_files import loaded


@pytest.mark.parametrize(
    ("policy", "written", "value"),
    [
        ("publish_rate", "{messages: unlimited}", {"messages": "unlimited", "size": "unlimited"}),
        ("publish_rate", "{messages: 120/m, size: 1MiB/s}", {"messages": "2/s", "size": "1MiB/s"}),
        ("retention", "{time: 1.5h, size: 1.5GiB}", {"time": "90m", "size": "1536MiB"}),
        ("ttl", "604800s", "7d"),
        ("ttl", "inherit", "inherit"),
        ("max_producers", "unlimited", "unlimited"),
        ("persistence", "{mark_delete_rate: 1}", {"mark_delete_rate": 1.0}),
        ("replication", "[east]", ["east"]),
    ],
)
def test_a_policy_is_read_in_its_shortest_exact_form(policy: str, written: str, value: Any) -> None:
    spec = loaded(f"topics: {{}}\ndefaults: {{policies: {{{policy}: {written}}}}}\n").spec
    assert to_json(getattr(spec.defaults.policies, policy)) == value


@pytest.mark.parametrize("share", ["25%", "0.5%", "100%"])
def test_a_share_is_a_percentage(share: str) -> None:
    spec = loaded(f"topics: {{a: {{subscriptions: {{s: {{isolate: {{share: {share}}}}}}}}}}}\n").spec
    assert spec.topics["a"].subscriptions["s"].isolate.share == share  # type: ignore[union-attr]


def test_names_that_look_like_numbers_are_texts_as_keys() -> None:
    spec = loaded(
        "topics: {2024: {message_properties: {1: optional}, subscriptions: {s: {tenant_weights: {42: 3}}}}}\n"
    ).spec
    assert list(spec.topics) == ["2024"]
    assert spec.topics["2024"].subscriptions["s"].tenant_weights == {"42": 3}


def _models(base: type[FileModel]) -> Iterator[type[FileModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def test_no_field_that_may_be_left_out_takes_null() -> None:
    assert {Topology, Platform, RulesFile} <= set(_models(FileModel))
    fields = [
        (model, info.alias or name)
        for model in _models(FileModel)
        for name, info in model.model_fields.items()
        if info.annotation is not Any  # in FieldTest, which refuses null itself
    ]
    assert len(fields) > 150
    for model, name in fields:
        with pytest.raises(ValidationError) as found:
            model.of_file({name: None})
        assert any(one["loc"][:1] == (name,) for one in found.value.errors()), (model, name)
    assert SlotRange(max=None) == SlotRange(), "in a program it stands for a field that is left out"

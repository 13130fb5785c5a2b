"""Maps that a file leaves out are made without a validator of their own, and are what an empty map is read as."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kodoctl.topology.model.field_types import FileModel
from kodoctl.topology.model.subscription import ErrorText
from kodoctl.topology.model.topology import Audit, DeadLetter


def _models(base: type[FileModel] = FileModel) -> Iterator[type[FileModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


LEFT_OUT = {
    f"{model.__name__}.{name}": field.get_default(call_default_factory=True, validated_data={})
    for model in _models()
    for name, field in model.model_fields.items()
    if field.default_factory is not None
}
MAPS = {name: value for name, value in LEFT_OUT.items() if isinstance(value, FileModel)}


@pytest.mark.parametrize("name", MAPS)
def test_a_map_that_is_left_out_is_an_empty_one(name: str) -> None:
    assert MAPS[name] == type(MAPS[name]).model_validate({})


@pytest.mark.parametrize("model", [DeadLetter, Audit, ErrorText])
def test_settings_switched_on_with_true_are_an_empty_map(model: type[FileModel]) -> None:
    assert model.model_construct() == model.model_validate({})


def test_lint_builds_the_validators_of_the_parts_that_a_file_has() -> None:
    program = (
        "import json, sys\n"
        "from kodoctl.topology.lint.linter import lint\n"
        "from kodoctl.topology.load import source_of\n"
        "lint([source_of(sys.argv[1].encode(), 'a.yaml')])\n"
        "from kodoctl.topology.model.field_types import FileModel\n"
        "def below(base):\n"
        "    return [model for one in base.__subclasses__() for model in (one, *below(one))]\n"
        "print(json.dumps(sorted({one.__name__ for one in below(FileModel) if one.__pydantic_complete__})))\n"
    )
    text = "version: 1\nname: a\ntenant: t\nnamespace: n\ntopics: {o: {subscriptions: {s: {audit: true}}}}\n"
    ran = subprocess.run([sys.executable, "-c", program, text], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == ["GroundTopic", "Subscription", "Topology"]

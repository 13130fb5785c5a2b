"""The JSON Schema of rules files, generated from their models, for editors and for hints in errors."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Final

from kodoctl.topology.json_schema.file_schema import schema_of_model
from kodoctl.topology.team_rules.rules_model import RulesFile

if TYPE_CHECKING:
    from kodoctl.topology.json_schema.overlays import JsonObject

SCHEMA_ID: Final = "urn:kodoctl:schema:kodoctl-rules.v1"  # a name, no address: nothing is fetched


@cache
def rules_schema() -> JsonObject:
    """JSON Schema (draft 2020-12) of rules files, version 1. Computed once; callers must not change it."""
    schema = schema_of_model(RulesFile, SCHEMA_ID)
    plain = [{"type": kind} for kind in ("string", "number", "boolean", "array")]
    for key in ("where", "require"):  # a value in place of a test is short for `equals`
        tests = schema["$defs"]["TeamRule"]["properties"][key]
        tests["additionalProperties"] = {"anyOf": [tests["additionalProperties"], *plain]}
    return schema


def rules_schema_text() -> str:
    """The schema as indented JSON without the last line end."""
    return json.dumps(rules_schema(), indent=2, ensure_ascii=False)

"""The JSON Schema of the topology file, generated from the models, for editors and `kodoctl schema`."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import warnings
from functools import cache
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from kodoctl.topology.json_schema.editor_help import add_editor_help
from kodoctl.topology.json_schema.overlays import JsonObject, add_overlays
from kodoctl.topology.model.policies import TopicPolicies
from kodoctl.topology.model.topology import Topology
from kodoctl.topology.units import Duration, Size

SCHEMA_ID: Final = "urn:kodoctl:schema:topology.v1"  # a name, no address: nothing is fetched


@cache
def topology_schema() -> JsonObject:
    """JSON Schema (draft 2020-12) of format version 1, with a description and examples on every field. Computed once;
    callers must not change it.
    """
    schema = schema_of_model(Topology, SCHEMA_ID)
    add_overlays(schema)
    return schema


def schema_of_model(model: type[BaseModel], schema_id: str) -> JsonObject:
    """JSON Schema (draft 2020-12) of a model of a file, with the docstrings of its fields."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # defaults with units are texts in the schema's examples, not JSON numbers
        schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    _forbid_null(schema)
    add_editor_help(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schema_id, **schema}


def schema_text() -> str:
    """The schema as indented JSON without the last line end, as schemas/topology.v1.json and `kodoctl schema` have it."""
    return json.dumps(topology_schema(), indent=2, ensure_ascii=False)


def _forbid_null(schema: Any) -> None:
    """Removes null from the schema, in place: None in a model means no key, and only overlays have null in a file."""
    if isinstance(schema, list):
        for item in schema:
            _forbid_null(item)
    elif isinstance(schema, dict):
        if schema.get("default", "") is None:
            del schema["default"]
        options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
        if len(options) == 1:
            del schema["anyOf"]
            schema.update({**options[0], **schema})
        elif options:
            schema["anyOf"] = options
        for value in list(schema.values()):
            _forbid_null(value)


_UNITS: Final = (Duration, Size)


class _Generator(GenerateJsonSchema):
    """Adds the docstrings below the fields as descriptions. Models do not read them at import, because parsing the
    sources costs 50 ms a start.
    """

    def sort(self, value: JsonObject, parent_key: str | None = None) -> JsonObject:
        """Keeps the order of the models: examples read best in the order of the source."""
        del parent_key
        return value

    def model_schema(self, schema: Any) -> JsonObject:
        result: JsonObject = super().model_schema(schema)
        if issubclass(schema["cls"], TopicPolicies) and schema["cls"] is not TopicPolicies:
            own = schema["cls"].__annotations__  # what sets the map apart comes before the policies it takes as well
            result["properties"] = dict(sorted(result["properties"].items(), key=lambda item: item[0] not in own))
        documents = attribute_docs(schema["cls"])
        for name, info in schema["cls"].model_fields.items():
            prop = result["properties"][info.alias or name]
            prop["description"] = documents[name]
            prop.pop("title", None)
            if isinstance(info.default, _UNITS):  # pydantic leaves out defaults that are no JSON
                prop["default"] = str(info.default)
            elif isinstance(info.default, tuple) and any(isinstance(one, _UNITS) for one in info.default):
                prop["default"] = [str(one) for one in info.default]
        return result


@cache
def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Name of a field -> the docstring below it in the source, base classes included."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, BaseModel) or cls.__module__.startswith("pydantic"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found

"""The JSON Schema of the topology file, generated from the models: what editors, `kodoctl schema` and error texts use."""

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

from kodoctl.topology.model import Topology
from kodoctl.topology.policies import TopicPolicies
from kodoctl.topology.schema_patch import add_overlays

SCHEMA_ID: Final = "https://kodoctl.dev/schemas/topology.v1.json"
JsonObject = dict[str, Any]


@cache
def topology_schema() -> JsonObject:
    """JSON Schema (draft 2020-12) of format version 1, with a description and examples on every field."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # defaults with units are texts in the schema's examples, not JSON numbers
        schema = Topology.model_json_schema(by_alias=True, schema_generator=_Generator)
    _forbid_null(schema)
    add_overlays(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}


def schema_text() -> str:
    """The schema as it is checked in (schemas/topology.v1.json) and printed, without the last line's end."""
    return json.dumps(topology_schema(), indent=2, ensure_ascii=False)


def _forbid_null(schema: Any) -> None:
    """A field that may be left out is None in Python; in the file, null stands only in overlays."""
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


class _Generator(GenerateJsonSchema):
    """Adds the attribute docstrings, which are not read at import because parsing sources costs 50 ms a start."""

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
        return result


@cache
def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Field name -> the docstring under it, base classes included."""
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


def subschemas(path: tuple[str | int, ...]) -> list[JsonObject]:
    """The alternatives that the schema allows at `path` (keys and list positions), `$ref`s resolved; [] if none."""
    root = topology_schema()
    here = _alternatives(root, root)
    for step in path:
        below: list[JsonObject] = []
        for schema in here:
            if isinstance(step, int):
                below.append(schema.get("items", {}))
            elif step in schema.get("properties", {}):
                below.append(schema["properties"][step])
            elif isinstance(schema.get("additionalProperties"), dict):
                below.append(schema["additionalProperties"])
        here = [alternative for schema in below for alternative in _alternatives(schema, root)]
    return here


def _alternatives(schema: JsonObject, root: JsonObject) -> list[JsonObject]:
    if "$ref" in schema:
        return _alternatives(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return [found for option in schema[key] for found in _alternatives(option, root)]
    return [schema]


def known_keys(path: tuple[str | int, ...]) -> list[str]:
    """The keys a map at `path` may have."""
    return sorted({key for schema in subschemas(path) for key in schema.get("properties", {})})


def all_optional(path: tuple[str | int, ...]) -> bool:
    """Whether `{}` is a value for `path`: a map none of whose keys is needed."""
    return any(schema.get("properties") and not schema.get("required") for schema in subschemas(path))


def describe_expected(path: tuple[str | int, ...]) -> str:
    """What a value at `path` may be, in words: "true or false, or a map"."""
    words: list[str] = []
    for schema in subschemas(path):
        word = _describe(schema)
        if word not in words:
            words.append(word)
    return ", or ".join(words) if words else "something else"


def _describe(schema: JsonObject) -> str:
    if "const" in schema:
        return f"`{_as_yaml(schema['const'])}`"
    if "enum" in schema:
        return "one of " + ", ".join(_as_yaml(value) for value in schema["enum"])
    match schema.get("type"):
        case "boolean":
            return "true or false"
        case "integer":
            low, high = schema.get("minimum"), schema.get("maximum")
            bounds = f" from {low} to {high}" if low is not None and high is not None and high < 1 << 20 else ""
            return f"a whole number{bounds}"
        case "number":
            return "a number"
        case "string":
            example = schema.get("examples", [None])[0]
            return f"a text such as {example}" if example else "a text (quote it if it looks like a number)"
        case "array":
            return "a list"
        case _:
            return "a map"


def _as_yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

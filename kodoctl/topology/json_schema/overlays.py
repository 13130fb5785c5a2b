"""Overlay form of the topology schema, by which editors complete `environments`: every key may be left out, null
deletes.

Leaves refer to the property that they overlay (`#/$defs/Subscription/properties/type`) and repeat its description
alone: editors show none through a reference.
"""

from __future__ import annotations

from typing import Any, Final

JsonObject = dict[str, Any]
PREFIX: Final = "Patch"
_NULL: Final[JsonObject] = {"type": "null"}
_NOT_IN_OVERLAYS: Final = frozenset({"name", "version", "formerly", "environments"})
_PRODUCTION: Final[JsonObject] = {
    "type": "boolean",
    "description": "Whether this environment is production: switches the stricter rules on. Only in overlays.",
    "examples": [True],
}


def add_overlays(schema: JsonObject) -> None:
    """Adds overlay forms to the definitions of a topology schema, in place, and gives `environments` that form."""
    patches = _Patches(schema)
    root = patches.of_map("Topology", schema, "#")
    properties = {name: prop for name, prop in root["properties"].items() if name not in _NOT_IN_OVERLAYS}
    patches.found["Topology"] = {**root, "properties": {"production": _PRODUCTION, **properties}}
    schema["$defs"] |= {f"{PREFIX}{name}": patch for name, patch in sorted(patches.found.items())}
    overlay = {"type": "object", "allOf": [{"$ref": f"#/$defs/{PREFIX}Topology"}]}
    schema["properties"]["environments"]["additionalProperties"] = overlay


def overlay_root(schema: JsonObject) -> JsonObject:
    """A map with the keys that an overlay may have: those of the file, with their schemas there, and `production`. None
    of them is required. `schema`: a topology schema with overlay forms.
    """
    patch = schema["$defs"][f"{PREFIX}Topology"]["properties"]
    return {"properties": {name: schema["properties"].get(name, prop) for name, prop in patch.items()}}


class _Patches:
    """Overlay forms of the maps that were met so far, by name of their definition."""

    def __init__(self, schema: JsonObject) -> None:
        self.definitions: JsonObject = schema["$defs"]
        self.found: dict[str, JsonObject] = {}

    def of_map(self, name: str, schema: JsonObject, pointer: str) -> JsonObject:
        """Overlay form of a map with known keys. `pointer`: JSON pointer of the map's schema."""
        properties = {
            key: {
                "description": prop["description"],
                "anyOf": [*self.of_value(prop, f"{pointer}/properties/{key}"), _NULL],
            }
            for key, prop in schema["properties"].items()
        }
        return {
            "type": "object",
            "description": f"Overlay: {name}.",
            "additionalProperties": False,
            "properties": properties,
        }

    def of_value(self, schema: JsonObject, pointer: str) -> list[JsonObject]:
        """Schemas of a value in an overlay: the overlay forms of the maps that it may be, and a reference to its own
        schema unless it can only be a map.
        """
        options = [option for key in ("anyOf", "oneOf") for option in schema.get(key, [])] or [schema]
        patches = [patch for option in options if (patch := self.of_option(option, pointer)) is not None]
        return patches if len(patches) == len(options) else [*patches, {"$ref": pointer}]

    def of_option(self, schema: JsonObject, pointer: str) -> JsonObject | None:
        """Overlay form of a value that is a map; None for any other value, which an overlay can only replace."""
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            if name not in self.found:
                self.found[name] = {}  # a map that contains itself would meet its own name here
                self.found[name] = self.of_map(name, self.definitions[name], f"#/$defs/{name}")
            return {"$ref": f"#/$defs/{PREFIX}{name}"}
        below = schema.get("additionalProperties")
        if isinstance(below, dict):
            options = self.of_value(below, f"{pointer}/additionalProperties")
            return {"type": "object", "additionalProperties": {"anyOf": [*options, _NULL]}}
        return None

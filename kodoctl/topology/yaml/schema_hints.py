"""Hints from the JSON Schema on a place of the file: its possible content as text for errors, the order of its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kodoctl.topology.json_schema.overlays import JsonObject


class VariantStep(str):
    """Step of a path that chooses one alternative of the schema: its text is the `kind`, such as "rate".

    It follows the index of a list entry that has a `kind`, and leads no deeper into the file.
    """

    __slots__ = ()


Path = tuple[str | int, ...]
_OTHER_WORDS: Final = {
    "dlq": "dead_letter", "deadletter": "dead_letter", "backoff": "delays", "max_attempts": "attempts", "roles": "workers",
    "message_ttl": "ttl", "expiry": "ttl", "priority": "levels", "env": "environments", "schema": "payload",
    "archive": "package", "jar": "package", "topic": "output", "user_config": "config", "max_message_retries": "retries",
}  # fmt: skip
_REFUSED_WORDS: Final = {
    "chunking": "messages are not sent in chunks, because a message whose connection broke between two chunks reaches"
    " nobody: write `compression`, or send a claim check (docs/how-to/compression.md)",
    **dict.fromkeys(
        ("defer_timeout", "drain_timeout", "max_deferred"), "it is a setting of workers: write it in kodo-consumer.toml"
    ),
}
_LONGEST_EXAMPLE: Final = 60
_LONGEST_WORD: Final = 100  # a longer text resembles no word, and comparing one of megabytes takes a second


@dataclass(frozen=True)
class SchemaHints:
    """Hints from the JSON Schema of the file on places in it, which are paths of keys and list indices."""

    schema: JsonObject = field(repr=False)

    def subschemas(self, path: Path) -> list[JsonObject]:
        """Alternatives that the schema allows at `path`, with `$ref` resolved; [] if the schema does not know the
        path.
        """
        return [alternative for schema in self._declared_schemas(path) for alternative in self._alternatives(schema)]

    def _declared_schemas(self, path: Path) -> list[JsonObject]:
        """Schemas at `path` as declared: with examples, and before alternatives and references are resolved."""
        here = [self.schema]
        for step in path:
            above = [alternative for schema in here for alternative in self._alternatives(schema)]
            if isinstance(step, VariantStep):
                here = [one for one in above if one.get("properties", {}).get("kind", {}).get("const") == step]
                continue
            here = []
            for schema in above:
                if isinstance(step, int):
                    here.append(schema.get("items", {}))
                elif step in schema.get("properties", {}):
                    here.append(schema["properties"][step])
                elif isinstance(schema.get("additionalProperties"), dict):
                    here.append(schema["additionalProperties"])
        return here

    def _alternatives(self, schema: JsonObject) -> list[JsonObject]:
        if "$ref" in schema:
            return self._alternatives(self.schema["$defs"][schema["$ref"].rsplit("/", 1)[1]])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return [found for option in schema[key] for found in self._alternatives(option)]
        return [schema]

    def keys(self, path: Path) -> list[str]:
        """The keys a map at `path` may have, in the order of the schema."""
        return list(dict.fromkeys(key for schema in self.subschemas(path) for key in schema.get("properties", {})))

    def canonical_keys(self, path: Path) -> list[str]:
        """Keys that a map at `path` may have, in canonical order. In an overlay, below `environments`: the keys of the
        map which the overlay changes; at its top `production` is the first.
        """
        if path[:1] != ("environments",) or len(path) < 2:
            return self.keys(path)
        return [*(["production"] if len(path) == 2 else []), *self.keys(path[2:])]

    def advise_on_key(self, path: Path, key: str) -> str:
        """Advice on an unknown `key` in the map at `path`: a similar key, a place where it belongs, the reason why
        there is no such key, or all known keys.
        """
        if (why := _REFUSED_WORDS.get(key.lower())) is not None:
            return why
        if path[:1] == ("sources",) and key in ("archive", "package"):
            return "a connector of Pulsar IO belongs into `io_sources`"
        known = sorted(self.keys(path))
        spelled = get_close_matches(key, known, n=1, cutoff=0.8)
        inside = [one for one in known if key in self.keys((*path, one))]
        other = [word for word in (_OTHER_WORDS.get(key.lower()),) if word in known]
        alike = get_close_matches(key, known, n=1, cutoff=0.6)
        if spelled or (not inside and (other or alike)):
            return f"did you mean {[*spelled, *other, *alike][0]!r}?"
        if inside:
            return f"it belongs into {' or '.join(f'`{one}`' for one in inside[:3])}"
        return f"known here: {', '.join(known)}"

    def all_optional(self, path: Path) -> bool:
        """True if `path` takes a map with certain keys, none of them required: `{}` is a valid value then. False for a
        map whose keys the user chooses.
        """
        return any(schema.get("properties") and not schema.get("required") for schema in self.subschemas(path))

    def near_word(self, path: Path, value: object) -> str:
        """`; did you mean 'double'?` if the value resembles a word that is allowed at `path`, else ""."""
        words = [one for schema in self.subschemas(path) for one in (*schema.get("enum", ()), schema.get("const"))]
        return did_you_mean(value, [one for one in words if isinstance(one, str)])

    def describe_expected(self, path: Path) -> str:
        """Text about the values allowed at `path`, such as "true or false, or a map such as {ttl: unlimited}"."""
        examples = [example for schema in self._declared_schemas(path) for example in schema.get("examples", [])]
        words = list(dict.fromkeys(_describe(schema, examples) for schema in self.subschemas(path)))
        if "a number" in words:
            words = [word for word in words if word != "a whole number"]
        return ", or ".join(words) if words else "something else"


def did_you_mean(value: object, words: Sequence[str]) -> str:
    """`; did you mean 'double'?` if the value is a text that resembles one of the words, else ""."""
    near = get_close_matches(value, words, 1, 0.7) if isinstance(value, str) and len(value) <= _LONGEST_WORD else []
    return f"; did you mean {near[0]!r}?" if near else ""


def _describe(schema: JsonObject, examples: list[Any]) -> str:
    if "const" in schema:
        return f"`{in_yaml(schema['const'])}`"
    if "enum" in schema:
        return "one of " + ", ".join(map(in_yaml, schema["enum"]))
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
            texts = [*schema.get("examples", []), *(one for one in examples if isinstance(one, str))]
            return f"a text such as {texts[0]}" if texts else "a text (quote it if it looks like a number)"
        case "array":
            return "a list" + _such_as(examples, list)
        case _:
            return "a map" + _such_as(examples, dict)


def _such_as(examples: list[Any], kind: type) -> str:
    shown = next((in_yaml(one) for one in examples if isinstance(one, kind)), "")
    return f" such as {shown}" if 0 < len(shown) <= _LONGEST_EXAMPLE else ""


def in_yaml(value: Any) -> str:
    """A JSON value on one line of YAML, for people: texts have no quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {in_yaml(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_yaml, value)) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)

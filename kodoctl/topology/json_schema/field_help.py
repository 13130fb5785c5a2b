"""Help about one key of the topology file, read from its JSON Schema: meaning, value, default, examples, keys below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from kodoctl.topology.json_schema.file_schema import topology_schema
from kodoctl.topology.json_schema.overlays import overlay_root
from kodoctl.topology.policy_layers import inherited_from

if TYPE_CHECKING:
    from kodoctl.topology.json_schema.overlays import JsonObject

NAME: Final = "NAME"
"""Stands in paths for the name of a topic, a subscription, a role or a tenant."""
_DEEPEST: Final = 8  # keys of a path; the file is not deeper


@dataclass(frozen=True, slots=True)
class KeyHelp:
    """Help about a key. `value`: its type in words; `default`: as the file writes it, None: there is none, or the key
    is `needed`; `keys`: (name, first sentence) of the keys below it; `inherited`: places whose value applies if the key
    is left out, nearest first.
    """

    path: str
    meaning: str
    value: str
    needed: bool
    default: str | None
    examples: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    inherited: tuple[str, ...]


class UnknownKeyError(ValueError):
    """No key has this path. The text says which part is unknown, and what is known there."""


def key_help(path: str) -> KeyHelp:
    """Help about the key of a path such as `topics.orders.policies.retention`. Names of topics, subscriptions and other
    objects may be any word without a dot: for a name with a dot, write NAME. Numbers of items of lists may be left out.
    In an overlay (`environments.prod.…`) no key is needed. Raises UnknownKeyError.
    """
    schema = topology_schema()
    words = path.split(".")
    overlay = words[:2] if words[0] == "environments" and len(words) > 2 else []
    words = words[len(overlay) :]
    root = overlay_root(schema) if overlay else schema
    needed, meaning, below, here, parents = False, "", [root], [root], [root]
    for index, word in enumerate(words):
        here = here if word.isdecimal() else list(_items(here, schema))
        parents = [one for one in here if _child(one, word)]
        if not parents:
            raise UnknownKeyError(_unknown([*overlay, *words[:index]], word, here, schema))
        needed = not overlay and any(word in one.get("required", ()) for one in parents)
        below = [child for one in parents for child in _child(one, word)]
        meaning = str(below[0].get("description", "")).strip() or meaning  # a name in a map has the map's
        here = [option for child in below for option in _options(child, schema)]
    prop = below[0]
    children: dict[str, JsonObject] = {}
    for one in _items(here, schema):
        children = {**one.get("properties", {}), **children}
    return KeyHelp(
        path,
        _meanings_of_forms(words[-1], parents) or meaning,
        " or ".join(dict.fromkeys(type_words(child, schema) for child in below)),
        needed,
        value_words(prop["default"]) if "default" in prop and not needed else None,
        tuple(map(value_words, prop.get("examples", ()))),
        tuple((name, first_sentence(str(child.get("description", "")))) for name, child in children.items()),
        inherited_from(words),
    )


def _meanings_of_forms(key: str, forms: Sequence[JsonObject]) -> str:
    """The meaning of each value of a key that chooses between forms of a map, such as `kind` of a limit, or of a key
    that each form explains in other words, such as `limit`; "" for any other key.
    """
    kinds = [one.get("properties", {}).get("kind", {}).get("const") for one in forms]
    if len(forms) < 2 or None in kinds:
        return ""
    described = [one if key == "kind" else one["properties"][key] for one in forms]
    texts = [" ".join(one["description"].split()) for one in described]  # docstrings have lines
    if len({*texts}) < len(texts):  # "As for a rate."
        return ""
    return " ".join(f"{kind}: {text}" for kind, text in zip(kinds, texts, strict=True))


def _unknown(before: Sequence[str], word: str, here: Sequence[JsonObject], schema: JsonObject) -> str:
    """Text of the error for an unknown key, with close keys, or with the paths of keys of that name elsewhere."""
    known = [name for one in _items(here, schema) for name in one.get("properties", {})]
    place = f"at {'.'.join(before)}" if before else "at the top of the file"
    if close := get_close_matches(word, known, 1):
        return f"no key {word!r} {place}; did you mean {close[0]!r}?"
    if elsewhere := sorted(path for path in key_paths() if path.rpartition(".")[2] == word):
        more = f", and {len(elsewhere) - 6} more" if len(elsewhere) > 6 else ""
        return f"no key {word!r} {place}; it is one at {', '.join(elsewhere[:6])}{more}"
    return f"no key {word!r} {place}; " + (f"keys there: {', '.join(known)}" if known else "nothing is below it")


def key_paths() -> Iterator[str]:
    """Yields the path of every key of the file, with `NAME` for names, without those of overlays."""
    schema = topology_schema()

    def below(prefix: str, depth: int, options: Sequence[JsonObject]) -> Iterator[str]:
        for one in _items(options, schema):
            names = {**one.get("properties", {})}
            if isinstance(one.get("additionalProperties"), dict):
                names[NAME] = one["additionalProperties"]
            for name, child in names.items():
                path = f"{prefix}{name}"
                if name != NAME:
                    yield path
                if depth < _DEEPEST and path != "environments":
                    yield from below(f"{path}.", depth + 1, _options(child, schema))

    yield from dict.fromkeys(below("", 0, [schema]))


def _child(schema: JsonObject, word: str) -> list[JsonObject]:
    """Schema of the value below `word`: of a key, of an item with that number, or of any name of a map."""
    if word in schema.get("properties", {}):
        return [schema["properties"][word]]
    if word.isdecimal() and isinstance(schema.get("items"), dict):
        return [schema["items"]]
    below = schema.get("additionalProperties")
    return [below] if isinstance(below, dict) else []


def _options(prop: JsonObject, schema: JsonObject) -> list[JsonObject]:
    """Schemas of the forms that a value may have, references resolved."""
    if "$ref" in prop:
        return _options(schema["$defs"][prop["$ref"].rsplit("/", 1)[1]], schema)
    forms = [*prop.get("anyOf", ()), *prop.get("oneOf", ()), *prop.get("allOf", ())]  # allOf: of one, an overlay's
    return [option for form in forms for option in _options(form, schema)] if forms else [prop]


def _items(options: Sequence[JsonObject], schema: JsonObject) -> Iterator[JsonObject]:
    """Yields the forms, and in place of a list the forms of its items."""
    for one in options:
        if isinstance(one.get("items"), dict):
            yield from _options(one["items"], schema)
        else:
            yield one


def first_sentence(text: str) -> str:
    """The text up to its first full stop or semicolon with a space after it, without this sign."""
    return text.strip().partition(". ")[0].partition("; ")[0].rstrip(".")


def value_words(value: Any) -> str:
    """A value as the file writes it in one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_words(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_words(item) for item in value) + "]"
    return str(value)


def type_words(
    prop: JsonObject,
    schema: JsonObject,
    *,
    model: Callable[[str], str] = lambda _: "map",
    literal: Callable[[str], str] = str,
) -> str:
    """Type of a value in words; "" for a type without a word. `schema`: the whole, in which references are resolved;
    `model`: text for a map with known keys, given its name; `literal`: text for a value that is written as it stands.
    """

    def words(one: JsonObject) -> str:
        return type_words(one, schema, model=model, literal=literal)

    if "$ref" in prop:
        name = prop["$ref"].rsplit("/", 1)[1]
        target = schema["$defs"][name]
        return model(name) if target.get("properties") else words(target)
    for key in ("anyOf", "oneOf"):
        if key in prop:
            return " or ".join(dict.fromkeys(map(words, prop[key])))
    if "const" in prop:
        return literal(value_words(prop["const"]))
    if "enum" in prop:
        return ", ".join(literal(str(value)) for value in prop["enum"])
    if prop.get("type") == "array":
        return f"list of {words(prop['items'])}" if prop.get("items") else "list"
    if prop.get("type") == "object":
        below = prop.get("additionalProperties")
        return f"map to {words(below)}" if isinstance(below, dict) and below else "map"
    return _TYPES.get(str(prop.get("type")), "")


_TYPES: Final = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true, false"}

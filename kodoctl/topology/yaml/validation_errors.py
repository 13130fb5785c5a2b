"""Findings for the validation errors of pydantic, with the place in the file and in the file's own terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import ErrorDetails

from kodoctl.errors import Diagnostic, Where, error
from kodoctl.text.formatting import many
from kodoctl.topology.names import LEVELS_CONTRADICT, Level
from kodoctl.topology.yaml.error_hints import split_glued_key
from kodoctl.topology.yaml.nodes import Node, Path, node_at
from kodoctl.topology.yaml.schema_hints import SchemaHints, VariantStep, did_you_mean

if TYPE_CHECKING:
    from kodoctl.topology.json_schema.overlays import JsonObject


def from_validation(details: list[ErrorDetails], root: Node, schema: JsonObject) -> list[Diagnostic]:
    """Returns findings for the validation errors `details`, in their order. Findings with the same place, code and text
    are merged, such as those of a value that fails several branches of a union alike. `root`: nodes of the file;
    `schema`: JSON Schema of the file.
    """
    hints = SchemaHints(schema)
    found: dict[tuple[Where, str, str], Diagnostic] = {}
    for detail in details:
        finding = _finding(detail, root, hints)
        assert finding.where is not None
        found.setdefault((finding.where, finding.code, finding.detail), finding)
    return list(found.values())


def _finding(detail: ErrorDetails, root: Node, hints: SchemaHints) -> Diagnostic:
    path = _in_file(detail["loc"], root)
    node, _ = node_at(root, path)
    shown = _show(path)
    match detail["type"]:
        case "extra_forbidden":
            advice = hints.advise_on_key(_with_kinds(path[:-1], root), str(path[-1]))
            return error("K003", "unknown key", f"{shown}: {advice}", node.key_where)
        case "missing":
            needed = (*path, detail["loc"][-1])
            expected = hints.describe_expected((*_with_kinds(path, root), detail["loc"][-1]))
            if expected.startswith("`"):
                expected = f"write `{detail['loc'][-1]}: {expected[1:]}"
            return error("K006", "missing field", f"{_show(needed)} is needed: {expected}", node.key_where)
        case "union_tag_not_found" | "union_tag_invalid":
            return _wrong_kind(detail, node, shown)
        case "enum" if "'L1'" in detail["ctx"]["expected"]:
            text = f"{shown}: {_got(node)} is no level: {', '.join(Level)}"
            if "[key]" in detail["loc"]:
                text = f"{shown}: this is no level: {', '.join(Level)}"
            return error("K103", LEVELS_CONTRADICT, text, node.key_where if "[key]" in detail["loc"] else node.where)
        case _ if node.value is None:
            empty = " ({} takes every default)" if hints.all_optional(path) else ""
            expected = f"{hints.describe_expected(path)}{empty}"
            text = f"{shown} has no value: write {expected}, or remove the key (null stands only in overlays)"
            return error("K015", "null outside an overlay", text, node.key_where)
        case "unit":
            return error("K005", "wrong unit", f"{shown}: {detail['ctx']['text']}", node.where)
        case "value":
            return error("K004", "wrong value", f"{shown}: {detail['ctx']['text']}", node.where)
        case "string_too_short" | "string_too_long" if "[key]" in detail["loc"]:
            text = f"{_show(path[:-1])}: {str(path[-1])[:20]!r} is no name: a name has 1 to 1024 characters"
            return error("K004", "wrong value", text, node.key_where)
        case "greater_than_equal" | "less_than_equal" | "string_too_short" | "string_too_long":
            text = f"{shown}: {_got(node)} is out of bounds: it {detail['msg'][detail['msg'].index('should') :]}"
            return error("K004", "wrong value", text, node.where)
        case "too_short" | "too_long" if isinstance(node.value, list | dict):
            limits = detail["ctx"]
            bound = f"at most {limits['max_length']}" if "max_length" in limits else f"at least {limits['min_length']}"
            text = f"{shown}: {many(len(node.value), 'entry', 'entries')}, should be {bound}"
            return error("K004", "wrong value", text, node.where)
        case _:
            place = _with_kinds(path, root)
            expected, near = hints.describe_expected(place), hints.near_word(place, node.value)
            text = f"{shown}: {_got(node)}, should be {expected}{_quotes(node.value, expected)}{near}"
            return error("K004", "wrong value", text, node.where)


def _in_file(loc: tuple[str | int, ...], node: Node) -> Path:
    """`loc` as a path below `node`: without union branches, `[key]` and a missing field's name, which pydantic adds."""
    for index, step in enumerate(loc):
        child, walked = node_at(node, (step,))
        if walked:
            path = (step, *_in_file(loc[index + 1 :], child))
            if step not in _BRANCHES:
                return path
            # a key of the user may have a branch's name: it is the branch if the path without it is as long
            return max(_in_file(loc[index + 1 :], node), path, key=len)
    return ()


_BRANCHES = frozenset({"word", "map", "value", "inherit", "rate", "concurrency", "quota", "[key]"})


def _with_kinds(path: Path, root: Node) -> Path:
    """The path with a `VariantStep` after each index of a list entry that has a `kind`: allowed keys depend on it."""
    steps: list[str | int] = []
    for number, step in enumerate(path, 1):
        steps.append(step)
        node, _ = node_at(root, path[:number])
        if isinstance(step, int) and isinstance(node.value, dict) and (kind := node.value.get("kind")) is not None:
            steps.append(VariantStep(kind.value))
    return tuple(steps)


def _quotes(value: object, expected: str) -> str:
    """Advice if quotes, or a space after a colon, are the mistake; else ""."""
    if isinstance(value, str) and "a map" in expected and (pair := split_glued_key(value)):
        return f" (a space is missing after the colon: `{pair[0]}: {pair[1]}`)"
    if isinstance(value, str) and value.isdecimal() and "a whole number" in expected:
        return " (without quotes)"
    return " (in quotes)" if isinstance(value, int | float) and "a text such as" in expected else ""


def _wrong_kind(detail: ErrorDetails, node: Node, shown: str) -> Diagnostic:
    expected = str(detail.get("ctx", {}).get("expected_tags", "'rate', 'concurrency', 'quota'")).replace("'", "")
    assert isinstance(node.value, dict)  # or it had been no map to begin with
    if "kind" not in node.value:
        return error("K006", "missing field", f"{shown}.kind is needed: {expected}", node.where)
    kind = node.value["kind"]
    near = did_you_mean(kind.value, expected.split(", "))
    return error("K004", "wrong value", f"{shown}.kind: {_got(kind)}, should be one of {expected}{near}", kind.where)


def _show(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "the file"


def _got(node: Node) -> str:
    value: Any = node.value
    match value:
        case dict():
            return "a map"
        case list():
            return "a list"
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case _:
            return f"the text {value[:60]!r}"

"""For which rows a condition in Spark SQL may not mean what evaluation means: there, evaluation itself has to decide.

Few rows, mostly none. Spark reads JSON leniently (single quotes, anything behind the end, the first of two equal
keys), a null in a list as a text, prints broken numbers as Java does, and other libraries make letters beyond ASCII
small. Its paths lose white space in front of a key: such a key is never left to it. Pure: texts only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kodoctl.expressions import ast
from kodoctl.expressions.ast import Node, ValueKind
from kodoctl.recall.filter.spark_sql import ended, quoted, to_spark_sql
from kodoctl.recall.stored_message import MAX_DEPTH

_ASCII: Final = ended(r"^[\x00-\x7F]*$")
_UNLIKE: Final = r"^([\[{\"]|-?[0-9]+[.eE])"
"""Texts of values that Java writes in its own way: broken numbers, and what may hold such."""
_SKIPPED: Final = frozenset(" \t\n\v\f\r")  # what Java's \\s is


def needs_fallback_sql(node: Node, columns: Mapping[str, str] | None = None) -> str | None:
    """A truth that is never NULL, for the columns of `to_spark_sql`; None: Spark's answer stands for every row."""
    found = dict.fromkeys(_doubts(node, columns or {}, as_text=True))
    return f"coalesce({' OR '.join(found)}, false)" if found else None


def _doubts(node: Node, columns: Mapping[str, str], *, as_text: bool) -> Iterator[str]:
    """`as_text`: whether the value's very characters count."""
    match node:
        case ast.Json(path=path):
            payload = columns.get("payload", "`payload`")
            if any(isinstance(step, str) and step[0] in _SKIPPED for step in path):
                yield "true"
            yield f"({payload} IS NOT NULL AND {_may_be_deep(payload)})"
            yield f"({payload} IS NOT NULL AND NOT {_strict(payload)})"
            if isinstance(path[-1], int):  # of an object Spark reads a null as NULL, of a list as the text 'null'
                yield f"coalesce({to_spark_sql(node, columns)} = 'null', false)"
            if as_text:
                yield f"coalesce({to_spark_sql(node, columns)} RLIKE {quoted(_UNLIKE)}, false)"
        case ast.Cast(part=part, kind=kind):
            yield from _doubts(part, columns, as_text=kind is ValueKind.TEXT)
        case ast.IsNull(part=part):
            yield from _doubts(part, columns, as_text=False)
        case ast.Like(part=part, fold=fold, pattern=pattern):
            if fold:
                yield "true" if not pattern.isascii() else _beyond_ascii(part, columns)
            yield from _doubts(part, columns, as_text=True)
        case ast.Call(function=function, arguments=arguments):
            if function in ("lower", "upper"):
                yield _beyond_ascii(arguments[0], columns)
            for part in arguments:
                yield from _doubts(part, columns, as_text=True)
        case ast.Compare() | ast.Arithmetic():
            yield from _doubts(node.left, columns, as_text=True)
            yield from _doubts(node.right, columns, as_text=True)
        case ast.Logic(parts=parts):
            for part in parts:
                yield from _doubts(part, columns, as_text=True)
        case ast.Not(part=part) | ast.In(part=part):
            yield from _doubts(part, columns, as_text=True)
        case _:
            return


def _beyond_ascii(part: Node, columns: Mapping[str, str]) -> str:
    return f"coalesce(NOT ({to_spark_sql(part, columns)} RLIKE {quoted(_ASCII)}), false)"


def _may_be_deep(payload: str) -> str:
    """More brackets than a document may be deep: Spark reads on to twice that. Short texts are not looked through."""
    brackets = f"length({payload}) - length(replace(replace({payload}, '[', ''), '{{', ''))"
    return f"(length({payload}) > {MAX_DEPTH} AND {brackets} > {MAX_DEPTH})"


def _strict(payload: str) -> str:
    """SQL condition: a text is one JSON document and nothing else. Parsers of Spark stop behind the first value, so
    the text must be the only value when it is put into a list, and be followed by the end when it is put into an
    object.
    """
    only = f"coalesce(json_array_length(concat('[', {payload}, ']')) = 1, false)"
    whole = f"try_parse_json(concat('{{\"x\":', {payload}, '}}')) IS NOT NULL"
    return f"({only} AND {whole})"

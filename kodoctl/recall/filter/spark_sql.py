"""Translation of a condition into Spark SQL with the same meaning, for the pipeline. Does not import Spark.

Needs the session's time zone to be UTC. Casts are guarded by the very patterns that evaluation uses, so that nothing
depends on ANSI mode. Every part is written once, in a list of one value where it is needed twice: a text that named
it twice at every depth would double with every depth.

Spark's functions differ for some rows (JSON that is not strictly valid, a malformed number as text, lower case beyond
ASCII): `kodoctl.recall.filter.spark_fallback` selects these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from kodoctl.expressions import ast
from kodoctl.expressions.ast import Node, ValueKind
from kodoctl.expressions.coercion import LONGEST, MOMENT, NUMBER

_NO_SECONDS: Final = r"^(.{16})(Z|[+-].*)\z"  # Spark wants seconds before an offset


def to_spark_sql(node: Node, columns: Mapping[str, str] | None = None) -> str:
    """`columns` names the column of a fact where it is not the fact's own name; `properties` is a map of texts."""
    return _Writer(columns or {}).sql(node)


class _Writer:
    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns

    def _column(self, name: str) -> str:
        return self._columns.get(name, f"`{name}`")

    def sql(self, node: Node) -> str:
        match node:
            case ast.Constant():
                return _constant(node)
            case ast.Field(name=name):
                return self._column(name)
            case ast.Property(name=name):
                return f"{self._column('properties')}[{quoted(name)}]"
            case ast.Json(path=path):
                return f"get_json_object({self._column('payload')}, {quoted(_path(path))})"
            case ast.Compare():
                return f"({self.sql(node.left)} {node.operator} {self.sql(node.right)})"
            case ast.Logic(operator=operator, parts=parts):
                return "(" + f" {operator} ".join(self.sql(part) for part in parts) + ")"
            case ast.Not(part=part):
                return f"(NOT {self.sql(part)})"
            case ast.IsNull(part=part):
                return f"({self.sql(part)} IS NULL)"
            case ast.In(part=part, values=values):
                zero = " + 0D" if part.kind is ValueKind.NUMBER else ""  # Spark's sets tell 0 from -0
                return f"(({self.sql(part)}{zero}) IN ({', '.join(map(_constant, values))}))"
            case ast.Like(part=part, pattern=pattern, fold=fold):
                return f"({self.sql(part)} {'ILIKE' if fold else 'LIKE'} {quoted(pattern)})"
            case ast.Arithmetic():
                return self._arithmetic(node)
            case ast.Call(function=function, arguments=arguments):
                called = f"{function}({', '.join(map(self.sql, arguments))})"
                return f"CAST({called} AS DOUBLE)" if node.kind is ValueKind.NUMBER and function == "length" else called
            case ast.Cast():
                return self._cast(node)
            case _:
                assert_never(node)

    def _arithmetic(self, node: ast.Arithmetic) -> str:
        left, right = self.sql(node.left), self.sql(node.right)
        if node.kind is not ValueKind.NUMBER:
            return f"({left} {node.operator} {right})"
        if node.operator in "/%":
            right = f"get(filter(array({right}), v -> v != 0D), 0)"
        return f"get(filter(array({left} {node.operator} {right}), v -> abs(v) < double('Infinity')), 0)"

    def _cast(self, node: ast.Cast) -> str:
        part = self.sql(node.part)
        match node.kind:
            case ValueKind.TRUTH:
                return f"(CASE {part} WHEN 'true' THEN true WHEN 'false' THEN false END)"
            case ValueKind.NUMBER:
                read = f"filter(array({part}), v -> length(v) <= {LONGEST} AND v RLIKE {quoted(ended(NUMBER))})"
                made = f"transform({read}, v -> try_cast(v AS DOUBLE))"
                return f"get(filter({made}, v -> abs(v) < double('Infinity')), 0)"
            case ValueKind.MOMENT:
                read = f"filter(array({part}), v -> v RLIKE {quoted(ended(MOMENT))})"
                whole = f"regexp_replace(v, {quoted(_NO_SECONDS)}, '$1:00$2')"
                return f"get(transform({read}, v -> date_trunc('MILLISECOND', try_cast({whole} AS TIMESTAMP))), 0)"
            case _:
                return part


def _constant(node: ast.Constant) -> str:
    match node.kind:
        case ValueKind.TRUTH:
            return "true" if node.value else "false"
        case ValueKind.NUMBER:
            return f"double('{float(node.value) + 0.0!r}')"
        case ValueKind.MOMENT:
            return f"timestamp_millis({node.value})"
        case ValueKind.SPAN:
            return f"make_dt_interval(0, 0, 0, {int(node.value) / 1000!r})"
        case _:
            return quoted(str(node.value))


def ended(pattern: str) -> str:
    """A pattern of Python's in Java's words: there, `$` would let a line feed stand behind."""
    return pattern.removesuffix("$") + r"\z"


def quoted(text: str) -> str:
    """A text of Spark SQL; a backslash and whatever is not plain ASCII is written by its number."""
    return "'" + "".join(c if c.isascii() and c.isprintable() and c not in "'\\" else _escaped(c) for c in text) + "'"


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _path(path: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"['{step}']" if isinstance(step, str) else f"[{step}]" for step in path)

"""Places of a module where one small change makes a mutant: the operators that mutation testing has, on Python's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

COMPARISONS: Final = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
ARITHMETIC: Final = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}  # fmt: skip
MAX_LINES: Final = 6
"""The most lines that a mutant replaces: it is to be read at a glance."""
_CHECKS: Final = {"strict", "encoding"}
"""Named arguments that only tell of a mistake earlier, or say what is so anyway: without them the program is the same."""
_UNCHANGED: Final = {"__all__", "__slots__"}


class Site(NamedTuple):
    """One change: `line` and `statement` are the first lines of the changed lines and of the statement around them."""

    operator: str
    line: int
    statement: int
    before: tuple[str, ...]
    after: tuple[str, ...]


class _Edit(NamedTuple):
    """A replacement of the bytes from `start` to `end`."""

    operator: str
    start: int
    end: int
    text: str


def sites(source: str) -> list[Site]:
    """Every site of a module, in its order. A change that does not parse is none."""
    return list(_Finder(source).sites())


class _Finder:
    def __init__(self, source: str) -> None:
        self._source = source.encode()
        self._lines = source.splitlines()
        self._offsets = [0]
        for line in source.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line.encode()))

    def sites(self) -> Iterator[Site]:
        for node, statement in _changeable(ast.parse(self._source), 1):
            for edit in self._edits(node):
                if (site := self._site(edit, statement)) is not None:
                    yield site

    def _site(self, edit: _Edit, statement: int) -> Site | None:
        changed = (self._source[: edit.start] + edit.text.encode() + self._source[edit.end :]).decode()
        first = self._source.count(b"\n", 0, edit.start)
        last = self._source.count(b"\n", 0, edit.end)
        lines = changed.splitlines()
        after = tuple(lines[first : last + 1 + len(lines) - len(self._lines)])
        if last - first >= MAX_LINES or not _parses(changed):
            return None
        return Site(edit.operator, first + 1, statement, tuple(self._lines[first : last + 1]), after)

    def _edits(self, node: ast.AST) -> Iterator[_Edit]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield from self._token("comparison", left, right, COMPARISONS.get(type(op)))
            case ast.BoolOp(op=op, values=[left, right, *_]):
                yield from self._token("and, or", left, right, COMPARISONS[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if not (_is_text(left) or _is_text(right)):
                yield from self._token("arithmetic", left, right, ARITHMETIC.get(type(op)))
            case ast.AugAssign(target=left, op=op, value=right) if not _is_text(right):
                yield from self._token("arithmetic", left, right, ARITHMETIC.get(type(op)))
            case ast.UnaryOp(op=ast.Not()):
                yield _Edit("not", self._start(node), self._start(node) + len("not "), "")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield _Edit("condition", self._start(test), self._end(test), f"(not ({self._text(test)}))")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield _Edit("return value", self._start(value), self._end(value), "None")
            case ast.Expr(value=ast.Call()):
                yield _Edit("call", self._start(node), self._end(node), "pass")
            case ast.Break():
                yield _Edit("break, continue", self._start(node), self._end(node), "continue")
            case ast.Continue():
                yield _Edit("break, continue", self._start(node), self._end(node), "break")
            case ast.Call(args=args, keywords=keywords):
                yield from self._arguments([*args, *keywords])
            case ast.FunctionDef(args=ast.arguments(defaults=defaults, kw_defaults=others)):
                for one in filter(None, [*defaults, *others]):
                    yield from self._constant("default", one)
            case ast.Constant():
                yield from self._constant("constant", node)

    def _constant(self, operator: str, node: ast.expr) -> Iterator[_Edit]:
        match node:
            case ast.Constant(value=bool(value)):
                text = repr(not value)
            case ast.Constant(value=int(value) | float(value)):
                text = repr(value + 1)
            case ast.Constant(value=str(value)):
                text = repr(f"XX{value}XX")
            case _:
                return
        yield _Edit(operator, self._start(node), self._end(node), text)

    def _token(self, operator: str, left: ast.expr, right: ast.expr, tokens: tuple[str, str] | None) -> Iterator[_Edit]:
        """Nothing but an operator, brackets and comments is between two operands."""
        if tokens:
            start, end = self._end(left), self._start(right)
            between = self._source[start:end].decode()
            yield _Edit(operator, start, end, between.replace(*tokens, 1))

    def _arguments(self, arguments: list[ast.expr | ast.keyword]) -> Iterator[_Edit]:
        """Each named argument is left out once."""
        for before, one in pairwise([None, *arguments]):
            if isinstance(one, ast.keyword) and one.arg and one.arg not in _CHECKS:
                yield _Edit("argument", self._end(before) if before else self._start(one), self._end(one), "")

    def _start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._offsets[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def _text(self, node: ast.expr) -> str:
        return self._source[self._start(node) : self._end(node)].decode()


def _changeable(node: ast.AST, statement: int) -> Iterator[tuple[ast.AST, int]]:
    """Each node that runs, with the first line of its statement: no annotations, decorators, docstrings nor assertions."""
    statement = node.lineno if isinstance(node, ast.stmt) else statement
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Subscript(value=ast.Name(id="Literal" | "Annotated")):
            return
        case ast.Assign(targets=[ast.Name(id=name)]) if name in _UNCHANGED:
            return
    yield node, statement
    left_out = {"annotation", "returns", "decorator_list", "defaults", "kw_defaults", "type_params"}
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in left_out:
                yield from _changeable(child, statement)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True

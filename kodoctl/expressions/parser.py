"""Parser of conditions: text -> syntax tree of sqlglot, within limits. The compiler decides which nodes are allowed.

The text is never run: the compiler turns the tree into values of kodoctl.expressions.ast and refuses every other kind
of node.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from kodoctl.expressions.filter_errors import ConditionError, SyntaxIssue, diagnostics

MAX_LENGTH: Final = 65_536  # characters
MAX_TOKENS: Final = 10_000
MAX_DEPTH: Final = 32  # brackets, NOTs and signs inside each other
_MISSING: Final = re.compile(r"Missing (.+) from (\d+):(\d+)")


def parse_expression(text: str) -> Any:
    """Parses one expression to sqlglot's tree. Raises ConditionError with the place of the error. While it parses, the
    logger `sqlglot` of the process is off.
    """
    from sqlglot import exp, parse_one
    from sqlglot.errors import ParseError

    check_text(text)
    tokens = _tokens(text)
    _check_tokens(text, tokens)
    log = logging.getLogger("sqlglot")  # it tells what it makes of half a statement: our refusal tells better
    before, log.disabled = log.disabled, True
    try:
        tree = parse_one(text, read="spark", into=exp.Condition)
    except ParseError as problem:
        raise _condition_error(text, _parse_fault(text, problem)) from None
    except RecursionError:
        raise _condition_error(text, _too_deep(0)) from None
    except Exception as problem:  # noqa: BLE001  # whatever a parser of a whole language stumbles over is the text's fault
        detail = f"this is not understood ({type(problem).__name__})"
        raise _condition_error(text, _syntax(0, 1, detail)) from None
    finally:
        log.disabled = before
    _place_intervals(tree, tokens)
    return tree


def _place_intervals(tree: Any, tokens: list[Any]) -> None:
    """Sets the places of durations in the tree, in the order of their words: sqlglot gives places to all other leaves."""
    from sqlglot import exp

    words = [token for token in tokens if token.token_type.name == "INTERVAL"]
    for node, word in zip(tree.find_all(exp.Interval, bfs=False), words, strict=False):
        node.meta.update(start=word.start, end=word.end)


def check_text(text: str) -> None:
    """Raises ConditionError for a blank text, or one of more than 65,536 characters (MAX_LENGTH)."""
    if not text.strip():
        detail = "a condition is needed; `true` chooses every message"
        raise ConditionError(*diagnostics("", [_syntax(0, 0, detail)]))
    if len(text) > MAX_LENGTH:
        detail = f"{len(text):,} characters; at most {MAX_LENGTH:,} are read"
        raise _condition_error(text, SyntaxIssue(MAX_LENGTH, 1, "K551", "a condition beyond the limits", detail))


def _tokens(text: str) -> list[Any]:
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import TokenError

    try:
        return list(Spark().tokenize(text))
    except TokenError as problem:
        raise _condition_error(text, _token_fault(text, problem)) from None


def _check_tokens(text: str, tokens: list[Any]) -> None:
    if len(tokens) > MAX_TOKENS:
        detail = f"{len(tokens):,} words and signs; at most {MAX_TOKENS:,} are read"
        raise _condition_error(
            text, SyntaxIssue(tokens[MAX_TOKENS].start, 1, "K551", "a condition beyond the limits", detail)
        )
    depth = run = 0
    for token in tokens:
        name = token.token_type.name
        if name in ("L_PAREN", "L_BRACKET", "CASE", "L_BRACE"):
            depth += 1
        elif name in ("R_PAREN", "R_BRACKET", "R_BRACE"):
            depth -= 1
        run = run + 1 if name in ("NOT", "DASH", "PLUS", "TILDE") else 0
        if depth + run > MAX_DEPTH:
            raise _condition_error(text, _too_deep(token.start))


def _too_deep(at: int) -> SyntaxIssue:
    detail = f"nested more than {MAX_DEPTH} deep"
    return SyntaxIssue(at, 1, "K551", "a condition beyond the limits", detail)


def _syntax(at: int, length: int, detail: str) -> SyntaxIssue:
    return SyntaxIssue(at, length, "K550", "a condition that cannot be read", detail)


def _token_fault(text: str, problem: Exception) -> SyntaxIssue:
    found = _MISSING.search(f"{problem} {problem.__cause__}")
    if found is None:
        return _syntax(0, 1, "a quote or comment does not end")
    closing, line = found.group(1), int(found.group(2))
    start = _line_start(text, line)
    opened = text.rfind(closing[0], start, start + int(found.group(3)) + 1)
    return _syntax(max(opened, start, 0), 1, f"this is never closed: {closing} is missing")


def _parse_fault(text: str, problem: Any) -> SyntaxIssue:
    """The error of sqlglot's exception, whose column is that of a word's last character: the caret goes below the
    first.
    """
    first = problem.errors[0] if problem.errors else {}
    word = str(first.get("highlight") or "")
    line, column = first.get("line"), first.get("col")
    if line is None or column is None:
        return _syntax(0, 1, "a condition is needed; comments are none")
    at = max(0, _line_start(text, int(line)) + int(column) - len(word))
    description = str(first.get("description") or "")
    if description.startswith("Expecting"):
        return _syntax(at + len(word), 1, f"{description.removeprefix('Expecting ')} is missing")
    if description.startswith("Required keyword"):
        return _syntax(at, len(word), f"something is missing beside {word}")
    return _syntax(at, len(word), f"{word or 'this'} does not belong here")


def _line_start(text: str, line: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start


def _condition_error(text: str, fault: SyntaxIssue) -> ConditionError:
    return ConditionError(*diagnostics(text, [fault]))

"""Check of regular expressions: a safe one searches a short text in bounded time, whatever that text is.

Python's engine backtracks, blocks the interpreter meanwhile, and cannot be interrupted: one unlucky text would stop a
worker. So a pattern is refused unless the next character decides at each repetition whether it continues or ends. Then
an attempt at one place takes time in proportion to the text. Alternatives that overlap outside of repetitions multiply
the attempts, by MAX_ATTEMPTS at most.
"""

from __future__ import annotations

import re
import sys
import warnings
from functools import cache, lru_cache, reduce
from importlib import import_module
from itertools import combinations
from operator import or_
from typing import Any, Final

MAX_PATTERN: Final = 500  # characters
MAX_ATTEMPTS: Final = 16
_PARSER: Final[Any] = import_module("re._parser")
_COMPILER: Final[Any] = import_module("re._compiler")
_CHARACTERS: Final = frozenset({"LITERAL", "NOT_LITERAL", "IN", "ANY"})
_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_REFUSED: Final = {
    "GROUPREF": "refers back to a group",
    "GROUPREF_EXISTS": "depends on a group",
    "ASSERT": "looks ahead",
    "ASSERT_NOT": "looks ahead",
}
_JAVA_SET: Final = re.compile(r"&&|\[[^]]*\[")  # Python reads `[a-z&&[^b]]` and `[a[b]]` as something else
_NOTHING: Final = 0
Characters = int
"""Set of characters of Unicode as the bits of a number: bit n stands for the character of code point n."""


class _UnsafeError(ValueError):
    """A pattern is not safe; the text is the reason."""


@lru_cache(maxsize=256)  # a file is read for each environment, and again when it changes
def pattern_problem(pattern: str) -> str:
    """Reason why a regular expression is refused, as a sentence without its subject; "" if it is safe. Refused are
    expressions that are too long or not valid, of which Python warns, that can match an empty text, that look ahead
    (they may look behind), that refer to a group, or that change flags after their beginning. So are those whose search
    in a text could take very long: a repetition repeats what may match nothing, or what may also follow it; or
    alternatives begin alike, any in a repetition, or too many elsewhere.
    """
    if len(pattern) > MAX_PATTERN:
        return f"has {len(pattern)} characters, {MAX_PATTERN} are allowed"
    try:
        with warnings.catch_warnings(action="error"):
            re.compile(pattern)
            parsed = _PARSER.parse(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as problem:
        return f"is no regular expression: {problem}"
    if _can_be_empty(parsed):
        return "can match no character at all, and so matches everywhere"
    try:
        _Walk(parsed.state.flags).before(parsed, _NOTHING, repeated=False)
    except RecursionError:
        return "has too many groups in one another"
    except _UnsafeError as problem:
        return str(problem)
    return ""


def may_match(pattern: str, text: str) -> bool:
    """True if a pattern of Pulsar matches the whole text, or if only Java can read the pattern, such as one with a set
    in a set: then it may match. Nothing bounds the time, because the pattern need not be safe.
    """
    if _JAVA_SET.search(pattern):
        return True
    try:
        return re.fullmatch(pattern, text, re.ASCII) is not None
    except (re.error, ValueError, OverflowError, RecursionError):
        return True


class _Walk:
    """Check of one pattern, from its end to its beginning: each part gets the characters that may follow it."""

    def __init__(self, flags: int) -> None:
        self._flags = flags
        self._attempts = 1
        self._sets: dict[str, Characters] = {}
        self._heads: dict[Any, Characters] = {}  # of the body of a repetition

    def before(self, parts: Any, follow: Characters, *, repeated: bool) -> Characters:
        """Characters that may begin `parts`, and those in `follow` if `parts` may match nothing. Raises _UnsafeError.
        `repeated`: the parts are in a repetition, in which every choice must be unambiguous.
        """
        for operator, argument in reversed(list(parts)):
            follow = self._part(str(operator), argument, follow, repeated=repeated)
        return follow

    def _part(self, operator: str, argument: Any, follow: Characters, *, repeated: bool) -> Characters:
        if operator in _CHARACTERS:
            return self._set(operator, argument)
        if operator == "AT":
            return follow
        if operator == "SUBPATTERN" and not (argument[1] or argument[2]):
            return self.before(argument[3], follow, repeated=repeated)
        if operator == "ATOMIC_GROUP":
            return self.before(argument, follow, repeated=repeated)
        if operator == "BRANCH":
            return self._choice(argument[1], follow, repeated=repeated)
        if operator in _REPEATS:
            return self._repeat(operator, argument, follow, repeated=repeated)
        if operator.startswith("ASSERT") and argument[0] < 0:  # of a fixed width, by Python's own rule
            self.before(argument[1], _NOTHING, repeated=True)
            return follow
        raise _UnsafeError(_REFUSED.get(operator, "changes its flags within: write them at its beginning"))

    def _choice(self, branches: Any, follow: Characters, *, repeated: bool) -> Characters:
        heads = [self.before(branch, follow, repeated=repeated) for branch in branches]
        if any(one & other for one, other in combinations(heads, 2)):
            if repeated:
                raise _UnsafeError(
                    "has alternatives in a repetition that begin alike: write what they share once, before them"
                )
            self._attempts *= len(heads)
            if self._attempts > MAX_ATTEMPTS:
                raise _UnsafeError("has too many alternatives that begin alike: make several patterns of it")
        return reduce(or_, heads)

    def _repeat(self, operator: str, argument: Any, follow: Characters, *, repeated: bool) -> Characters:
        least, most, body = argument
        most = int(most)
        if most == 0:
            return follow
        if most == 1 and least == 0:
            return self._choice([body, []], follow, repeated=repeated)
        if body not in self._heads:  # looked at once: repetitions in one another would double the work each
            self._heads[body] = self.before(body, _NOTHING, repeated=True)
        heads = self._heads[body]
        if _can_be_empty(body):
            raise _UnsafeError("repeats what may match nothing")
        ends = heads if operator == "POSSESSIVE_REPEAT" else heads | follow
        if least != most and operator != "POSSESSIVE_REPEAT" and heads & follow:
            raise _UnsafeError(
                f"repeats what may also follow the repetition ({_example_text(heads & follow)}): make the two differ, as"
                ' "[^"]*" does where ".*" does not'
            )
        self.before(body, ends, repeated=True)
        return heads | follow if least == 0 else heads

    def _set(self, operator: str, argument: Any) -> Characters:
        """Characters that a part of one character matches, found by running Python's own engine."""
        name = f"{operator} {argument}"
        if name not in self._sets:
            one = _PARSER.SubPattern(_PARSER.State(), [(getattr(_PARSER, operator), argument)])
            run = _PARSER.SubPattern(one.state, [(_PARSER.MAX_REPEAT, (1, _PARSER.MAXREPEAT, one))])
            runs = _COMPILER.compile(run, self._flags).finditer(_all_characters())
            self._sets[name] = reduce(or_, (_bits(*found.span()) for found in runs), _NOTHING)
        return self._sets[name]


@cache
def _all_characters() -> str:
    return "".join(map(chr, range(sys.maxunicode + 1)))


def _bits(start: int, end: int) -> Characters:
    return (1 << end) - (1 << start)


def _can_be_empty(body: Any) -> bool:
    return bool(body.getwidth()[0] == 0)


def _example_text(characters: Characters) -> str:
    """`such as 'a'` with one of the characters: a letter or digit if there is one."""
    near = characters & _bits(0, 0x250) or characters  # Latin letters, where there are some
    numbers = [number for number, bit in enumerate(reversed(f"{near:b}")) if bit == "1"]
    shown = min(map(chr, numbers), key=lambda one: (not one.isprintable(), not one.isalnum(), one))
    return f"such as {shown!r}"

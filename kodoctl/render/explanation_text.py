"""Explanations of codes and of keys of the topology file, as text."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodoctl.errors.codes import CODES, GROUPS
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.topology.json_schema.field_help import KeyHelp
    from kodoctl.topology.lint.registry import Rule


@dataclass(frozen=True, slots=True)
class CodeHelp:
    """Help about a code. `title`: its summary; `group`: the heading of the code in the reference; `also`: other
    summaries of its findings; `todo`: advice; `checks`: a text about each lint rule with this code, one for rules with
    the same text; `severity`: of these rules, None for a code of no lint rule.
    """

    code: str
    title: str
    group: str
    also: tuple[str, ...]
    todo: str
    checks: tuple[str, ...]
    severity: str | None


def code_help(number: str, rules: Sequence[Rule]) -> CodeHelp:
    """Returns the help about the code `number` (such as `K301`). Raises StopIteration for a code that does not exist.
    `rules`: the lint rules with this code.
    """
    group = next(title for title, codes in GROUPS.items() if number in codes)
    code = CODES[number]
    checks = tuple(dict.fromkeys(" ".join((inspect.getdoc(rule.check) or "").split()) for rule in rules))
    severity = rules[0].severity.value if rules else None
    return CodeHelp(number, code.title, group, code.also, code.todo, checks, severity)


def code_lines(help_: CodeHelp) -> Iterator[Line]:
    """Lines of the help about a code: its title, its kind and group, other summaries, texts about the checks of lint,
    advice, and how to allow a finding of lint.
    """
    yield Line(f"{help_.code}: {help_.title}", "bold")
    yield Line()
    kind = f"{help_.severity} of lint" if help_.severity else "message of a command"
    yield Line(f"Kind: {kind}. Group: {help_.group}.")
    for other in help_.also:
        yield Line(f"Also reported as: {other}.")
    for check in help_.checks:
        yield Line(check)
    yield Line()
    yield Line(f"What to do: {help_.todo}")
    if help_.severity:
        yield Line(f"To allow it at one place, in the file: # kodoctl: allow {help_.code} because …")


def key_lines(help_: KeyHelp) -> Iterator[Line]:
    """Lines of the help about a key: its meaning, value, default, where it is inherited from, examples, and the keys
    below it, as far as there are any.
    """
    yield Line(help_.path, "bold")
    yield Line()
    if help_.meaning:
        yield Line(help_.meaning)
        yield Line()
    default = "needed: there is no default" if help_.needed else help_.default
    rows = [("value", help_.value), ("default", default)]
    rows += [("inherited", ", then ".join(help_.inherited))]
    rows += [("example", example) for example in help_.examples]
    for name, text in rows:
        if text:
            yield Line(f"{name:<9}  {text}", hang=11)
    if help_.keys:
        yield Line()
        yield Line("Keys:", "bold")
        width = max(len(name) for name, _ in help_.keys)
        for name, text in help_.keys:
            yield Line(f"  {name:<{width}}  {text}", hang=width + 4)

"""What the tests caught of the kept mutants: by package, for people."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.mutants.mutant_set import Mutant

BAR: Final = 0.97
"""The share of the kept mutants, each of which some test caught once, that `make test` is to catch."""
REPORT: Final = Path("benchmarks/mutants/report.md")
_HEAD: Final = """# Mutants: what the tests catch

Written by `make mutants`. A mutant is the product with one small change (`tests/mutants/mutants.json`); every one of them was
caught by a test when it was chosen. *Gate*: what `make test` runs. *Only full*: caught by none of these, and by a test marked
`full`.

"""


class Outcome(StrEnum):
    """Who caught a mutant."""

    GATE = "gate"
    FULL = "only full"
    NOBODY = "not caught"
    BROKEN = "does not apply"


@dataclass(frozen=True, slots=True)
class Result:
    """`detail`: a test that failed, or why the mutant was not tried."""

    mutant: Mutant
    outcome: Outcome
    detail: str
    seconds: float


def share(results: Sequence[Result]) -> float:
    """Of these mutants, what the gate caught."""
    return sum(one.outcome is Outcome.GATE for one in results) / max(1, len(results))


def table(results: Sequence[Result]) -> str:
    """In Markdown, a line for each package and one for all."""
    packages = sorted({one.mutant.package for one in results})
    rows = [(name, [one for one in results if one.mutant.package == name]) for name in packages]
    lines = ["| package | mutants | gate | only full | not caught |", "|---|---|---|---|---|"]
    lines += [_row(name, those) for name, those in rows]
    return "\n".join([*lines, _row("**all**", results)])


def _row(name: str, results: Sequence[Result]) -> str:
    counts = [sum(one.outcome is outcome for one in results) for outcome in (Outcome.GATE, Outcome.FULL)]
    return f"| {name} | {len(results)} | {counts[0]} | {counts[1]} | {len(results) - sum(counts)} |"


def render(results: Sequence[Result], seconds: float) -> str:
    """The report."""
    missed = [one for one in results if one.outcome is not Outcome.GATE]
    lines = [f"The gate catches {share(results):.1%} of {len(results)} mutants; at least {BAR:.0%} are wanted.", ""]
    lines += [table(results), ""]
    if missed:
        lines += ["| mutant | file | operator | outcome | by |", "|---|---|---|---|---|"]
        lines += [
            f"| {one.mutant.id} | {one.mutant.file} | {one.mutant.operator} | {one.outcome} | {one.detail} |"
            for one in missed
        ]
        lines.append("")
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return _HEAD + "\n".join(lines) + f"\n{seconds / 60:.0f} minutes on {machine}.\n"

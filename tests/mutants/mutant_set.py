"""The kept set of mutants: what each one changes, and which tests were seen failing with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tests.mutants.mutation_sites import Site

ROOT: Final = Path(__file__).parents[2]
SET: Final = Path(__file__).with_name("mutants.json")


class NotApplicableError(Exception):
    """The lines that a mutant changes are not in its file, or more than once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`before`: whole lines, with as many of those above them as make them unique in the file. `caught_by`: tests without their
    parameters.
    """

    id: str
    file: str
    operator: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    caught_by: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The folder of the file."""
        return PurePosixPath(self.file).parent.as_posix()

    def applies(self, root: Path) -> bool:
        """True if its lines are in the file below `root`, once."""
        path = root / self.file
        return path.is_file() and _count(path.read_text(encoding="utf-8"), self.before) == 1

    def apply(self, root: Path) -> None:
        """Changes the file below `root`."""
        path = root / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (count := _count(text, self.before)) != 1:
            raise NotApplicableError(
                f"{self.id} no longer applies: its lines are {count} times in {self.file}.\nChoose another mutant in its place "
                f"(python -m tests.mutants choose), or write its lines anew in {SET.name}:\n" + "\n".join(self.before)
            )
        path.write_text(f"\n{text}".replace(_block(self.before), _block(self.after))[1:], encoding="utf-8")


def mutant_of(file: str, source: str, site: Site) -> Mutant:
    """A site of a file as a mutant that nobody has caught yet."""
    lines = source.splitlines()
    before, after, first = site.before, site.after, site.line - 1
    while _count(source, before) != 1 and first:
        first -= 1
        before, after = (lines[first], *before), (lines[first], *after)
    digest = hashlib.sha256("\n".join((file, *before, *after)).encode()).hexdigest()[:6]
    return Mutant(f"{PurePosixPath(file).stem}-{digest}", file, site.operator, before, after)


def load(path: Path = SET) -> list[Mutant]:
    """The set, by file."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [_mutant(row) for row in rows]


def _mutant(row: dict[str, Any]) -> Mutant:
    lists = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
    return Mutant(**{**row, **lists})


def save(mutants: list[Mutant], path: Path = SET) -> None:
    """Writes the set by file and id, so that a difference is read easily."""
    ordered = sorted(mutants, key=lambda one: (one.file, one.id))
    text = json.dumps([asdict(one) for one in ordered], indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def _block(lines: tuple[str, ...]) -> str:
    return "\n".join(("", *lines, ""))


def _count(text: str, lines: tuple[str, ...]) -> int:
    return f"\n{text}".count(_block(lines))

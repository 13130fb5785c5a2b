"""The choice of a set: sites drawn with a seed, spread over the packages by size, each kept only if a test is seen to catch it."""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final

from coverage import CoverageData

from tests.mutants.mutant_set import ROOT, Mutant, mutant_of
from tests.mutants.mutated_copy import GATE, TEST, Copies, unit_folder
from tests.mutants.mutation_sites import Site, sites
from tests.source_roots import SOURCES

SPARED: Final = {"kodoctl/dev/process.py", "kodoctl/dev/jars.py"}
"""What ends processes and clears the cache of jars: a mutant could do so to those of others."""
TRIES: Final = 5
"""Candidates for each mutant of a package, at most."""
RECORDED: Final = 3
"""Tests kept with a mutant, at most."""
MOST_UNIT: Final = 120
"""Unit tests that a candidate is tried with, at most."""
MOST_BEYOND: Final = 4
"""Tests of each other folder, at most."""
UNIT: Final = "tests/unit/"
BEYOND: Final = ("tests/scenarios/", "tests/contract/", "tests/broker/", "tests/spark/")


class TestsByLine:
    """Which tests run which line: of files that `pytest --cov --cov-context=test` wrote."""

    __test__ = False

    def __init__(self, files: Iterable[Path]) -> None:
        self._data = [CoverageData(str(file)) for file in files]
        for data in self._data:
            data.read()
        self._lines: dict[str, dict[int, set[str]]] = {}

    def of(self, file: str, site: Site) -> list[str]:
        """Tests, first those that run most of the file. Of a line that runs on import: every test of the file."""
        lines = self._of_file(file)
        tests = lines[site.line] | lines[site.statement]
        often = Counter(test for those in lines.values() for test in those)
        return sorted(filter(None, often if "" in tests else tests), key=lambda test: (-often[test], test))

    def _of_file(self, file: str) -> dict[int, set[str]]:
        if file not in self._lines:
            lines = self._lines[file] = defaultdict[int, set[str]](set)
            for data in self._data:
                for line, contexts in data.contexts_by_lineno(str(ROOT / file)).items():
                    lines[line].update(map(_test, contexts))
        return self._lines[file]


def _test(context: str) -> str:
    """A unit test without its parameters, of which it may have hundreds."""
    found = re.match(TEST, context)
    test = found[0] if found else ""
    return test.partition("[")[0] if test.startswith(UNIT) else test


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mutant with tests that run its lines, the cheapest first. `unit`: whether they are unit tests."""

    mutant: Mutant
    tests: tuple[str, ...]
    unit: bool


def candidates(files: Sequence[str], by_line: TestsByLine, rng: random.Random) -> Iterator[Candidate]:
    """Of these files without an end of repetitions: by turns where only other tests than unit tests come, and where they do."""
    only_beyond, with_unit = list[Candidate](), list[Candidate]()
    for file, site in _drawn(files, rng):
        if tests := by_line.of(file, site):
            mutant = mutant_of(file, (ROOT / file).read_text(encoding="utf-8"), site)
            one = _candidate(mutant, tests)
            (with_unit if one.unit else only_beyond).append(one)
    for pair in zip_longest(only_beyond, with_unit):
        yield from filter(None, pair)


def _drawn(files: Sequence[str], rng: random.Random) -> Iterator[tuple[str, Site]]:
    """The sites, one of each operator by turns: there are a hundred constants for one `break`."""
    by_operator = defaultdict[str, list[tuple[str, Site]]](list)
    for file in files:
        for site in sites((ROOT / file).read_text(encoding="utf-8")):
            by_operator[site.operator].append((file, site))
    groups = list(by_operator.values())
    rng.shuffle(groups)
    for group in groups:
        rng.shuffle(group)
    for turn in zip_longest(*groups):
        yield from filter(None, turn)


def _candidate(mutant: Mutant, tests: Sequence[str]) -> Candidate:
    """With unit tests, those of its package first; or, where none runs its lines, with others, which take seconds each."""
    mirrored = f"{unit_folder(mutant.file)}/"
    unit = sorted((test for test in tests if test.startswith(UNIT)), key=lambda test: not test.startswith(mirrored))
    if unit:
        return Candidate(mutant, tuple(unit[:MOST_UNIT]), unit=True)
    folders = ([test for test in tests if test.startswith(folder)][:MOST_BEYOND] for folder in BEYOND)
    return Candidate(mutant, tuple(chain.from_iterable(folders)), unit=False)


def quotas(sizes: dict[str, int], count: int) -> dict[str, int]:
    """Mutants for each package: by size, and one at least."""
    total = sum(sizes.values())
    return {package: max(1, math.ceil(count * size / total - 0.5)) for package, size in sizes.items()}


def confirmed(candidate: Candidate, copies: Copies) -> Mutant | None:
    """The mutant with tests that fail with it; None if there are none. What needs a broker is to pass without it, on this machine
    and now.
    """
    with copies.trial(candidate.mutant) as trial:
        failing = trial.failing(candidate.tests, GATE, most=RECORDED if candidate.unit else 1)
    caught = failing and (candidate.unit or _passing(failing, copies))
    return replace(candidate.mutant, caught_by=failing) if caught else None


def _passing(tests: Sequence[str], copies: Copies) -> bool:
    with copies.trial(None) as unchanged:
        return not unchanged.failing(tests, GATE)


def choose(
    present: Sequence[Mutant], missed: Sequence[Mutant], by_line: TestsByLine, copies: Copies, *, only: Sequence[str],
    seed: int, count: int, processes: int, tell: Callable[[Candidate, Mutant | None], None],
) -> None:  # fmt: skip
    """Fills each package, or `only` these, up to its quota; `tell` hears of each candidate what came of it. Those `missed`
    before are not tried again.
    """
    packages = _packages()
    wanted = quotas({package: sum(map(_size, files)) for package, files in packages.items()}, count)
    for one in present:
        wanted[one.package] -= 1
    known = {one.id for one in (*present, *missed)}

    def fill(package: str) -> None:
        rng = random.Random(f"{seed} {package}")
        missing, tries = wanted[package], wanted[package] * TRIES
        for candidate in candidates(packages[package], by_line, rng):
            if missing <= 0 or tries <= 0:
                return
            if candidate.mutant.id in known:
                continue
            tries -= 1
            mutant = confirmed(candidate, copies)
            missing -= mutant is not None
            tell(candidate, mutant)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(fill, only or packages))


def _packages() -> dict[str, list[str]]:
    """The product's files by folder, without those that are spared."""
    packages = defaultdict[str, list[str]](list)
    for path in SOURCES:
        file = path.relative_to(ROOT).as_posix()
        if file not in SPARED and _size(file):
            packages[path.parent.relative_to(ROOT).as_posix()].append(file)
    return packages


def _size(file: str) -> int:
    return len((ROOT / file).read_text(encoding="utf-8").splitlines())

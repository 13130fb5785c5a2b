"""`python -m tests.architecture.missing_branches JSON`: lines and branches of pure modules that no test ran, by SlipCover's report.

A branch to `assert_never` cannot run. SlipCover leaves such lines out, but not the branches that lead to them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.pure_modules import pure_modules
from tests.source_roots import PACKAGES, ROOT

_NEVER = "assert_never("


def _never(lines: list[str]) -> set[int]:
    """Numbers of lines that call `assert_never`, and of the `case _:` above them."""
    calls = {number for number, line in enumerate(lines, 1) if _NEVER in line}
    return calls | {number - 1 for number in calls if lines[number - 2].strip() == "case _:"}


def missing(report: Path, root: Path, modules: Iterable[str]) -> Iterator[str]:
    """A text for each line and branch without a run: `path:line`, or `path:line->line`, where 0 is the function's end.
    A module that the report lacks is named as a whole: an empty report is no proof.
    """
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    yield from (module for module in modules if module not in files)
    for path, file in sorted(files.items()):
        never = _never((root / path).read_text(encoding="utf-8").splitlines())
        yield from (f"{path}:{line}" for line in file["missing_lines"] if line not in never)
        pairs = (pair for pair in file["missing_branches"] if never.isdisjoint(pair))
        yield from (f"{path}:{origin}->{target}" for origin, target in pairs)


if __name__ == "__main__":
    pure = [path.relative_to(ROOT).as_posix() for package in PACKAGES.values() for path in pure_modules(package)]
    places = list(
        missing(Path(sys.argv[1]), ROOT, [path for path in pure if not path.startswith("pipeline/kodo_pipeline/")])
    )
    sys.stdout.writelines(f"not run by any unit test: {place}\n" for place in places)
    sys.exit(bool(places))

"""Pure modules: those of which every branch is to be tested, as their first lines say. `python -m` prints them for coverage, and
with `--others` the modules that are not.

The first line of a module may be a mark, `# pure: …` or `# adapter: …`, where an adapter reads, writes, waits or runs Spark.
The mark of a package's `__init__` holds for all below it that has none of its own. What has no mark is an adapter.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.source_roots import PACKAGES, ROOT

MARK: Final = re.compile(r"# (pure|adapter): \w.*")


def first_line(path: Path) -> str:
    """The line that may be a mark."""
    with path.open(encoding="utf-8") as lines:
        return next(lines, "").rstrip("\n")


@cache
def _own_mark(path: Path) -> str | None:
    mark = MARK.fullmatch(first_line(path))
    return mark[1] if mark else None


def pure_modules(package: Path) -> Iterator[Path]:
    """Modules whose own mark, or else the nearest one above, says so; in order."""
    for path in sorted(package.rglob("*.py")):
        above = (folder / "__init__.py" for folder in path.parents if folder.is_relative_to(package))
        marks = (_own_mark(file) for file in (path, *above) if file.exists())
        if next(filter(None, marks), None) == "pure":
            yield path


if __name__ == "__main__":
    pure = {path for package in PACKAGES.values() for path in pure_modules(package)}
    every = (path for package in PACKAGES.values() for path in sorted(package.rglob("*.py")))
    shown = [path.relative_to(ROOT).as_posix() for path in every if (path in pure) != ("--others" in sys.argv)]
    sys.stdout.write(",".join(shown) + "\n")

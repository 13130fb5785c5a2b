"""The architecture page names every package, and its walks name modules and functions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.source_roots import PACKAGES, ROOT, SOURCES

PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
CONSUMER = PACKAGES["kodo_consumer"]
TABLES = {f"Packages of `{root.relative_to(ROOT).as_posix()}/`": root for root in PACKAGES.values()}
WALKS = {
    "From a YAML field to its HTTP request": (ROOT, 12),
    "From a received message to its acknowledgement": (CONSUMER, 14),
    "From `pipeline run` to the verdict": (ROOT, 12),
    "From `waiting apply` to the acknowledgement": (ROOT, 13),
}
_CODE = re.compile(r"`([^`]+)`")
_MEMBER = re.compile(r"[A-Za-z_]+\.[A-Za-z_]+")


def section(title: str) -> str:
    """Text below a heading, to the next one."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no heading {title!r}"
    return found[1]


def rows(title: str) -> list[list[str]]:
    """Cells of each row of the section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@cache
def names(module: Path) -> frozenset[str]:
    """Functions, classes and `Class.method` that a module defines."""
    found = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{one.name}" for one in inner}
    return frozenset(found)


@cache
def everything() -> frozenset[str]:
    """`Class.method` and `module.function` of all modules."""
    members = {name for module in SOURCES for name in names(module) if "." in name}
    return frozenset(members | {f"{module.stem}.{name}" for module in SOURCES for name in names(module)})


@pytest.mark.parametrize("title", TABLES)
def test_every_package_has_a_row(title: str) -> None:
    root = TABLES[title]
    listed = {key.rstrip("/"): row for row in rows(title) for key in _CODE.findall(row[0])}
    packages = {init.parent.relative_to(root) for init in root.rglob("__init__.py")} - {Path()}

    missing = []
    for package in sorted(packages):
        above = [row for parent in package.parents if (row := listed.get(parent.as_posix()))]
        named = any(f"`{package.name}/`" in cell for row in above for cell in row[1:])
        only_holds_packages = {path.name for path in (root / package).glob("*.py")} == {"__init__.py"}
        if package.as_posix() not in listed and not named and not only_holds_packages:
            missing.append(package.as_posix())

    assert missing == []
    assert [name for name in listed if Path(name) not in packages] == []


@pytest.mark.parametrize("title", WALKS)
def test_the_stations_of_a_walk_exist(title: str) -> None:
    root, most = WALKS[title]
    stations = rows(title)

    wrong = []
    for _, module, functions, _ in stations:
        path = root / module.strip("`")
        if not path.is_file():
            wrong.append(module)
        else:
            wrong += [f"{module} {name}" for name in _CODE.findall(functions) if name not in names(path)]

    assert wrong == []
    assert [row[0] for row in stations] == [str(number) for number in range(1, len(stations) + 1)]
    assert len(stations) <= most


@pytest.mark.parametrize("title", WALKS)
def test_what_the_text_of_a_walk_names_exists(title: str) -> None:
    members = [
        name for name in _CODE.findall(section(title)) if _MEMBER.fullmatch(name) and name != "policies.retention"
    ]

    assert members
    assert [name for name in members if name not in everything()] == []

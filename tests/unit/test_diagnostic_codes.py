"""One list of codes: held against every source, so that it can neither miss one nor give one two meanings."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kodoctl.errors.codes import CODES, GROUPS
from kodoctl.topology.lint.registry import RULES
from tests.architecture.syntax_trees import nodes, tree
from tests.source_roots import PACKAGES, ROOT, SOURCES

REGISTRY = PACKAGES["kodoctl"] / "errors/codes"
LISTS = [REGISTRY / f"{name}_codes.py" for name in ("topology", "cluster", "message")]
CODE = re.compile(r"K\d{3}")
PATHS = [path for path in SOURCES if path.parent != REGISTRY]


@pytest.fixture(scope="module", autouse=True)
def _trees_end_with_the_file() -> Iterator[None]:
    """A million objects would make each later collection of garbage dear."""
    yield
    tree.cache_clear()
    nodes.cache_clear()


def _constants(module: ast.Module) -> dict[str, str]:
    """Names that a module gives to texts."""
    return {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


@cache
def _named() -> dict[str, str]:
    return {name: text for path in PATHS for name, text in _constants(tree(path)).items()}


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return _named().get(node.id) if isinstance(node, ast.Name) else None


def _used(path: Path) -> Iterator[str]:
    return (
        node.value
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
    )


def _told(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, code, summary) of every call that is given a code: the summary is the first text after it."""
    for node in nodes(path):
        if not isinstance(node, ast.Call):
            continue
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Constant) and CODE.fullmatch(str(argument.value)):
                following = (_text(other) for other in node.args[index + 1 :])
                yield node.lineno, str(argument.value), next(filter(None, following), "")


def test_every_code_in_the_sources_is_in_the_list_and_every_code_of_the_list_is_used() -> None:
    used = {code for path in PATHS for code in _used(path)}
    assert used == CODES.keys()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_code_is_always_told_in_the_words_of_the_list(path: Path) -> None:
    for line, number, summary in _told(path):
        code = CODES[number]
        assert summary in (code.title, *code.also), f"{path.name}:{line}: {number} says {summary!r}"


def test_a_code_is_listed_once_and_no_two_say_the_same() -> None:
    listed = [node for path in LISTS for node in nodes(path) if isinstance(node, ast.Dict)]
    keys = [key.value for table in listed for key in table.keys if isinstance(key, ast.Constant)]
    codes = [str(key) for key in keys if CODE.fullmatch(str(key))]
    assert codes == sorted(set(codes))
    assert sum(len(group) for group in GROUPS.values()) == len(codes)
    words = Counter(text for code in CODES.values() for text in (code.title, *code.also))
    assert [text for text, count in words.items() if count > 1] == []


def test_every_other_wording_of_the_list_is_used() -> None:
    told = {(number, summary) for path in PATHS for _, number, summary in _told(path)}
    assert {(number, text) for number, code in CODES.items() for text in (code.title, *code.also)} == told


def test_every_code_says_what_to_do_in_a_sentence() -> None:
    for number, code in CODES.items():
        assert re.fullmatch(r"[A-Z`0-9].*\.", code.todo), number
        assert code.title[-1] not in ".:", number


def test_a_rule_of_lint_finds_what_its_code_says() -> None:
    assert [(rule.code, rule.summary) for rule in RULES if CODES[rule.code].title != rule.summary] == []

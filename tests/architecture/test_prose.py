"""Prose of docstrings: first sentences that a reader abroad understands at one reading, and names that exist.

A first sentence names a thing or has a subject and a verb. It opens with no preposition, conjunction or relative word,
and has no *what* in place of a noun. Names in code spans exist in the code, as far as their form shows that they are
names of this repository.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.architecture.syntax_trees import nodes
from tests.source_roots import ROOT, SOURCES

OPENERS: Final = {
    "Of", "As", "By", "On", "With", "Where", "What", "For", "Until", "In", "At", "From", "Which", "Who", "Whose",
    "That", "Those", "While", "When", "After", "Before", "Behind", "Beside", "Without", "Within", "Under", "Over",
    "Than", "But", "And", "Or", "Into", "Among", "Between", "Beyond", "Against", "About", "Since", "Through",
}  # fmt: skip
QUOTED: Final = re.compile(r"`[^`]*`|\"[^\"]*\"")
WHAT: Final = re.compile(r"\b[Ww]hat\b")
SPAN: Final = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)`(?!`)")
LABEL: Final = re.compile(r"(?:^|[.;]\s)`([A-Za-z_]\w*)`:", re.MULTILINE)
"""A name that a docstring explains: a parameter, a field or a column."""
PRIVATE: Final = re.compile(r"_[A-Za-z]\w*")
CODED: Final = re.compile(r"[A-Z]+[a-z]+\w*|[A-Za-z]+_\w+")
"""The form of a class, or of a name of several words. A single word may be an English one, or a value of a file."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Docstring(NamedTuple):
    """Docstring of a module, a class or a function, with its place for people: path, line and name."""

    module: str
    place: str
    text: str

    @property
    def first_sentence(self) -> str:
        """Text up to the first full stop, colon, exclamation or question mark."""
        return re.split(r"(?<=[.:!?])\s", self.text.strip(), maxsplit=1)[0]


class Module(NamedTuple):
    """Docstrings of one module, and the words of its code: names, strings and comments."""

    docstrings: list[Docstring]
    words: frozenset[str]


def _module(path: Path) -> Module:
    name = path.relative_to(ROOT).as_posix()
    docstrings, code = [], path.read_text(encoding="utf-8").splitlines()
    for node in nodes(path):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            place = f"{name}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', 'module')}"
            docstrings.append(Docstring(name, place, text))
            first, last = node.body[0].lineno, node.body[0].end_lineno or 0
            code[first - 1 : last] = [""] * (last - first + 1)
    return Module(docstrings, frozenset(re.findall(r"\w+", "\n".join(code))))


@cache
def _modules() -> dict[str, Module]:
    """Modules by their path from the root."""
    return {path.relative_to(ROOT).as_posix(): _module(path) for path in SOURCES}


@cache
def _names() -> frozenset[str]:
    """Words of all modules, and the names of modules and packages."""
    names = {name for module in _modules().values() for name in module.words}
    return frozenset(names.union(*(Path(path).with_suffix("").parts for path in _modules())))


def _faults_of_first(sentence: str) -> Iterator[str]:
    word = re.match(r"[A-Za-z']+", sentence)
    if word and word[0] in OPENERS:
        yield f"opens with {word[0]}"
    if WHAT.search(QUOTED.sub("", sentence)):
        yield "'what' as a noun"


def _unknown_names(text: str, own: frozenset[str], names: frozenset[str]) -> Iterator[str]:
    """Names in code spans that do not exist: labels and private names in the module, others in the repository."""
    yield from (name for name in LABEL.findall(text) if name not in own)
    for span in SPAN.findall(text):
        for name in span.split("."):
            known = own if PRIVATE.fullmatch(name) else names
            if name not in known and (PRIVATE.fullmatch(name) or CODED.fullmatch(name)):
                yield span


def _docstrings() -> Iterator[Docstring]:
    for module in _modules().values():
        yield from module.docstrings


def test_a_first_sentence_names_its_thing() -> None:
    faults = [
        f"{one.place}: {fault}: {one.first_sentence}"
        for one in _docstrings()
        for fault in _faults_of_first(one.first_sentence)
    ]
    assert not faults, "\n".join(faults)


def test_names_in_code_spans_exist() -> None:
    faults = [
        f"{one.place}: {name}"
        for one in _docstrings()
        for name in _unknown_names(one.text, _modules()[one.module].words, _names())
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("Of all lanes together.", "opens with Of"),
        ("Those that there are.", "opens with Those"),
        ("Sends what is queued and leaves.", "'what' as a noun"),
    ],
)
def test_a_sentence_that_needs_a_second_reading_is_a_fault(sentence: str, fault: str) -> None:
    assert list(_faults_of_first(sentence)) == [fault]


@pytest.mark.parametrize("sentence", ["Offers a message.", "Cause of a wait (`what`).", 'Answers "what is this?".'])
def test_a_plain_sentence_is_no_fault(sentence: str) -> None:
    assert not list(_faults_of_first(sentence))


def test_a_name_that_is_gone_is_a_fault() -> None:
    own, names = frozenset({"wall", "_out"}), frozenset({"wall", "_out", "Lane", "find_lane"})
    text = "Finds a `Lane` by `find_lane`, `_out` or `gone`. `wall`: ms since the epoch. `over`: an event. `_gone`, `LostLane`."
    assert list(_unknown_names(text, own, names)) == ["over", "_gone", "LostLane"]

"""Names and shapes of modules, classes and docstrings: one word for one thing, in the field's nouns (docs/glossary.md; words that its
terms have replaced are in tests/architecture/replaced_words.py)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from tests.architecture.syntax_trees import nodes, tree
from tests.source_roots import PACKAGES, ROOT, SOURCES

BANNED_MODULES: Final = {
    "against", "approved", "asked", "begun", "beside", "book", "booking", "bookings", "borrowing", "built", "carried",
    "carry", "casts", "choosing", "chosen", "complaints", "continuing", "copies", "cores", "counting", "crews",
    "declared", "desk", "doubt", "dues", "errand", "evenness", "failing", "figures", "form", "given", "guarded",
    "harm", "held", "holding", "judging", "known", "legible", "lending", "meeting",
    "mending", "parcels", "part", "place", "places", "preparing", "pulse", "reach", "remembered", "room", "seeing",
    "settled", "shared", "sharing", "shown", "sight", "skew", "sole", "standstill", "steered", "surrounded",
    "surroundings", "told", "trial", "trust", "typed", "unsent", "verdicts", "waiting", "waits", "watching", "wired",
    "wiring",
}  # fmt: skip
BANNED_CLASSES: Final = {
    "About", "Account", "Against", "Ask", "Asked", "Book", "Borrower", "Bundle", "Carrier", "Chosen", "Complaints",
    "Counted", "Crew", "Desk", "Ended", "Errand", "Fate", "Found", "Given", "Guard", "Held", "Helpers", "Holder",
    "Holding", "Judged", "Keeper", "Known", "Landed", "Lessee", "Loaded", "Loan", "Mark", "Meeting",
    "Onlooker", "Owner", "Parcel", "Part", "Piece", "Place", "Planned", "Portion", "Prepared", "Purse",
    "Reach", "Remembered", "Rest", "Rests", "Room", "Said", "Seat", "Seen", "Sight", "Slip", "StandStill", "Standing",
    "Stock", "Stored", "Stray", "Surroundings", "Told", "Unsaved", "Unsent", "Wanted", "Why",
}  # fmt: skip
BANNED_NAMES: Final = {"begun", "held", "said", "told"}
"""Participles that name no value: an answer, a detail, messages in flight, the start of a run are nouns."""
QUESTIONS: Final = ("what", "who", "whose", "whoever", "whether", "which", "where", "when", "how", "since", "whatever")
MAX_DOCSTRING_LINE: Final = 120
MAX_ATTRIBUTES: Final = 15
MIN_MODULE: Final = 25
TWICE: Final = 15
"""Class names that may be defined in two modules: roles that several packages have, each with its own class."""


@cache
def _modules() -> dict[str, tuple[ast.AST, ...]]:
    """Nodes of each module, the module first, by its path from the root."""
    return {path.relative_to(ROOT).as_posix(): nodes(path) for path in SOURCES}


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for name, every in _modules().items():
        for node in every:
            if isinstance(node, ast.ClassDef):
                yield name, node


def _basename(module: str) -> str:
    return module.rpartition("/")[2].removesuffix(".py")


def _attributes(node: ast.ClassDef) -> set[str]:
    """What instances of a class carry: fields of its body, and whatever its methods assign to `self`."""
    fields = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    assigned = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == "self"
    }
    return fields | assigned


def test_a_public_class_name_is_defined_once() -> None:
    where: dict[str, set[str]] = defaultdict(set)
    for module, node in _classes():
        if not node.name.startswith("_"):
            where[node.name].add(module)
    twice = {name: sorted(modules) for name, modules in where.items() if len(modules) > 1}
    assert len(twice) <= TWICE, twice


def test_no_module_has_a_word_that_the_glossary_replaces() -> None:
    assert not [module for module in _modules() if _basename(module) in BANNED_MODULES]


def test_no_class_has_a_word_that_the_glossary_replaces() -> None:
    assert not [f"{module}: {node.name}" for module, node in _classes() if node.name.lstrip("_") in BANNED_CLASSES]


def _names(node: ast.AST) -> Iterator[str]:
    """The name that a node gives or uses: of a variable, an argument, an attribute or a definition."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name):
            yield name.strip("_")


def test_no_value_or_function_has_a_participle_that_says_nothing_of_it() -> None:
    found = [
        f"{module}:{getattr(node, 'lineno', 0)}: {name}"
        for module, every in _modules().items()
        for node in every
        for name in _names(node)
        if name in BANNED_NAMES
    ]
    assert not found


def test_a_module_docstring_names_the_module() -> None:
    """It defines no module by a question: a reader searches for the noun."""
    found = []
    for path in SOURCES:
        first = (ast.get_docstring(tree(path)) or "").partition(" ")[0].strip(",.:;").lower()
        if first in QUESTIONS:
            found.append(path)
    assert not found


def test_lines_of_docstrings_are_short() -> None:
    found = []
    for module, every in _modules().items():
        for node in every:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (ast.get_docstring(node, clean=False) or "").splitlines()
                found += [f"{module}: {line.strip()}" for line in lines if len(line) > MAX_DOCSTRING_LINE]
    assert not found


def test_classes_have_few_attributes() -> None:
    """Enumerations and documents (tables of the topology file) are lists by nature: a class with methods is meant."""
    counts = {
        f"{module}: {node.name}": len(_attributes(node))
        for module, node in _classes()
        if any(isinstance(one, ast.FunctionDef) and one.name == "__init__" for one in node.body)
    }
    assert not {name: count for name, count in counts.items() if count > MAX_ATTRIBUTES}


def _methods() -> set[str]:
    return {one.name for _, node in _classes() for one in node.body if isinstance(one, ast.FunctionDef)}


def _is_collaborator(value: ast.expr, classes: set[str], methods: set[str]) -> bool:
    """Whether a value is an object or a function that others call, by how it is written: made here, or a bound method."""
    match value:
        case ast.Tuple(elts=values) | ast.List(elts=values):
            return any(_is_collaborator(one, classes, methods) for one in values)
        case ast.Lambda():
            return True
        case ast.Call(func=function):
            made = ast.unparse(function).rpartition(".")[2]
            return made == "partial" or made in classes
        case ast.Attribute(attr=name):
            return name in methods
    return False


def _made_by_new(every: Iterable[ast.AST]) -> set[str]:
    """Names of objects that a method made by `__new__`, which is their constructor."""
    return {
        target.id
        for node in every
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "__new__"
    }


def test_collaborators_are_given_in_constructors() -> None:
    """An attribute that somebody else sets afterwards is a part that an object may lack."""
    classes = {node.name for _, node in _classes() if "__init__" in {getattr(one, "name", "") for one in node.body}}
    methods, found = _methods(), []
    for module, every in _modules().items():
        made = _made_by_new(every)
        for node in every:
            if not isinstance(node, ast.Assign) and not (
                isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List)
            ):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in [
                one for whole in targets for one in (whole.elts if isinstance(whole, ast.Tuple) else [whole])
            ]:
                outside = (
                    isinstance(target, ast.Attribute)
                    and target.attr != "f_trace"  # of a frame, which Python makes
                    and not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls", *made))
                )
                if outside and _is_collaborator(node.value, classes, methods):
                    found.append(f"{module}:{node.lineno} {ast.unparse(target)}")
    assert not found


def _file_of(module: str) -> str:
    """Path of a module from the root."""
    package, _, rest = module.partition(".")
    folder = PACKAGES[package].relative_to(ROOT).as_posix() if package in PACKAGES else package
    return f"{folder}/{rest.replace('.', '/')}.py"


def test_a_module_that_one_other_imports_has_some_length() -> None:
    importers: dict[str, set[str]] = defaultdict(set)
    for module, every in _modules().items():
        for node in every:
            if isinstance(node, ast.ImportFrom) and node.module:
                for path in (f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)):
                    importers[_file_of(path)].add(module)
    short = {
        module
        for module, path in zip(_modules(), SOURCES, strict=True)
        if _basename(module) not in ("__init__", "__main__")
        and len(path.read_text(encoding="utf-8").splitlines()) < MIN_MODULE
    }
    assert not {module: sorted(importers[module]) for module in short if len(importers[module]) == 1}

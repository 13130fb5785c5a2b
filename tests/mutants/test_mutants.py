"""The mutants' own machinery: which changes there are, where they apply, and who is said to have caught them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.mutants import mutant_set
from tests.mutants.mutant_choice import quotas
from tests.mutants.mutant_set import Mutant, NotApplicableError, mutant_of
from tests.mutants.mutated_copy import GATE, Trial, recorded_first, unit_folder
from tests.mutants.mutation_sites import sites
from tests.mutants.protection_report import Outcome, Result, render, share, table


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("x = a < (b)", ["x = a <= (b)"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a and b", ["x = a or b"]),
        ("x = not a", ["x = a"]),
        ("x = a - 1", ["x = a + 1", "x = a - 2"]),
        ("x += 1.5", ["x -= 1.5", "x += 2.5"]),
        ("x = 'a'", ["x = 'XXaXX'"]),
        ("x = True if a else b", ["x = True if (not (a)) else b", "x = False if a else b"]),
        ("f(a, k=b)", ["pass", "f(a)"]),
        ("x = f(k=b)", ["x = f()"]),
        ("def f(a=2): return a", ["def f(a=3): return a", "def f(a=2): return None"]),
        ("for _ in x: break", ["for _ in x: continue"]),
        ("for _ in x: continue", ["for _ in x: break"]),
    ],
)
def test_each_operator_changes_one_place(source: str, changed: list[str]) -> None:
    assert [site.after for site in sites(source)] == [(line,) for line in changed]


@pytest.mark.parametrize(
    "source",
    ['"""A docstring."""', "x: f('a')", "assert a < b", "x = f'{a < 1}'", "__all__ = ['a']", "X = Literal['a']"],
)
def test_what_says_nothing_at_run_time_is_left_alone(source: str) -> None:
    assert sites(source) == []


def test_a_mutant_is_applied_where_its_lines_are_now_and_says_so_where_they_are_not(tmp_path: Path) -> None:
    source = "def f():\n    return a()\n\n\ndef g():\n    return a()\n"
    mutant = mutant_of("kodoctl/x.py", source, next(site for site in sites(source) if site.line == 6))
    assert mutant.before == ("def g():", "    return a()")
    (tmp_path / "kodoctl").mkdir()
    file = tmp_path / "kodoctl/x.py"
    file.write_text(f"import a\n{source}", encoding="utf-8")
    mutant.apply(tmp_path)
    assert file.read_text(encoding="utf-8") == "import a\ndef f():\n    return a()\n\n\ndef g():\n    return None\n"
    with pytest.raises(NotApplicableError, match="its lines are 0 times"):
        mutant.apply(tmp_path)


def test_the_set_is_read_as_it_was_written(tmp_path: Path) -> None:
    mutant = Mutant("x-1", "kodoctl/x.py", "not", ("a",), ("b",), ("tests/unit/test_x.py::test_x",))
    mutant_set.save([dataclasses.replace(mutant, id="x-2"), mutant], tmp_path / "set.json")
    assert mutant_set.load(tmp_path / "set.json") == [mutant, dataclasses.replace(mutant, id="x-2")]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A tree with a test that passes, two that fail, one of them `full`, and a module that cannot be imported."""
    folder = tmp_path / "tree/tests/unit"
    folder.mkdir(parents=True)
    (tmp_path / "tree/pytest.ini").write_text("[pytest]\nmarkers = full\n", encoding="utf-8")
    (folder / "test_x.py").write_text(
        "from pytest import mark\ndef test_good(): pass\n@mark.parametrize('n', [1])\ndef test_bad(n): assert not n\n"
        "@mark.full\ndef test_long(): assert False\n",
        encoding="utf-8",
    )
    (folder / "test_y.py").write_text("import nothing_of_that_name\ndef test_any(): pass\n", encoding="utf-8")
    return Trial(tmp_path)


def test_tests_that_fail_are_named(trial: Trial) -> None:
    assert trial.failing(["tests/unit/test_x.py::test_good", "tests/unit/test_x.py::test_long"], GATE) == ()
    assert trial.failing(["tests/unit"], GATE, most=9) == ("tests/unit/test_y.py",)
    assert trial.failing(["tests/unit/test_x.py::test_gone"], GATE) == ("tests/unit/test_x.py::test_bad[1]",)
    assert trial.failing(["tests/unit/test_x.py::test_good", "tests/unit/test_y.py::test_any"], GATE) == (
        "tests/unit/test_y.py",
    )


def test_what_keeps_all_tests_from_being_imported_fails_the_tests_that_were_asked_for(trial: Trial) -> None:
    (trial.tree / "tests/conftest.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    good = "tests/unit/test_x.py::test_good"
    assert trial.failing([good], GATE) == (good,)


@pytest.mark.parametrize(
    ("test", "instead"),
    [
        ("tests/unit/test_x.py::test_bad[2]", "tests/unit/test_x.py::test_bad"),
        ("tests/unit/test_x.py::test_ba", "tests/unit/test_x.py"),
        ("tests/unit/test_z.py::test_bad", "tests/unit"),
        ("tests/unit/z/test_z.py", "tests/unit"),
    ],
)
def test_for_a_test_that_is_gone_its_file_stands_in_or_the_nearest_folder(
    trial: Trial, test: str, instead: str
) -> None:
    assert trial.nearest([test]) == [instead]


def test_tests_are_run_from_the_recorded_ones_outwards() -> None:
    assert unit_folder("kodoctl/plan/danger/x.py") == "tests/unit/plan/danger"
    assert unit_folder("consumer/kodo_consumer/core/x.py") == "tests/unit/consumer/core"
    mutant = Mutant("x-1", "kodoctl/x.py", "not", ("a",), ("b",), ("tests/broker/test_x.py::test_x",))
    narrow = list(recorded_first(mutant, wide=False))
    assert narrow == [mutant.caught_by, ("tests/unit",)]
    assert list(recorded_first(mutant, wide=True))[: len(narrow)] == narrow


def test_every_kept_mutant_applies_to_the_tree() -> None:
    """A changed line of the product ended the measurement, or left it out, and nobody noticed before the next night."""
    kept = mutant_set.load()
    assert len(kept) >= 120
    assert [one.id for one in kept if not one.applies(mutant_set.ROOT)] == []


def test_every_package_has_a_mutant_and_a_large_one_more() -> None:
    assert quotas({"a": 900, "b": 100, "c": 1}, 20) == {"a": 18, "b": 2, "c": 1}


def test_the_share_counts_what_only_full_tests_catch_against_the_gate() -> None:
    mutants = [Mutant(f"x-{number}", f"kodoctl/p{number % 2}/x.py", "not", ("a",), ("b",)) for number in range(4)]
    outcomes = [Outcome.GATE, Outcome.GATE, Outcome.GATE, Outcome.FULL]
    results = [Result(one, outcome, "t", 1.0) for one, outcome in zip(mutants, outcomes, strict=True)]
    assert share(results) == 0.75
    assert table(results).splitlines()[2:] == [
        "| kodoctl/p0 | 2 | 2 | 0 | 0 |", "| kodoctl/p1 | 2 | 1 | 1 | 0 |", "| **all** | 4 | 3 | 1 | 0 |",
    ]  # fmt: skip
    assert "| x-3 | kodoctl/p1/x.py | not | only full | t |" in render(results, 60.0)

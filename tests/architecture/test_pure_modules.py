"""Marks of pure modules: written so that they are read, and the nearest one holds."""

from __future__ import annotations

import json
from pathlib import Path

from tests.architecture.missing_branches import missing
from tests.architecture.pure_modules import MARK, first_line, pure_modules
from tests.source_roots import SOURCES


def test_a_comment_on_the_first_line_of_a_module_is_a_mark() -> None:
    """One that is misspelt would leave a pure module untested in silence."""
    comments = {path: first_line(path) for path in SOURCES}
    assert not {str(path): line for path, line in comments.items() if line.startswith("#") and not MARK.fullmatch(line)}


def test_the_nearest_mark_holds(tmp_path: Path) -> None:
    lines = {
        "__init__.py": "",
        "edge.py": '"""No mark at all."""',
        "rule.py": "# pure: every branch is tested",
        "plan/__init__.py": "# pure: every branch is tested",
        "plan/diff.py": "",
        "plan/reader.py": "# adapter: reads the broker",
        "plan/spark/__init__.py": "# adapter: runs Spark",
        "plan/spark/job.py": "",
        "plan/spark/windows.py": "# pure: every branch is tested",
        "plan/levels/choice.py": "",
    }
    for name, line in lines.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{line}\n", encoding="utf-8")
    pure = [path.relative_to(tmp_path).as_posix() for path in pure_modules(tmp_path)]
    assert pure == ["plan/__init__.py", "plan/diff.py", "plan/levels/choice.py", "plan/spark/windows.py", "rule.py"]


def test_what_no_test_ran_is_named_but_for_what_cannot_run(tmp_path: Path) -> None:
    source = (
        "def f(x):\n    match x:\n        case 1:\n            return 1\n        case _:\n            assert_never(x)\n"
    )
    (tmp_path / "a.py").write_text(source, encoding="utf-8")
    file = {"missing_lines": [4, 5, 6], "missing_branches": [[2, 3], [2, 6]]}
    report = tmp_path / "branches.json"
    report.write_text(json.dumps({"files": {"a.py": file}}), encoding="utf-8")
    assert list(missing(report, tmp_path, ["a.py", "b.py"])) == ["b.py", "a.py:4", "a.py:2->3"]

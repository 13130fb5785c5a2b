"""Marks of pure modules: written so that they are read, and the nearest one holds."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.pure_modules import MARK, PACKAGES, first_line, pure_modules


def test_a_comment_on_the_first_line_of_a_module_is_a_mark() -> None:
    """One that is misspelt would leave a pure module untested in silence."""
    comments = {path: first_line(path) for package in PACKAGES for path in package.rglob("*.py")}
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

"""Plan files as commands read and write them, whatever plan is in them."""

from __future__ import annotations

from pathlib import Path

from kodoctl.errors import UsageError, Where, error


def read_plan_text(file: str, written_by: str) -> str:
    """The text of a plan file; `written_by`: the command that writes such files, for who has none. Raises UsageError."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        detail = f"there is no such plan file; `{written_by} --out FILE` writes one"
        raise UsageError(error("K016", "cannot read file", detail, Where(file))) from None
    except (OSError, ValueError) as problem:
        reason = str(getattr(problem, "strerror", None) or problem)
        raise UsageError(error("K016", "cannot read file", reason, Where(file))) from None


def write_plan_text(text: str, out: str) -> None:
    """A plan file, complete or not at all. Raises UsageError."""
    path = Path(out)
    scratch = path.with_name(f".{path.name}.new")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)
    except OSError as problem:
        scratch.unlink(missing_ok=True)
        raise UsageError(error("K535", "the plan file cannot be written", str(problem.strerror), Where(out))) from None

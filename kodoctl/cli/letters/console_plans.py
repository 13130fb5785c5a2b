"""Files of the plans on messages that a console carries out. They stay until everything in them is done.

Beside each file lies another one with the command line that continues the plan. The next console may have another
context or another ledger, with which the same plan would send messages twice.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from kodoctl.cli.common.plan_files import write_plan_text
from kodoctl.errors import UsageError, error
from kodoctl.host.private_files import OWN, make_private, write_private

PLANS: Final = Path(OWN, "plans")
"""Folder, in the working folder, of the plans that are not finished."""
_COMMAND: Final = ".command"


def store_plan(text: str, file: Path, continuing: str) -> None:
    """Writes the file of a plan, and beside it the file with the command line that continues the plan. Raises
    UsageError (K535, K021).
    """
    try:
        make_private(file.parent)
        write_private(file.with_suffix(_COMMAND), f"{continuing}\n")
    except OSError as problem:
        detail = f"{file.parent}: {problem.strerror}"
        raise UsageError(error("K535", "the plan file cannot be written", detail)) from None
    write_plan_text(text, str(file))


def forget_plan(file: Path) -> None:
    """Removes the file of a plan, and the file with its command line, if they are in PLANS; a file in another folder
    stays, because it belongs to the user. Raises no OSError. To call only if nothing of the plan is left to do.
    """
    with suppress(OSError):
        if file.parent.resolve() == PLANS.resolve():
            file.unlink(missing_ok=True)
            file.with_suffix(_COMMAND).unlink(missing_ok=True)


def unfinished_plans() -> list[tuple[Path, str, str]]:
    """Returns (file, text, command line that continues it) for each plan in PLANS, sorted by file. The command line is
    "" if its file cannot be read. A plan whose file cannot be read, because the plan was finished meanwhile for
    example, is left out.
    """
    found: list[tuple[Path, str, str]] = []
    for file in sorted(PLANS.glob("*.json")):
        with suppress(OSError):
            found.append((file, _text(file), _command_beside(file)))
    return found


def _command_beside(file: Path) -> str:
    try:
        return _text(file.with_suffix(_COMMAND)).strip()
    except OSError:
        return ""


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")

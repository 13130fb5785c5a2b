"""Workflow commands that become annotations on the lines of a pull request (GitHub, and
forges that read the same).
"""

from __future__ import annotations

_KINDS = {"error": "error", "warning": "warning", "note": "notice"}


def annotation(severity: str, title: str, text: str, where: tuple[str, int, int] | None = None) -> str:
    """Returns one line. `severity`: error, warning or note; `where`: file, line and column, 0 if unknown.

    Nothing in a name can end the command or begin another: %, line breaks, and in properties : and , are escaped.
    """
    place = ""
    if where is not None:
        file, line, column = where
        place = f"file={_property(file)},line={line or 1},col={column or 1},"
    return f"::{_KINDS[severity]} {place}title={_property(title)}::{_message(text)}"


def _message(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _message(value).replace(":", "%3A").replace(",", "%2C")

"""Faults of the infrastructure: errors that no message causes and that no retry mends, such as a missing table, a
missing right, a full disk or a database that is gone. This module alone says which errors those are: for handlers, for
code in their transactions, and for the outbox. Any other error is the message's own, or the program's.

Databases are understood by the numbers of their drivers (SQLSTATE, result codes of SQLite): no driver is imported.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kodoctl.text.escaping import one_line


class FaultKind(StrEnum):
    """Kind of a fault. LACKING: something is missing that a person has to create, such as a table or a right. AWAY: the
    part cannot be used now, for example because it is unreachable, full, read-only or damaged. BUSY: the call waited
    too long for others or collided with them, and may succeed in a moment.
    """

    LACKING = "lacking"
    AWAY = "away"
    BUSY = "busy"


class Fault(NamedTuple):
    """A fault of the infrastructure. `what`: the part that fails, "machine" or "database"; `text`: the error's words,
    on one line.
    """

    kind: FaultKind
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.what} ({self.text})"


_MAX_TEXT: Final = 160  # characters
_MAX_CHAIN: Final = 8  # errors that were raised from one another
_NO_TABLE: Final = frozenset({"42P01", "42S02"})  # SQLSTATE; of MySQL, too
_STATES: Final = {
    **dict.fromkeys([*_NO_TABLE, "42703", "42S22", "3F000", "3D000", "42501", "28"], FaultKind.LACKING),
    **dict.fromkeys(["08", "53", "57", "58", "25006", "XX001", "XX002", "F0"], FaultKind.AWAY),
    **dict.fromkeys(["40", "55P03", "57014", "25P03"], FaultKind.BUSY),
}
"""Kinds by SQLSTATE, or by the class of it (two characters)."""
_SQLITE: Final = {
    **dict.fromkeys([sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH], FaultKind.LACKING),
    **dict.fromkeys(
        [
            sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT,
            sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOTADB,
        ],
        FaultKind.AWAY,
    ),
    **dict.fromkeys([sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT], FaultKind.BUSY),
}  # fmt: skip
_PRIMARY: Final = 0xFF  # the part of a result code of SQLite without its details
_SQLITE_NO_TABLE: Final = "no such table"
_SQLITE_LACKS: Final = (_SQLITE_NO_TABLE, "no such column", "has no column named")
_MACHINE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE})
_AWAY_BY_NAME: Final = (".OperationalError", ".InterfaceError", "sqlalchemy.exc.TimeoutError")
"""Ends of names of classes of errors that come without a number: a connection that cannot be made, is closed, or that a
pool does not give.
"""


def fault_of(problem: BaseException) -> Fault | None:
    """Fault of the infrastructure that this error reports; else that of the first error in the chain of up to 7 errors
    from which it was raised (`raise … from`, as layers between a handler and its database do) that reports one; None if
    none does. A refused connection is a fault only as a database's error: of OSError, only a full or read-only disk, a
    used up quota and too many open files are.
    """
    one: BaseException | None = problem
    for _ in range(_MAX_CHAIN):
        if one is None:
            break
        if (fault := _known_fault(one)) is not None:
            return fault
        one = one.__cause__
    return None


def _known_fault(problem: BaseException) -> Fault | None:
    if isinstance(problem, OSError):
        is_machine = problem.errno in _MACHINE
        return Fault(FaultKind.AWAY, "machine", os.strerror(problem.errno or 0)) if is_machine else None
    kind = _database_kind(problem)
    return None if kind is None else Fault(kind, "database", words(problem))


def lacks_table(problem: BaseException) -> bool:
    """True if this error of a driver (or of SQLAlchemy, with the driver's error in it) reports by its SQLSTATE or, of
    SQLite, by its text that a table is not there. Errors from which it was raised do not count.
    """
    origin = _origin(problem)
    return _state(origin) in _NO_TABLE or (_code(origin) == sqlite3.SQLITE_ERROR and _SQLITE_NO_TABLE in str(origin))


def words(problem: BaseException) -> str:
    """First line of the text of an error, cut to 160 characters and then escaped as by `one_line`; if it has no text,
    the name of its class. An error of SQLAlchemy with a driver's error in it counts as that one, because its own text
    has the statement and the values as well.
    """
    origin = _origin(problem)
    lines = str(origin).strip().splitlines()
    return one_line(lines[0], _MAX_TEXT) if lines else type(origin).__name__


def _database_kind(problem: BaseException) -> FaultKind | None:
    origin = _origin(problem)
    if state := _state(origin):
        return _STATES.get(state) or _STATES.get(state[:2])
    if (code := _code(origin)) is not None:
        if code == sqlite3.SQLITE_ERROR and any(text in str(origin) for text in _SQLITE_LACKS):
            return FaultKind.LACKING
        return _SQLITE.get(code & _PRIMARY)
    names = [f"{kind.__module__}.{kind.__name__}" for one in (problem, origin) for kind in type(one).__mro__]
    return FaultKind.AWAY if any(name.endswith(_AWAY_BY_NAME) for name in names) else None


def _origin(problem: BaseException) -> BaseException:
    """Error of the driver within one of SQLAlchemy."""
    origin = getattr(problem, "orig", None)
    return origin if isinstance(origin, BaseException) else problem


def _state(origin: Any) -> str:
    state = getattr(origin, "sqlstate", None)
    return state if isinstance(state, str) else ""


def _code(origin: Any) -> int | None:
    code = getattr(origin, "sqlite_errorcode", None)
    return code if isinstance(code, int) else None

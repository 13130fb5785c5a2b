"""Connection to a source's database by the name of an environment variable. No text has the URL: it may hold a password."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kodoctl.host.extras import install_command

if TYPE_CHECKING:
    import psycopg

TIMEOUT: Final = 10  # seconds for a connection, and for a lock
_DRIVER: Final = re.compile(r"^(postgres(?:ql)?)\+\w+(?=://)")  # as SQLAlchemy writes addresses

_PORTS: Final = re.compile(r"^(\d{1,5}(,\d{1,5})*)?$")


class DatabaseError(Exception):
    """A database that cannot be reached, or that refused a statement. The message is one line without the URL."""


@contextlib.contextmanager
def connection_of(
    variable: str, variables: Mapping[str, str], *, replication: str | None = None
) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Context with a connection, on which each statement is a transaction of its own. Waits at most 10 s (TIMEOUT)
    for each address of a host, unless the variable says otherwise; without `replication`, a statement waits at most 10
    s for a lock. Nothing limits the time in which a server answers a statement. Raises DatabaseError, also for errors
    of statements inside the context. `replication`: libpq's parameter of this name; None: no replication.
    """
    options = address_of(variable, variables)
    import psycopg

    if replication is not None:
        options["replication"] = replication
    try:
        settings = {"connect_timeout": TIMEOUT, "application_name": "kodoctl", **options}
        try:
            opened = psycopg.connect(**settings, autocommit=True, prepare_threshold=None)
        except UnicodeError:  # an empty or long part of a host, which psycopg itself looks up
            raise DatabaseError(f"the value of {variable} names a host that no host can have") from None
        with opened as connection:
            if replication is None:
                connection.execute(f"SET lock_timeout = '{TIMEOUT}s'")
            yield connection
    except psycopg.Error as problem:
        raise DatabaseError(_text(problem, options)) from None


def address_of(variable: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Options of libpq in the address that a variable holds; does not connect. Raises DatabaseError if it holds none,
    or one that cannot be read, and if psycopg is not installed.
    """
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise DatabaseError(f"psycopg is not installed: {install_command('postgres')}") from None
    url = variables.get(variable, "").strip()
    if not url:
        raise DatabaseError(f"the variable {variable} is not set")
    if "://" in url and url.count("@") > 1:
        raise DatabaseError(f"the value of {variable} has more than one @: write %40 for an @ in the password")
    try:
        options: dict[str, Any] = conninfo_to_dict(_DRIVER.sub(r"\1", url))
    except (Error, UnicodeError):  # their texts repeat the value, which may have bytes that are not UTF-8
        raise DatabaseError(
            f"the value of {variable} is no address: write postgresql://USER:PASSWORD@HOST/DATABASE"
        ) from None
    if "://" in url and ("@" in str(options.get("dbname")) or not _PORTS.match(str(options.get("port") or ""))):
        raise DatabaseError(
            f"the value of {variable} has a / or : too many: write %2F for a / in the password, %3A for a :"
        )
    return options


def _text(problem: psycopg.Error, options: Mapping[str, Any]) -> str:
    """The first line of an error, without the password."""
    text = str(problem).strip().partition("\n")[0] or type(problem).__name__
    secret = str(options.get("password") or "")
    return text.replace(secret, "***") if secret else text

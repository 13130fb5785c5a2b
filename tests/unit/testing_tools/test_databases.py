"""The databases that tests get: real, empty, apart from each other, and gone afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from tests.services import databases
from tests.services.databases import Postgres


@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_has_an_empty_database(database_url: str, turn: int) -> None:
    engine = create_engine(database_url, poolclass=NullPool)
    assert inspect(engine).get_table_names() == []
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))


def test_a_server_of_ones_own_goes_away_and_comes_back_with_its_data(own_postgres: Postgres) -> None:
    engine = create_engine(own_postgres.create(), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
    own_postgres.stop()
    with pytest.raises(OperationalError):
        engine.connect()
    own_postgres.start()
    assert inspect(engine).get_table_names() == ["orders"]


def test_the_server_of_a_test_process_that_was_killed_is_cleared_away() -> None:
    program = "import time; from tests.services.databases import Postgres; Postgres(); print('up', flush=True); time.sleep(60)"
    root = Path(databases.__file__).parents[1]
    with subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        (folder,) = Path(tempfile.gettempdir()).glob(f"kodo-pg-{process.pid}-*")
        server = int((folder / "postmaster.pid").read_text().split("\n")[0])
        process.send_signal(signal.SIGKILL)
    assert Path(f"/proc/{server}").exists()
    databases._clear_leftovers()
    assert not Path(f"/proc/{server}").exists()
    assert not folder.exists()

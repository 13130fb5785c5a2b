"""Settings of stores, marks in files, and what stores keep."""

from __future__ import annotations

import fcntl
import logging
import multiprocessing
import os
import resource
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.adapters.stores.factory import StorePlace, parse_store
from kodo_consumer.adapters.stores.memory_store import MemoryStore
from kodo_consumer.adapters.stores.mmap_marks import FileStore, open_file_store
from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.adapters.stores.sql_tables import create_missing, metadata
from kodo_consumer.core.values.lane_selection import LaneSelection, select_lanes
from kodo_consumer.core.values.poison import CrashMark
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.core.values.store import Exchange, StoreDownError
from kodo_consumer.runtime.idempotent_executor import IdempotentExecutor, _open, guard_executor
from kodo_consumer.runtime.settings import Settings, read_settings
from kodo_consumer.testing import ManualClock
from kodo_consumer.testing.harness import InlineExecutor
from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from kodoctl.errors import KodoctlError
from tests.unit.consumer.engine_bench import policy

CANARY = "c2VjcmV0LWNhbmFyeQ"


def _settings(tmp_path: Path, text: str, **environ: str) -> Settings:
    (tmp_path / "kodo-consumer.toml").write_text(text, encoding="utf-8")
    return read_settings(environ, tmp_path)


def test_a_store_is_an_address_and_prints_without_its_password(tmp_path: Path) -> None:
    settings = _settings(
        tmp_path,
        f'store = "postgresql://kodo:{CANARY}@db.example/shop?sslpassword={CANARY}"\non_store_down = "go_on"\nstore_keep = "12h"',
    )
    assert settings.store is not None
    assert (settings.on_store_down, settings.store_keep) == ("go_on", 12 * 3_600_000)
    assert settings.store.url.drivername == "postgresql+psycopg"
    assert settings.store.url.password == CANARY
    assert str(settings.store) == "postgresql+psycopg://kodo:***@db.example/shop"
    assert CANARY not in f"{settings!r} {settings.store!r}"


def test_the_address_of_a_variable_goes_before_the_files(tmp_path: Path) -> None:
    settings = _settings(
        tmp_path, 'store = "memory"', KODO_CONSUMER_STORE="sqlite:///a.db", KODO_CONSUMER_CRASH_MARKS="m"
    )
    assert str(settings.store) == "sqlite:///a.db"
    assert settings.crash_marks == Path("m")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'store = "kodo:{CANARY}@db.example"', "no address of a database"),
        (f'store = "mysql://kodo:{CANARY}@db.example/shop"', "mysql is no store: write memory, sqlite:///kodo.db or"),
        ('store = "sqlite://"', "SQLite needs a file"),
        ('store = "sqlite:///file::memory:?cache=shared&uri=true"', "SQLite needs a file"),
        ('on_store_down = "ignore"', "write pause or go_on"),
    ],
)
def test_what_is_no_store_is_refused_without_its_password(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(KodoctlError, match=said) as refused:
        _settings(tmp_path, text)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"postgresql://kodo:{CANARY}@db/shop", "postgresql+psycopg://kodo:***@db/shop"),
        (
            f"postgresql://kodo@db/shop?sslmode=require&password={CANARY}&sslpassword={CANARY}&odd={CANARY}",
            "postgresql+psycopg://kodo@db/shop?sslmode=require",
        ),
        ("sqlite:///kodo.db?timeout=5", "sqlite:///kodo.db?timeout=5"),
        ("memory", "memory"),
    ],
)
def test_an_address_is_shown_without_its_secrets(text: str, said: str) -> None:
    assert str(StorePlace(parse_store(text))) == said


def test_a_store_that_cannot_be_asked_is_told_without_its_password(caplog: pytest.LogCaptureFixture) -> None:
    place = StorePlace(parse_store(f"postgresql://kodo:{CANARY}@127.0.0.1:1/shop"))
    runner = guard_executor(InlineExecutor(print), policy(), Settings(store=place), ManualClock())
    assert isinstance(runner, IdempotentExecutor)
    with caplog.at_level(logging.DEBUG), pytest.raises(KodoctlError, match="K741") as refused:
        runner.start(None)  # type: ignore[arg-type]
    runner.stop()
    assert "Connection refused" in str(refused.value)
    assert CANARY not in str(refused.value) + caplog.text


def test_memory_is_a_store_and_without_any_there_is_no_guard(tmp_path: Path) -> None:
    assert isinstance(StorePlace(parse_store("memory")).open("p/n/t:s"), MemoryStore)
    inner = InlineExecutor(print)
    assert guard_executor(inner, policy(), Settings(), ManualClock()) is inner
    marked = guard_executor(inner, policy(), Settings(crash_marks=tmp_path / "marks"), ManualClock())
    assert isinstance(marked, IdempotentExecutor)
    marked.stop()


# ---- marks in files


def test_marks_of_a_worker_that_lives_are_left_alone(tmp_path: Path) -> None:
    a = open_file_store(tmp_path / "marks", "p/n/t:s")
    a.exchange(Exchange(starting=["1"]))
    b = open_file_store(tmp_path / "marks", "p/n/t:s")
    assert b.exchange(Exchange(starting=["1"])).marks == {}
    for store in (a, b):
        store.leave()
        store.close()
    assert list((tmp_path / "marks").iterdir()) == []


def _start_and_die(folder: Path, names: list[str]) -> None:
    store = FileStore(folder, "p/n/t:s", f"child:{os.getpid()}")
    store.exchange(Exchange(starting=names))
    store.exchange(Exchange(done=names[:1], ended=names[1:2]))
    if "poison" in names:
        assert store.take_over("poison", CrashMark(store.run), CrashMark(store.run, alone=True, crashes=1))
    os._exit(7)


def test_what_a_dead_worker_had_started_makes_suspects_for_the_next(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(
        target=_start_and_die, args=(tmp_path, ["done", "failed", "started", "poison", "日本" * 33])
    )
    child.start()
    child.join()
    assert child.exitcode == 7
    other = FileStore(tmp_path, "p/n/other:s", "o")
    assert other.exchange(Exchange(starting=["started"])).marks == {}, "another subscription's"
    store = FileStore(tmp_path, "p/n/t:s", "b")
    marks = store.exchange(Exchange(starting=["done", "failed", "started", "poison", "日本" * 33, "new"])).marks
    assert marks == {
        "started": CrashMark(""),
        "poison": CrashMark("", alone=True, crashes=1),
        "日本" * 33: CrashMark(""),
    }
    assert not store.take_over("poison", CrashMark(""), CrashMark("b"))
    assert store.take_over("poison", marks["poison"], CrashMark("b", crashes=3))
    assert store.exchange(Exchange(starting=["poison"])).marks == {"poison": CrashMark("b", crashes=3)}
    assert store.take_over("started", marks["started"], CrashMark("b", alone=True))
    store.exchange(Exchange(done=["started", "poison"]))
    store.leave()
    store.close()
    last = FileStore(tmp_path, "p/n/t:s", "c")
    assert last.exchange(Exchange(starting=["started", "poison", "new", "日本" * 33])).marks == {
        "日本" * 33: CrashMark("")
    }
    last.close()
    other.close()


def test_more_marks_than_there_is_room_for_is_a_store_that_is_down(tmp_path: Path) -> None:
    store = FileStore(tmp_path, "p/n/t:s", "a")
    assert store.beat() == {"a": 1}
    assert store.prune(0, 0) == 0
    store.create()
    store.interrupt()
    with pytest.raises(StoreDownError):
        store.exchange(Exchange(starting=[str(number) for number in range(8_193)]))
    store.close()


def test_marks_that_one_worker_cannot_take_wait_for_the_next(tmp_path: Path) -> None:
    names = [str(number) for number in range(1_500)]
    dead = FileStore(tmp_path, "p/n/t:s", "a")
    dead.exchange(Exchange(starting=names))
    dead.close()
    second, third = FileStore(tmp_path, "p/n/t:s", "b"), FileStore(tmp_path, "p/n/t:s", "c")
    first_part, rest = (store.exchange(Exchange(starting=names)).marks for store in (second, third))
    assert (len(first_part), len(rest)) == (1_024, 476)
    assert set(first_part).isdisjoint(rest)
    assert len(list(tmp_path.iterdir())) == 2
    for store in (second, third):
        store.close()


def test_a_file_that_another_worker_takes_for_a_dead_ones_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, files = fcntl.flock, []

    def flock(file: Any, operation: int) -> None:
        if not files:
            files.append(file)
            FileStore(tmp_path, "p/n/t:s", "other").close()
        lock(file, operation)

    monkeypatch.setattr("kodo_consumer.adapters.stores.mmap_marks.fcntl.flock", flock)
    store = FileStore(tmp_path, "p/n/t:s", "a")
    assert (tmp_path / store._path).exists()
    store.exchange(Exchange(starting=["x"]))
    store.close()
    heir = FileStore(tmp_path, "p/n/t:s", "b")
    assert heir.exchange(Exchange(starting=["x"])).marks == {"x": CrashMark("")}
    heir.close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KodoctlError, match="K740"):
        open_file_store(tmp_path / "file" / "marks", "p/n/t:s")


def test_a_file_of_marks_has_its_room_on_the_disk_from_the_start(tmp_path: Path) -> None:
    """The first mark in a sparse file on a full disk ended the process by SIGBUS."""
    store = open_file_store(tmp_path, "p/n/t:s")
    found = store._path.stat()
    assert found.st_blocks * 512 >= found.st_size == 8_192 * 256
    store.close()


def test_a_file_of_marks_without_room_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(KodoctlError, match="K740"):
            open_file_store(tmp_path, "p/n/t:s")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_mark_is_none(tmp_path: Path) -> None:
    FileStore(tmp_path, "p/n/t:s", "a").close()
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"\x01\x00\x00\x00\xff\xff" + b"x" * 250 + b"\x01")
    store = FileStore(tmp_path, "p/n/t:s", "b")
    assert [path.name for path in tmp_path.iterdir()] == [f"{file.name.split('.')[0]}.b.marks"]
    store.close()


def test_marks_of_a_crash_are_for_workers_of_the_same_lanes(tmp_path: Path) -> None:
    """Else one that never gets the message would adopt the marks, and the one that gets it know of no crash."""

    def group(of: Policy) -> str:
        store = _open(of, Settings(crash_marks=tmp_path))
        assert store is not None
        (path,) = tmp_path.iterdir()
        store.leave()
        store.close()
        return path.name.partition(".")[0]

    ready, others = (select_lanes(policy(), LaneSelection.parse(text)) for text in ("ready", "!ready"))
    assert group(ready) == group(ready)
    assert len({group(ready), group(others), group(policy())}) == 3


def test_workers_that_start_together_create_each_table_once_whoever_is_first(tmp_path: Path) -> None:
    """The other one is first with every table, between this one's check and its statement."""
    file = tmp_path / "store.db"
    url = make_url(f"sqlite:///{file}")

    def rush(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "CREATE" in statement and "IF NOT EXISTS" not in statement:
            with closing(sqlite3.connect(file)) as other:
                other.execute(statement)

    store = SqlStore(url, "kodo/ns/t:s", "w1")
    event.listen(store._engine, "before_cursor_execute", rush)
    store.create()
    store.close()
    with closing(sqlite3.connect(file)) as found:
        names = {name for (name,) in found.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names == set(metadata.tables)


def test_a_database_deletes_some_old_ids_in_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.stores.sql_store.MOST_PRUNED", 4)
    monkeypatch.setattr("kodo_consumer.adapters.stores.sql_store._PRUNE_BUNDLE", 2)
    store = SqlStore(make_url(f"sqlite:///{tmp_path}/store.db"), "p/n/t:s", "a")
    store.create()
    for number in range(8):
        store.exchange(Exchange(done=[str(number)]))
        time.sleep(0.002)  # the database's clock counts milliseconds
    assert [store.prune(1, 0) for _ in range(3)] == [4, 3, 0]
    store.close()


def test_who_has_a_transaction_of_its_own_is_told_that_the_tables_cannot_be_made(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'store.db'}")

    def refuse(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "CREATE" in statement:
            raise OperationalError(statement, None, Exception("no room"))

    event.listen(engine, "before_cursor_execute", refuse)
    with engine.connect() as connection, pytest.raises(OperationalError, match="no room"):
        create_missing(connection)
    engine.dispose()

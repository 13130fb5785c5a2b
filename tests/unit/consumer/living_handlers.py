"""A consumer whose handler runs in a process, with a lifespan there. Each writes its process to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from kodo_consumer import Consumer, Depends, Message

from tests.unit.consumer.engine_bench import policy

LINES = "KODO_TEST_LINES"
FAILS = "KODO_TEST_LIFESPAN_FAILS"  # at its end, if it is set
connections: list[Any] = []  # broker and cluster, in the process of the worker
consumer = Consumer(policy(), lambda: connections[0])


def _write(what: str) -> None:
    with Path(os.environ[LINES]).open("a", encoding="utf-8") as file:
        file.write(f"{what} {os.getpid()}\n")


@consumer.lifespan
def pool() -> Iterator[str]:
    _write("made")
    yield "used"
    _write("left")
    if FAILS in os.environ:
        raise OSError("cannot close\nfor a reason")


@consumer.handler(process=1)
def keep(message: Message, what: Annotated[str, Depends(pool)]) -> None:
    _write(what)

"""Handlers that processes of the pool import. What to do stands in the payload."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from contextvars import ContextVar

from kodo_consumer.core.values.exceptions import (
    Blocking,
    Dead,
    Discard,
    MoveTo,
    Pending,
    Postpone,
    Repeat,
    Retry,
    Transfer,
    Unavailable,
)
from kodo_consumer.message import Message

_MIB = 1 << 20
TENANT: ContextVar[str | None] = ContextVar("TENANT", default=None)
_VERDICTS = {
    "retry": Retry("30s"), "pending": Pending("later"), "blocking": Blocking(), "dead": Dead("bad"),
    "discard": Discard("old"), "move": MoveTo("L2"), "repeat": Repeat(), "down": Unavailable("bank"),
    "postpone": Postpone("30s", "closed"),
    "transfer": Transfer("other", b"new", key="k", properties={"a": "b"}),
}  # fmt: skip


def handle(message: Message) -> None:
    """`word` or `word:argument`."""
    word, _, argument = message.text().partition(":")
    match word:
        case "fine" | "":
            pass
        case "sleep":
            time.sleep(float(argument))
        case "fail":
            raise ValueError(argument)
        case "exit":
            sys.exit(3)
        case "os-exit":
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "memory" if not os.path.exists(argument):  # noqa: PTH110  # the system ends it, as when memory runs out
            os.close(os.open(argument, os.O_CREAT | os.O_WRONLY))
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (64 * _MIB, hard))
            try:
                bytearray(512 * _MIB)
            except MemoryError:
                os.kill(os.getpid(), signal.SIGKILL)
        case "memory":
            pass
        case "once":  # ends its process the first time only
            path = argument
            if not os.path.exists(path):  # noqa: PTH110
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
                os._exit(1)
        case "note":
            descriptor = os.open(argument, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.write(descriptor, f"{message.id}\n".encode())
            os.close(descriptor)
        case "look":
            seen = message.properties, message.key, message.tenant, message.attempt, message.topic, message.reason
            raise Dead(repr(seen))
        case "context":
            left_behind = TENANT.get()
            TENANT.set(message.id)
            raise Dead(repr(left_behind))
        case _:
            raise _VERDICTS[word]


async def later(message: Message) -> None:
    """A coroutine function."""


def two(message: Message, other: object) -> None:
    """One parameter too many."""


def wrapped(message: Message) -> object:
    """A plain function around an async one; `value`: one that returns what nobody asked for."""
    return "billed" if message.text() == "value" else later(message)


def read(message: Message) -> None:
    message.json()

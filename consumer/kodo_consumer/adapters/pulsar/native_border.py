"""Native border: the optional package kodo-fast, through which the consumer reads, acknowledges and publishes in bundles.

Nothing depends on it: where it is switched off, not installed, or refuses the client library it finds, pulsar-client's
own binding does the same work, and the status says why.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kodo_consumer.core.values.broker import BorderStatus
from kodo_consumer.core.values.envelope import Delivery, Outgoing
from kodoctl.pulsar.connection.message_border import NATIVE_INTERFACE

if TYPE_CHECKING:
    from kodo_fast import NativeBorder


class BorderChoice(NamedTuple):
    """The native border, None where it is not used, and the status that says why."""

    border: NativeBorder | None
    status: BorderStatus


def choose_border(*, native: bool = True) -> BorderChoice:
    """The choice of this process; `native` is the setting of that name. Never raises."""
    if not native:
        return _off("switched off by the setting native")
    process, choice = _load_once()
    if choice.border is not None and process != os.getpid():
        return _off("this process is a fork of one that has loaded it")
    return choice


@cache
def _load_once() -> tuple[int, BorderChoice]:
    """Once a process, and for the forks of it, named by its number: what is loaded stays, and what was refused does not
    change.
    """
    return os.getpid(), _load()


def _load() -> BorderChoice:
    try:
        import kodo_fast
    except ImportError as problem:
        missing = isinstance(problem, ModuleNotFoundError) and problem.name == "kodo_fast"
        return _off("kodo-fast is not installed" if missing else f"kodo-fast cannot be imported: {problem}")
    if kodo_fast.INTERFACE != NATIVE_INTERFACE:
        return _off(
            f"kodo-fast {kodo_fast.__version__} and kodoctl do not fit each other: install the same release of both"
        )
    try:
        border = kodo_fast.load(Delivery, Outgoing._fields)
    except kodo_fast.RefusalError as problem:
        return _off(str(problem))
    detail = f"kodo-fast {kodo_fast.__version__} with pulsar-client {border.client_version}"
    return BorderChoice(border, BorderStatus(native=True, detail=detail))


def _off(why: str) -> BorderChoice:
    return BorderChoice(None, BorderStatus(native=False, detail=why))

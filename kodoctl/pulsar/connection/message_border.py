"""Native border of kodoctl: the optional package kodo-fast, which reads stored messages and sends numbered ones in
bundles.

It is never required: if it is switched off, not installed, or refuses the client library that it finds, pulsar-client's
own binding does the same work.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodo_fast import MessageBorder

log = logging.getLogger("kodoctl.pulsar")
NATIVE_VARIABLE: Final = "KODO_CONSUMER_NATIVE"  # as for consumers
NATIVE_INTERFACE: Final = 3  # of kodo_fast, that the adapters here and of the consumer are written for
_UNKNOWN: Final = -1  # no number of a result
_OFF: Final = "native border: off"


class NativeMessage(NamedTuple):
    """A stored message as the border creates it: the fields of kodo_fast.DELIVERY. Times are ms since the epoch, 0 =
    none; `entry`: (ledger, entry, partition); `payload` None: a tombstone.
    """

    entry: tuple[int, int, int]
    token: Any
    payload: bytes | None
    properties: dict[str, str]
    key: str
    ordering_key: str
    event_time: int
    publish_time: int
    batch_index: int
    broken: str
    schema: str

    def message_id(self) -> Any:
        """The client library's id of the message, as its own messages have it."""
        return self.token


class MessageBorderChoice(NamedTuple):
    """The border, None if it is not used, and one line of text with the reason."""

    border: MessageBorder | None
    status: str


def native_setting(environ: Mapping[str, str]) -> bool:
    """True if the environment leaves the border on. Raises UsageError for a value that is neither true nor
    false.
    """
    text = environ.get(NATIVE_VARIABLE, "").strip().lower() or "true"
    if text not in ("true", "false"):
        raise UsageError(
            error("K502", "cannot read configuration", f"{NATIVE_VARIABLE} = {text!r}: write true or false")
        )
    return text == "true"


def choose_message_border(*, native: bool = True) -> MessageBorderChoice:
    """Chooses the border for this process. `native` False: the environment has switched it off. A fork of a process
    that has loaded the border must not use it, and gets none. Never raises.
    """
    if not native:
        return MessageBorderChoice(None, f"{_OFF} (switched off by {NATIVE_VARIABLE})")
    process, found = _load_once()
    if found.border is not None and process != os.getpid():
        return MessageBorderChoice(None, f"{_OFF} (this process is a fork of one that has loaded it)")
    return found


@cache
def _load_once() -> tuple[int, MessageBorderChoice]:
    """Loads the border, once in a process and its forks, and logs the reason. Returns the id of the process that loaded
    it, and the choice.
    """
    found = _load()
    log.debug("%s", found.status)
    return os.getpid(), found


def _load() -> MessageBorderChoice:
    try:
        import kodo_fast
    except ImportError as problem:
        missing = isinstance(problem, ModuleNotFoundError) and problem.name == "kodo_fast"
        return MessageBorderChoice(None, f"{_OFF} ({'kodo-fast is not installed' if missing else problem})")
    if kodo_fast.INTERFACE != NATIVE_INTERFACE:
        return MessageBorderChoice(None, f"{_OFF} (kodo-fast {kodo_fast.__version__} is of another release)")
    try:
        border = kodo_fast.load_messages(NativeMessage)
    except kodo_fast.RefusalError as problem:
        return MessageBorderChoice(None, f"{_OFF} ({problem})")
    return MessageBorderChoice(
        border, f"native border: on (kodo-fast {kodo_fast.__version__} with pulsar-client {border.client_version})"
    )


def result_of(number: int) -> Any:
    """Converts a result code of the border to `pulsar.Result`, an unknown one to UnknownError."""
    return _results().get(number) or _results()[_UNKNOWN]


@cache
def _results() -> dict[int, Any]:
    import pulsar

    return {int(one): one for one in pulsar.Result.__members__.values()} | {_UNKNOWN: pulsar.Result.UnknownError}

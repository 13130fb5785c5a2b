"""Native border: the optional C++ package kodo-fast, which moves messages in bundles into and out of Pulsar's client
library.

It is optional: if it is switched off, not installed, or refuses the installed client library, pulsar-client's own
binding does the same work, and the status gives the reason. Consumer, kodoctl and pipeline each load their own types of
the package by a `BorderLoader`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from types import ModuleType

    from kodo_fast import MessageBorder

log = logging.getLogger("kodoctl.pulsar")
NATIVE_VARIABLE: Final = "KODO_CONSUMER_NATIVE"  # as for consumers
NATIVE_INTERFACE: Final = 3  # of kodo_fast, that the adapters here and of the consumer are written for
_UNKNOWN: Final = -1  # no number of a result


class LoadedTypes(Protocol):
    """Types of the kodo-fast package (the native border), as one of its functions returns them."""

    @property
    def client_version(self) -> str:
        """Version of pulsar-client that is installed."""


Border = TypeVar("Border", bound=LoadedTypes)


class NativeMessage(NamedTuple):
    """A stored message as kodo-fast creates it: the fields of kodo_fast.DELIVERY. Times are ms since the epoch, 0:
    none; `entry`: (ledger, entry, partition); `token`: the message id; `payload` None: a tombstone; `batch_index` -1:
    a message that is no part of a batch; `broken` and `schema` are always "".
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
        """Returns the message id, an object of kodo-fast that answers as pulsar.MessageId does but has another type."""
        return self.token


class BorderChoice(NamedTuple, Generic[Border]):
    """The loaded types of the native border (the C++ package kodo-fast), or None if it is not used. `detail`: the
    versions in use, or the reason why it is not used.
    """

    border: Border | None
    detail: str

    @property
    def status(self) -> str:
        """One line for logs and commands: whether the border is on or off, and the `detail`."""
        return f"native border: {'off' if self.border is None else 'on'} ({self.detail})"


class BorderLoader(Generic[Border]):
    """Loads the native border (the C++ package kodo-fast) when first asked, at most once for each loader. `load`:
    receives the module kodo_fast and returns its types, and may raise kodo_fast.RefusalError. `switch`: name of the
    setting that switches the border off, for the status. `report`: receives the status once, after the loading.
    """

    def __init__(
        self, load: Callable[[ModuleType], Border], switch: str, report: Callable[[str], object] = log.debug
    ) -> None:
        self._load, self._switch, self._report = load, switch, report

    def choose(self, *, native: bool = True) -> BorderChoice[Border]:
        """Returns the types to use, or the reason why the border is not used. `native`: value of the setting; with
        False nothing is loaded. A border that cannot be loaded is a reason, not an error.

        A fork of the process that loaded the border does not use it, because locks of the client library may be held in
        the fork for ever.
        """
        if not native:
            return BorderChoice(None, f"switched off by {self._switch}")
        process, choice = self.loaded
        if choice.border is not None and process != os.getpid():
            return BorderChoice(None, "this process is a fork of one that has loaded it")
        return choice

    @cached_property
    def loaded(self) -> tuple[int, BorderChoice[Border]]:
        """(id of the process that tried to load the border, its choice). Computed once: a refusal is final."""
        choice = self._try_load()
        self._report(choice.status)
        return os.getpid(), choice

    def _try_load(self) -> BorderChoice[Border]:
        try:
            import kodo_fast
        except ImportError as problem:
            missing = isinstance(problem, ModuleNotFoundError) and problem.name == "kodo_fast"
            return BorderChoice(
                None, f"kodo-fast {'is not installed' if missing else f'cannot be imported: {problem}'}"
            )
        release = f"kodo-fast {kodo_fast.__version__}"
        if kodo_fast.INTERFACE != NATIVE_INTERFACE:
            return BorderChoice(None, f"{release} and kodoctl do not fit each other: install the same release of both")
        try:
            border = self._load(kodo_fast)
        except kodo_fast.RefusalError as problem:
            return BorderChoice(None, str(problem))
        return BorderChoice(border, f"{release} with pulsar-client {border.client_version}")


MESSAGES: Final[BorderLoader[MessageBorder]] = BorderLoader(
    lambda kodo_fast: kodo_fast.load_messages(NativeMessage), NATIVE_VARIABLE
)
"""Border of commands, which read stored messages and send numbered ones."""


def native_setting(environ: Mapping[str, str]) -> bool:
    """False if KODO_CONSUMER_NATIVE, the variable that switches the border off, is `false`; True if it is `true`, empty
    or not set. Upper case is the same. Raises UsageError for any other value, 0 and 1 too.
    """
    text = environ.get(NATIVE_VARIABLE, "").strip().lower() or "true"
    if text not in ("true", "false"):
        raise UsageError(
            error("K502", "cannot read configuration", f"{NATIVE_VARIABLE} = {text!r}: write true or false")
        )
    return text == "true"


def result_of(number: int) -> Any:
    """Converts a result code of the border to `pulsar.Result`, an unknown one to UnknownError."""
    return _results().get(number) or _results()[_UNKNOWN]


@cache
def _results() -> dict[int, Any]:
    import pulsar

    return {int(one): one for one in pulsar.Result.__members__.values()} | {_UNKNOWN: pulsar.Result.UnknownError}

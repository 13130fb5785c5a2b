"""Native border: the optional package kodo-fast, through which the consumer reads, acknowledges and publishes in bundles.

Nothing depends on it: where it is switched off, not installed, or refuses the client library it finds, pulsar-client's
own binding does the same work, and `NativeStatus` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from kodo_consumer.core.envelope import Delivery, Outgoing

if TYPE_CHECKING:
    from kodo_fast import NativeBorder


@dataclass(frozen=True, slots=True)
class NativeStatus:
    """Whether the native border is used. `border`: None where it is not, `detail`: why, or what it is used with."""

    border: NativeBorder | None
    detail: str

    def __str__(self) -> str:
        """One line for logs and commands."""
        return f"native border: {'on' if self.border else 'off'} ({self.detail})"


def native_status(*, wanted: bool = True) -> NativeStatus:
    """The status in this process; `wanted` is the setting `native`. Never raises."""
    if not wanted:
        return NativeStatus(None, "switched off by the setting native")
    return _loaded()


@cache
def _loaded() -> NativeStatus:
    """Once a process: what is loaded stays, and what was refused does not change."""
    try:
        import kodo_fast
    except ImportError as problem:
        missing = isinstance(problem, ModuleNotFoundError) and problem.name == "kodo_fast"
        return NativeStatus(
            None, "kodo-fast is not installed" if missing else f"kodo-fast cannot be imported: {problem}"
        )
    try:
        border = kodo_fast.load(Delivery, Outgoing._fields)
    except kodo_fast.RefusalError as problem:
        return NativeStatus(None, str(problem))
    return NativeStatus(border, f"kodo-fast {kodo_fast.__version__} with pulsar-client {border.client_version}")

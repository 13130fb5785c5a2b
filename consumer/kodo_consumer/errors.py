"""Errors that Consumer, Producer and Outbox raise, for an application to catch.

`KodoctlError` is the base of all; its `diagnostics` are all findings, each with its code. `UsageError`: a call or a
setting is not valid. `ClusterError`: the cluster does not answer, refuses a request, or lacks an object, or a message
has no receipt and may be stored nevertheless. `InvalidFileError`: a file is not valid. `RefusedError` and
`LockedError`: nothing was done. `SendManyError`: some messages of one call were refused, or have no receipt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kodoctl.errors import (
    ClusterError,
    Diagnostic,
    InvalidFileError,
    KodoctlError,
    LockedError,
    RefusedError,
    UsageError,
)

if TYPE_CHECKING:
    from kodo_consumer.sending.many_sends import SendManyError

__all__ = [
    "ClusterError", "Diagnostic", "InvalidFileError", "KodoctlError", "LockedError", "RefusedError",
    "SendManyError", "UsageError",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "SendManyError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kodo_consumer.sending.many_sends import SendManyError

    return SendManyError

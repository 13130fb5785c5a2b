"""Errors that Consumer, Producer and Outbox raise, for an application to catch.

`KodoctlError` is the base of all; its `diagnostics` are all findings, each with its code. `UsageError`: a call or a
setting is not valid. `ClusterError`: the cluster does not answer, or lacks an object. `InvalidFileError`: a file is not
valid. `RefusedError` and `LockedError`: nothing was done.
"""

from __future__ import annotations

from kodoctl.errors import (
    ClusterError,
    Diagnostic,
    InvalidFileError,
    KodoctlError,
    LockedError,
    RefusedError,
    UsageError,
)

__all__ = [
    "ClusterError", "Diagnostic", "InvalidFileError", "KodoctlError", "LockedError", "RefusedError", "UsageError",
]  # fmt: skip

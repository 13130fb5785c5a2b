"""Errors that Consumer, Producer and Outbox raise, to be caught by an application.

`KodoctlError` is the base of all of them; `diagnostics` holds every finding with its code. `UsageError`: what was
called or configured cannot be; `ClusterError`: the cluster could not be reached, or lacks what is needed;
`InvalidFileError`: a file does not say what it must; `RefusedError` and `LockedError`: nothing was done.
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

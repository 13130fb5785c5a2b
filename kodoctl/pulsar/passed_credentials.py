"""Secrets in another process: they travel by the name of their file or variable, never as text, and are read anew there.

For tasks of Spark's: what those are given goes through plans, broadcasts and disks that others may look at.
"""

from __future__ import annotations

import os
from pathlib import Path

from kodoctl.errors import UsageError, error
from kodoctl.pulsar.credentials import Secret, read_secret


def of_file(file: str) -> Secret:
    """What the file holds here. Raises UsageError (K504)."""
    return read_secret(Path(file))


def of_variable(name: str) -> Secret:
    """What the variable of this process's environment holds. Raises UsageError (K504)."""
    text = os.environ.get(name, "").strip()
    if not text:
        detail = (
            f"{name} is not set where it is needed: set it for every executor of Spark's, or name a file that all have"
        )
        raise UsageError(error("K504", "cannot read token", detail))
    return Secret(text, variable=name)

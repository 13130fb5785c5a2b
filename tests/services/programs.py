"""Programs of the system that tests run. `make test` installs them where it may; without one its tests are skipped, saying so."""

from __future__ import annotations

import os
import shutil

import pytest


def system_program(package: str, *names: str) -> str:
    """The path of the first of `names` that is there; where none is, the test is skipped, or fails where it must not be."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        if os.environ.get("KODOCTL_TEST_PROGRAMS") == "required":
            pytest.fail(f"no {package} on PATH")
        pytest.skip(f"no {package} on PATH: `make programs` installs it on Debian")
    return found

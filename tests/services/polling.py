"""Waiting for what a test expects: by looking again and again until a deadline, never by a sleep of fixed length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(found: Callable[[], T | None], *, within: float = 90.0, every: float = 0.05) -> T:
    """The first truthy answer; fails when none comes in time (seconds). `every`: shortest pause; it grows with the time that
    has passed, to a twentieth of that, because most looks are requests to a broker that all tests share.
    """
    begin = time.monotonic()
    while True:
        answer = found()
        if answer:
            return answer
        passed = time.monotonic() - begin
        assert passed < within, f"still {answer!r} after {within} s"
        time.sleep(max(every, passed / 20))

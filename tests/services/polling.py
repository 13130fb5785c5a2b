"""Waiting for what a test expects: by looking again and again until a deadline, never by a sleep of fixed length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(found: Callable[[], T | None], *, within: float = 90.0, every: float | None = None) -> T:
    """The first truthy answer; fails when none comes in time (seconds). `every`: pause between two looks, for those that do a step
    of the work themselves. None: 0.05 s, and later a twentieth of the time that has passed, at most 0.25 s, because most looks
    are requests to a broker that all tests share.
    """
    begin = time.monotonic()
    while True:
        answer = found()
        if answer:
            return answer
        passed = time.monotonic() - begin
        assert passed < within, f"still {answer!r} after {within} s"
        time.sleep(min(0.25, max(0.05, passed / 20)) if every is None else every)

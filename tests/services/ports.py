"""Ports for brokers of tests: no two processes of a run look in the same place, so that one which is down keeps its ports."""

from __future__ import annotations

import os
import random
import re

from kodoctl.dev.ports import Ports, is_free

_LOWEST, _HIGHEST, _SHARE, _STEP = 12_000, 32_000, 4_000, 4


def _start() -> int:
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    return _LOWEST + (worker * _SHARE + random.randrange(0, _SHARE // 2, _STEP)) % (_HIGHEST - _LOWEST)


_next = _start()


def cluster_ports() -> Ports:
    """As `unusual_ports`, with nine free ones behind each for the other nodes of a cluster."""
    global _next  # noqa: PLW0603
    while True:
        found = Ports(_next, _next + 10, _next + 20)
        _next += 10 * _STEP
        if all(map(is_free, range(found.admin, found.admin + 30))):
            return found


def unusual_ports() -> Ports:
    """Three that are free and that this process did not hand out before; runs beside each other seldom meet."""
    global _next  # noqa: PLW0603 - what a process handed out is the process's own state
    while True:
        found = Ports(_next, _next + 1, _next + 2)
        _next += _STEP
        if all(map(is_free, found.all())):
            return found

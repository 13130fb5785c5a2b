"""Nothing is written by an apply that has lost its lease: asked before every request that changes something."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.apply.leased import LeasedAdmin
from kodoctl.errors import LockedError, error
from kodoctl.pulsar.admin import Reply, RequestCount
from kodoctl.pulsar.lease import HEARTBEAT_S, Lease
from kodoctl.pulsar.writes import write
from kodoctl.topology.names import NamespaceName


class Line:
    """An admin port that answers 503, and takes its time."""

    def __init__(self, clock: list[float], slow: float) -> None:
        self.traffic, self.sent, self._clock, self._slow = RequestCount(), [""] * 0, clock, slow

    def call(self, method: str, path: str, *_: Any, **__: Any) -> Reply:
        self.sent.append(method)
        self._clock[0] += self._slow
        return Reply(method, path, 503, None, "busy")


class Fenced:
    """A hold that somebody else has by now."""

    def beat(self) -> None:
        raise LockedError(error("K541", "the lease was lost"))

    write = note = settle = close = beat


def _leased(slow: float) -> tuple[LeasedAdmin, Line]:
    clock = [0.0]
    line = Line(clock, slow)
    lease = Lease({NamespaceName("acme", "ns"): Fenced()}, lambda: clock[0])
    return LeasedAdmin(line, lease.check), line


def test_a_write_that_is_repeated_after_the_lease_was_lost_is_not_sent() -> None:
    admin, line = _leased(HEARTBEAT_S)
    with pytest.raises(LockedError):
        write(admin, "PUT", "x", done=lambda: False, pause=lambda _: None)
    assert line.sent == ["PUT"]
    assert admin.call("GET", "x").status == 503  # whoever may no longer write may look
    assert line.sent == ["PUT", "GET"]


def test_within_a_heartbeat_nobody_asks() -> None:
    admin, line = _leased(HEARTBEAT_S / 10)
    for _ in range(10):
        admin.call("POST", "x")
    with pytest.raises(LockedError):
        admin.call("POST", "x")
    assert len(line.sent) == 10
    assert admin.traffic is line.traffic

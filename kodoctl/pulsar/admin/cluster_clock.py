"""Clock of a cluster: the `Date` header of the admin API's answers, compared with the clock of this machine. Publish
times cannot replace it, because the sender of a message chooses them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kodoctl.protocol.clock_difference import clock_ahead

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin, Reply


@dataclass(frozen=True, slots=True)
class ClusterClock:
    """Clock of a cluster, relative to this machine's clock. `ahead`: ms by which this machine's clock was certainly
    ahead of the cluster's when they were compared, negative if behind, 0 if the clocks may agree; None if the cluster
    reports no time, and this machine's clock is used.
    """

    ahead: int | None

    @classmethod
    def of(cls, reply: Reply, wall: int) -> Self:
        """Compares the clocks by one reply. `wall`: this machine's clock right after the reply, ms since the epoch."""
        if reply.server_time is None:
            return cls(None)
        return cls(round(clock_ahead(wall, reply.server_time, reply.took)))

    def now(self) -> int:
        """The time in ms since the epoch by the cluster's clock, as far as the difference is certain and still the
        same, or by this machine's if the cluster reports no time.
        """
        return int(time.time() * 1000) - (self.ahead or 0)


def read_clock(admin: Admin) -> ClusterClock:
    """Reads the cluster's clock by a request that every role may send: even a refusal has a `Date` header. Raises
    ClusterError if no broker answers or the token is not accepted.
    """
    reply = admin.call("GET", "clusters")
    return ClusterClock.of(reply, int(time.time() * 1000))

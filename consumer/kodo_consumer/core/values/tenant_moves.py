"""Move of a tenant by hand: its messages have another level for a while, whatever the file's routes say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodo_consumer.core.values.envelope import Level, State

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Headers


@dataclass(frozen=True, slots=True)
class TenantMove:
    """Move of one tenant to the level `to`. `since`: ms since the epoch when it was ordered. `waiting`: older messages,
    and those in waiting states, move as well (see `takes`). `name`: for people.
    """

    to: Level
    since: int
    waiting: bool
    name: str = ""

    def takes(self, level: Level, state: State, headers: Headers, published: int) -> bool:
        """True if a message of the tenant moves from the lane of `level` and `state` to the level `to`; never from a
        lane of `to` itself. From a ready lane: one that a sender sent there since the order; with `waiting` an older
        one, too, and one that routes, exclusive levels or another move by hand brought there; never one that its
        handler, an isolation or a failure brought there. From a waiting state: each one, but only with `waiting`.
        `published`: when it was sent to this lane, ms since the epoch.
        """
        if level is self.to:
            return False
        if state is not State.READY:
            return self.waiting
        unhandled = headers.hop == headers.routes and not headers.backup and headers.due is None
        return unhandled and (self.waiting or (headers.hop == 0 and published >= self.since))

"""Move of a tenant by hand: its messages have another level for a while, in place of what the file's routes say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodo_consumer.core.values.envelope import Level, State

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Headers


@dataclass(frozen=True, slots=True)
class TenantMove:
    """`since`: ms since the epoch when it was ordered. `waiting`: what waits already moves as well. `name`: for people."""

    to: Level
    since: int
    waiting: bool
    name: str = ""

    def takes(self, level: Level, state: State, headers: Headers, published: int) -> bool:
        """True if a message of the tenant goes from this lane to the level. From a ready lane: one that came there as
        it was sent, or by routes; what its handler, an isolation or failures brought there stays. From a waiting state:
        what comes out of it, where what waits moves. `published`: when it was sent to this lane, ms since the epoch.
        """
        if level is self.to:
            return False
        if state is not State.READY:
            return self.waiting
        unhandled = headers.hop == headers.routes and not headers.backup and headers.due is None
        return unhandled and (self.waiting or (headers.hop == 0 and published >= self.since))

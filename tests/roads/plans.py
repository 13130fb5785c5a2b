"""Roads: what each message's handler asks for in each lane, and what is to become of the message. Known to both sides, the test
and the handlers (tests.roads.handlers), and to nobody in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

HANDLER_TIMEOUT: Final = 4.0  # seconds, as the topology says
RATE: Final = 5  # starts a second, and as many at once
QUOTA: Final = 20  # starts a minute
TOGETHER: Final = 2  # handlers at once
KNEE: Final = 16  # quotes at once: one beside more than so many is slow
PROBES: Final = 3  # messages that the breaker tries after a pause
IN_PLACE: Final = 1  # waits in memory that a failure has on a ready lane
RETRYING_ATTEMPTS: Final = 3
PENDING_ATTEMPTS: Final = 3
BACKUP_ATTEMPTS: Final = 1
LATE_NUMBERS: Final = 10_000


class Lane(NamedTuple):
    """A lane as a handler sees it."""

    level: str
    state: str


READY, RETRYING, PENDING, BLOCKING = (Lane("L1", state) for state in ("ready", "retrying", "pending", "blocking"))
READY2, RETRYING2, PENDING2, BLOCKING2 = (Lane("L2", state) for state in ("ready", "retrying", "pending", "blocking"))
BACKUP: Final = Lane("B1", "ready")
SHIPMENTS: Final = Lane("L1", "shipments")  # the ready lane of the other topic
ORDERS: Final = (READY, RETRYING, PENDING, BLOCKING, READY2, RETRYING2, PENDING2, BLOCKING2, BACKUP)


@dataclass(frozen=True)
class Road:
    """`asks`: what the handler does in each lane, in the order of the road. `runs`: how often in a lane, where not once. `end`:
    done, discarded, repeated or dead. `free`: a limit decides which of the lanes the message is in. `late`: so many of `count` are
    sent after the last kill: each handler that hung when its worker was killed runs alone, for seconds.
    """

    asks: Mapping[Lane, str]
    end: str = "done"
    runs: Mapping[Lane, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    count: int = 15
    late: int = 0
    free: bool = False

    @property
    def planned(self) -> dict[Lane, int]:
        """Runs in each lane when nothing is killed."""
        return {lane: self.runs.get(lane, 1) for lane in self.asks}


_TWICE: Final = 1 + IN_PLACE
_ANYWHERE: Final = dict.fromkeys(ORDERS, "done")
ROADS: Final = {
    "done": Road({READY: "done"}, count=300),
    "discard": Road({READY: "discard"}, "discarded"),
    "repeat": Road({READY: "repeat"}, "repeated"),
    "dead": Road({READY: "dead"}, "dead"),
    "invalid": Road({READY: "json"}, "dead"),
    "retry": Road({READY: "retry", RETRYING: "done"}),
    "code": Road({READY: "code", RETRYING: "done"}),
    "error": Road({READY: "error", RETRYING: "done"}, runs={READY: _TWICE}),
    "slow": Road({READY: "sleep", RETRYING: "done"}, runs={READY: _TWICE}, count=2, late=2),
    "nowhere": Road({READY: "move S1", RETRYING: "done"}, runs={READY: _TWICE}),
    "pending": Road({READY: "pending", PENDING: "done"}),
    "blocking": Road({READY: "blocking", BLOCKING: "done"}),
    "impatient": Road({READY: "pending", PENDING: "pending", RETRYING: "done"}, runs={PENDING: PENDING_ATTEMPTS}),
    "tour": Road(
        {
            READY: "pending",
            PENDING: "blocking",
            BLOCKING: "retry",
            RETRYING: "move L2",
            READY2: "pending",
            PENDING2: "blocking",
            BLOCKING2: "error",
            RETRYING2: "move B1",
            BACKUP: "done",
        }
    ),
    "saved": Road(
        {READY: "error", RETRYING: "error", BACKUP: "done"}, runs={READY: _TWICE, RETRYING: RETRYING_ATTEMPTS}
    ),
    "hopeless": Road(
        {READY: "error", RETRYING: "error", BACKUP: "error"},
        "dead",
        runs={READY: _TWICE, RETRYING: RETRYING_ATTEMPTS, BACKUP: 1 + BACKUP_ATTEMPTS},
    ),
    "move": Road({READY: "move L2", READY2: "done"}),
    "transfer": Road({READY: "transfer", SHIPMENTS: "done"}),
    "routed": Road({READY2: "done"}, properties={"size": "200000"}),
    "routed and pending": Road({READY2: "pending", PENDING2: "dead"}, "dead", properties={"size": "100001"}),
    "routed to backup": Road({BACKUP: "discard"}, "discarded", properties={"plan": "free"}),
    "rate": Road(_ANYWHERE, properties={"rated": "slow"}, count=80, free=True),
    "concurrency": Road(dict.fromkeys(ORDERS, "work"), properties={"account": "narrow"}, count=60, free=True),
}


@dataclass(frozen=True)
class Order:
    """One message and its road."""

    number: int
    road: str

    @property
    def payload(self) -> bytes:
        """Bytes that nobody else could have made up; no JSON."""
        return hashlib.sha256(b"%d" % self.number).hexdigest().encode() + b"!"

    @property
    def properties(self) -> dict[str, str]:
        """As it is sent. Three customers in turn."""
        return {"n": str(self.number), "road": self.road, "uid": f"u{self.number % 3}", **ROADS[self.road].properties}


def orders(*, late: bool = False) -> list[Order]:
    """All messages, the roads mixed: those that are sent before the kills, or those `late`."""
    counts = {name: road.late if late else road.count - road.late for name, road in ROADS.items()}
    names = [name for turn in range(max(counts.values())) for name, count in counts.items() if turn < count]
    return [Order(number, name) for number, name in enumerate(names, LATE_NUMBERS if late else 0)]

"""Effects: actions that the engine wants done outside. Callers take all of them and carry them out, in any order, but
for the publisher: it is renewed before it publishes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Outgoing
    from kodo_consumer.message import Message


@dataclass(frozen=True, slots=True)
class Alarm:
    """Notice to a person. `kind` is stable: for throttling and for rules. `severe`: a person has to act; `good`:
    something is over, and nobody has to act, whatever `severe` says.
    """

    kind: str
    text: str
    severe: bool = True
    good: bool = False


@dataclass(slots=True)
class Effects:
    """Actions that the engine wants done outside, gathered until the next fetch. `publish`: tickets with their
    messages. `resume`: lanes that have room again. `anew`: partitions (lane, number as a text) that are to reconnect,
    so that the broker redelivers unacknowledged messages. `presence`: lanes to leave (False) or to join again (True).
    `overdue`: messages whose handler or deferral took too long. `renew_publishing`: the publisher is to be renewed,
    before `publish`. `urgent`: there is more than `publish`, which alone may wait for a moment. Lanes are indices.
    """

    publish: list[tuple[int, Outgoing]] = field(default_factory=list)
    resume: list[int] = field(default_factory=list)
    anew: list[tuple[int, str]] = field(default_factory=list)
    presence: dict[int, bool] = field(default_factory=dict)
    overdue: list[Message] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    renew_publishing: bool = False
    urgent: bool = False  # whether there is more than messages to publish, which may be gathered for a moment

    def ask_for_more(self, lane: int) -> None:
        """Adds a lane to `resume`, because it has room again."""
        self.resume.append(lane)
        self.urgent = True

    def read_anew(self, lane: int, partition: str) -> None:
        """Adds a partition to `anew`: it is to reconnect."""
        self.anew.append((lane, partition))
        self.urgent = True

    def leave(self, lane: int) -> None:
        """Notes in `presence` that the lane is to be left until it is joined again."""
        self.presence[lane] = False
        self.urgent = True

    def join(self, lane: int) -> None:
        """Notes in `presence` that a lane that was left is to be read again."""
        self.presence[lane] = True
        self.urgent = True

    def give_up(self, message: Message) -> None:
        """Adds a message to `overdue`, because its handler or its deferral took too long."""
        self.overdue.append(message)
        self.urgent = True

    def alarm(self, kind: str, text: str, *, severe: bool = True, good: bool = False) -> None:
        """Adds an alarm: see Alarm."""
        self.alarms.append(Alarm(kind, text, severe, good))
        self.urgent = True

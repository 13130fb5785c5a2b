# pure: every branch is tested
"""Outcome of an action that sent messages: how many of them were handled, wait again or are dead again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from kodoctl.text.escaping import one_line

_CAUSES: Final = 3  # of dead letters that are named
_LONGEST: Final = 80  # characters of a cause


class SentStage(StrEnum):
    """Stage of a message that an action sent: no worker has finished with it, it waits again, or it is dead again."""

    OPEN = "not handled yet"
    WAITS = "wait again"
    DEAD = "dead again"


class SentPlace(NamedTuple):
    """Lane in which messages are that an action sent. `stage`: their stage there; `topic`: the lane's topic without
    tenant and namespace; `lane`: its name for people; `cause`: cause of dead letters, "" for other messages.
    """

    stage: SentStage
    topic: str
    lane: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class SentOutcome:
    """Outcome of the messages of one action. `sent`: their number; `followed`: number of those that were recognised
    after they were sent; `places`: number of messages that are in a lane, by place; `complete`: all lanes were read,
    and exist; `lacking`: local names of lanes that the cluster lacks.
    """

    sent: int
    followed: int = 0
    places: Mapping[SentPlace, int] = field(default_factory=dict)
    complete: bool = False
    lacking: tuple[str, ...] = ()

    @property
    def handled(self) -> int:
        """Number of followed messages that are in no lane any more; 0 unless `complete`."""
        return max(0, self.followed - sum(self.places.values())) if self.complete else 0

    @property
    def unknown(self) -> int:
        """Number of sent messages that are neither handled nor in a lane that was read."""
        return max(0, self.sent - self.handled - sum(self.places.values()))

    @property
    def is_final(self) -> bool:
        """True if each message was handled or is dead again: the outcome changes no more."""
        return not self.unknown and all(one.stage is SentStage.DEAD for one in self.places)

    @property
    def style(self) -> str:
        """Style of the sentence: `bad` if a message is dead again, `good` if all were handled, else `open`."""
        if any(one.stage is SentStage.DEAD for one in self.places):
            return "bad"
        return "good" if self.is_final else "open"

    @property
    def text(self) -> str:
        """Sentence about all messages: `3 sent: 1 handled, 2 dead again (negative amount)`."""
        parts = [f"{self.handled:,} handled"] if self.handled else []
        parts += [self._stage_text(stage) for stage in SentStage if any(one.stage is stage for one in self.places)]
        why = f", because the cluster lacks {', '.join(self.lacking)}" if self.lacking else " yet"
        parts += [f"{self.unknown:,} not known{why}"] if self.unknown else []
        return f"{self.sent:,} sent: {', '.join(parts) or 'nothing to follow'}"

    @property
    def lanes(self) -> list[tuple[str, str, int]]:
        """Returns (topic, lane, number of messages) of each lane that has sent messages of this action now, the lane
        with the most messages first. The topic is without tenant and namespace; the lane is its name for people; dead
        messages count as well.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for one, count in self.places.items():
            counts[one.topic, one.lane] += count
        return [(topic, lane, count) for (topic, lane), count in counts.most_common()]

    def _stage_text(self, stage: SentStage) -> str:
        found = [(one, count) for one, count in self.places.items() if one.stage is stage]
        text = f"{sum(count for _, count in found):,} {stage}"
        names: Counter[str] = Counter()
        for one, count in found:
            if name := one.cause if stage is SentStage.DEAD else one.lane:
                names[name] += count
        if not names:
            return text
        named = [one_line(name, _LONGEST) for name, _ in names.most_common(_CAUSES)]
        others = ["…"] if len(names) > _CAUSES else []
        return f"{text} ({'; '.join([*named, *others])})"


class OutcomeReader(Protocol):
    """Reads the outcome of the messages of one action. `last`: the outcome that was read last, None before the first
    one was read.
    """

    last: SentOutcome | None

    def __call__(self) -> SentOutcome:
        """Reads the lanes. Blocks, and raises KodoctlError."""

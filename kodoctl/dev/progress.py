"""Progress events of a long step, passed to a callback that displays them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressStep:
    """A step has begun. `text`: one sentence about it."""

    text: str


@dataclass(frozen=True, slots=True)
class Download:
    """Progress of a download: megabytes and files so far. `total`: about how many megabytes there will be, 0 if
    unknown.
    """

    done: float
    files: int
    total: int


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """Progress of the wait for a broker: seconds so far, and the seconds after which kodoctl gives up."""

    seconds: float
    limit: float


Event = ProgressStep | Download | WaitProgress
Tell = Callable[[Event], None]


def quiet(event: Event) -> None:
    """Ignores a progress event, for callers that show none."""

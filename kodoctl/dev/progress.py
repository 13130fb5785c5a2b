"""Progress events of a long step, as values: the owner of the callback displays them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressStep:
    """A step begins; `text` is one sentence about it."""

    text: str


@dataclass(frozen=True, slots=True)
class Download:
    """Megabytes and files downloaded so far; `total`: about how many megabytes it will be (0: unknown)."""

    done: float
    files: int
    total: int


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """Seconds waited for the broker so far, and the seconds after which kodoctl gives up."""

    seconds: float
    limit: float


Event = ProgressStep | Download | WaitProgress
Tell = Callable[[Event], None]


def quiet(event: Event) -> None:
    """Ignores a progress event, for callers that show none."""

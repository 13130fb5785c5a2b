"""Progress events of a long step, as values: the owner of the callback displays them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressStep:
    """Something begins; one sentence."""

    text: str


@dataclass(frozen=True, slots=True)
class Download:
    """Megabytes and files fetched so far, and about how many megabytes it will be (0: not known)."""

    done: float
    files: int
    total: int


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """Seconds waited for the broker so far, and after how many we give up."""

    seconds: float
    limit: float


Event = ProgressStep | Download | WaitProgress
Tell = Callable[[Event], None]


def quiet(event: Event) -> None:
    """Receiver of progress events that drops each of them."""

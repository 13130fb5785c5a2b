"""Engine of a development broker: the port between an instance and the program that runs the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kodoctl.dev.process import Process

if TYPE_CHECKING:
    from kodoctl.dev.instance import Instance
    from kodoctl.dev.progress import Tell

Launch: TypeAlias = Callable[[], Process | None]
"""Starts what was prepared; the process to remember, if there is one to know it again by."""


PATIENCE: Final = 20.0
"""Seconds between the request to end and force: a broker takes 1 to 3, and gives itself 5."""


class BrokerEngine(Protocol):
    """Runs the broker of an instance. Every method raises KodoctlError for problems that a user can repair."""

    def prepare(self, instance: Instance, tell: Tell) -> Launch:
        """Finds or fetches everything that a start needs, and returns the start itself."""
        ...

    def marks(self, instance: Instance) -> tuple[str, ...]:
        """The folder for archives that each broker is configured with: no other broker has the same."""
        ...

    def alive(self, instance: Instance) -> bool:
        """True if it runs, or any node of it, ready or not."""
        ...

    def intact(self, instance: Instance) -> bool:
        """True if everything of it runs; of a single process or container, the same as `alive`."""
        return self.alive(instance)

    def revive(self, instance: Instance, tell: Tell) -> None:
        """Starts nodes of a cluster that do not run, and resumes paused ones."""
        ...

    def died(self, instance: Instance) -> bool:
        """True if the broker ended by itself, without `dev down`."""
        ...

    def stop(self, instance: Instance, *, patience: float = PATIENCE) -> None:
        """Ends it, by force after `patience` seconds. Nothing happens when it does not run."""
        ...

    def last_lines(self, instance: Instance, count: int) -> list[str]:
        """The end of its log."""
        ...

    def follow(self, instance: Instance) -> Iterator[str]:
        """Lines of its log as they come."""
        ...

    def leftover(self, instance: Instance) -> str | None:
        """Data that is there although kodoctl remembers no such instance: where it is, in words; None when none is."""
        ...

    def wipe(self, instance: Instance) -> None:
        """Removes the data of a stopped instance."""
        ...

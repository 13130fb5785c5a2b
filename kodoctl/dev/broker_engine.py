"""Engine of a development broker: interface between an instance and the program that runs its broker (Java, Docker, a
cluster).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kodoctl.dev.process import Process

if TYPE_CHECKING:
    from kodoctl.dev.instance import Instance
    from kodoctl.dev.progress import Tell

Launch: TypeAlias = Callable[[], Process | None]
"""Starts a prepared broker. Returns the process, which the instance records; None if the engine identifies it
otherwise.
"""


PATIENCE: Final = 20.0
"""Seconds between the request to end and the use of force: a broker takes 1 to 3, and gives itself 5."""


class BrokerEngine(Protocol):
    """Interface to the program that runs the broker, or the cluster, of an instance. A method that meets a problem
    which a user can repair raises KodoctlError.
    """

    def prepare(self, instance: Instance, tell: Tell) -> Launch:
        """Finds or downloads everything that a start needs, and returns a function that starts the broker. That
        function returns the process for the record of the instance; None if the engine finds the broker without it, or
        if the broker ended at once.
        """
        ...

    def marks(self, instance: Instance) -> tuple[str, ...]:
        """One text for each broker of the instance, which no other broker has: the path of its folder for unpacked
        archives. By this text kodoctl recognises which broker answers on a port.
        """
        ...

    def alive(self, instance: Instance) -> bool:
        """True if the broker, or any node of a cluster, runs, ready or not; a paused node counts."""
        ...

    def intact(self, instance: Instance) -> bool:
        """True if all processes of the instance run, paused ones included; for a single process or container the same
        as `alive`.
        """
        return self.alive(instance)

    def revive(self, instance: Instance, tell: Tell) -> None:
        """Starts the nodes of a cluster that do not run, and resumes paused ones. Does nothing for a single process or
        container.
        """
        ...

    def died(self, instance: Instance) -> bool:
        """True if nothing of the instance runs, and it ended otherwise than by an orderly stop such as `dev down`."""
        ...

    def stop(self, instance: Instance, *, patience: float = PATIENCE) -> None:
        """Ends the broker, by force after `patience` seconds; returns when it has ended. Does nothing if it does not
        run. Raises KodoctlError if even force does not end it.
        """
        ...

    def last_lines(self, instance: Instance, count: int) -> list[str]:
        """Returns the last `count` lines of the broker's log, in which control characters are escapes; [] if there is
        no log. For a cluster, so many lines of each node that died, or of the first broker if none died.
        """
        ...

    def follow(self, instance: Instance) -> Iterator[str]:
        """Yields new lines of the broker's log as they are written, until the reader stops or a container ends; blocks
        between them.
        """
        ...

    def leftover(self, instance: Instance) -> str | None:
        """Text that names the instance's data on this machine; None if there is none. Data can be left of an instance
        without a record: somebody may have deleted the record by hand.
        """
        ...

    def wipe(self, instance: Instance) -> None:
        """Deletes the data of a stopped instance; its settings and tokens stay. Does nothing if there is no data."""
        ...

"""Confirmations: acknowledged messages of which the broker has not said yet that it took the acknowledgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import BatchEntry, InFlight, LaneState

_MIN_MESSAGES: Final = 1_000  # acknowledgements go out ten times a second: fewer would limit the rate
_MAX_UNKNOWN: Final = 1_000  # messages


class Confirmations:
    """Acknowledged messages, by the tickets of their acknowledgements, until the broker has confirmed these and the
    hooks for acknowledged messages were called. Calls need the engine's lock.

    `most` (1,000 if it is less) and `most_bytes` (of payload): limits at which the worker is to receive nothing more,
    because the broker or a hook is slow. `awaited`: number of the messages, those whose hooks are still to be called
    among them.

    The last 1,000 messages with an unknown result (fewer beyond `most_bytes`) are kept, without being counted: if the
    broker delivers one again while its entry is remembered (LaneState.entry), it is acknowledged again, without its
    handler, and may be confirmed then.
    """

    __slots__ = (
        "_bytes",
        "_most",
        "_most_bytes",
        "_open",
        "_ticket",
        "_tickets",
        "_unknown",
        "_unknown_bytes",
        "awaited",
    )

    def __init__(self, most: int, most_bytes: int) -> None:
        self.awaited = 0
        self._most, self._most_bytes = max(_MIN_MESSAGES, most), most_bytes
        self._bytes = self._unknown_bytes = 0
        self._ticket = 0  # the last one
        self._open: dict[int, InFlight] = {}
        self._tickets: dict[int, list[int]] = {}  # not fetched yet, by lane index
        self._unknown: dict[tuple[BatchEntry, int], InFlight] = {}

    @property
    def is_full(self) -> bool:
        """True if so many messages, or bytes, await their confirmation or their hooks that the worker should receive
        nothing more.
        """
        return self.awaited >= self._most or self._bytes >= self._most_bytes

    def add(self, in_flight: InFlight) -> None:
        """Adds a message whose token was just added to the acknowledgements of its lane."""
        self._ticket += 1
        self._open[self._ticket] = in_flight
        index = in_flight.lane.lane.index
        if index in self._tickets:
            self._tickets[index].append(self._ticket)
        else:
            self._tickets[index] = [self._ticket]
        self.awaited += 1
        self._bytes += in_flight.size

    def add_copy(self, lane: LaneState, entry: BatchEntry, batch_index: int) -> None:
        """Adds the copy of an acknowledged message, whose token was just added to the acknowledgements of `lane`. A
        message that is kept with an unknown result awaits a result again; any other copy gets ticket 0, whose result
        nobody awaits.
        """
        in_flight = self._unknown.pop((entry, batch_index), None)
        if in_flight is None:
            self._tickets.setdefault(lane.lane.index, []).append(0)
        else:
            self._unknown_bytes -= in_flight.size
            self.add(in_flight)

    def take_tickets(self) -> Mapping[int, Sequence[int]]:
        """Returns and clears the tickets of the acknowledgements since the last call, by lane index, in the order of
        the tokens.
        """
        found, self._tickets = self._tickets, {}
        return found

    def take_results(self, confirmed: Sequence[int], unknown: Sequence[int]) -> list[InFlight]:
        """Takes results of acknowledgements by their tickets; a ticket that awaits no result has no effect. Messages of
        `unknown` tickets count no longer. Returns the messages of `confirmed` tickets, which count until the caller has
        called their hooks and passes them to `end`.
        """
        for ticket in unknown:
            if (in_flight := self._open.pop(ticket, None)) is not None:
                self.end([in_flight])
                self._unknown[in_flight.entry, in_flight.delivery.batch_index] = in_flight
                self._unknown_bytes += in_flight.size
        while len(self._unknown) > _MAX_UNKNOWN or self._unknown_bytes > self._most_bytes:
            oldest = self._unknown.pop(next(iter(self._unknown)))
            self._unknown_bytes -= oldest.size
        opened = self._open
        return [in_flight for ticket in confirmed if (in_flight := opened.pop(ticket, None)) is not None]

    def end(self, called: Sequence[InFlight]) -> None:
        """Stops counting messages that `take_results` returned, because their hooks were called. Each may be passed in
        once.
        """
        self.awaited -= len(called)
        self._bytes -= sum(in_flight.size for in_flight in called)

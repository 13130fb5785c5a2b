"""Observers of one worker: notified of deliveries and of decisions; they cannot change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kodo_consumer.core.values.envelope import Delivery
from kodo_consumer.core.values.policy import Lane, Policy
from kodo_consumer.message import Check, Message

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.state_machine import Decision
    from kodo_consumer.core.values.outcomes import Outcome

Acknowledged = tuple[Message, str]
"""Message whose acknowledgement the broker has confirmed, and the rule by which it has ended, such as `done`."""
OnReceived = Callable[[Policy, Lane, Sequence[Delivery], Check | None], object]


class DecisionObserver(Protocol):
    """Observer of decisions. The engine calls `on_decision` while it has the worker's lock: it must be quick and never
    raise.
    """

    def on_decision(self, in_flight: InFlight, outcome: Outcome, decision: Decision) -> None:
        """Called with each decision before it is carried out. There is none about a message whose handler ended with
        DONE. There are several about a message that waits, or that its target refuses (if there is another target).
        """

    def close(self) -> None:
        """Ends the observation: the worker has closed its connections."""


class AcknowledgementObserver(Protocol):
    """Observer of confirmed acknowledgements. Outside the test harness its calls do not wait for hooks, except `close`,
    for 2 s at most, and never raise.
    """

    def on_acknowledged(self, messages: Sequence[Acknowledged], called: Callable[[], object]) -> None:
        """Calls hooks with the messages, perhaps later and on another thread, and `called` after that, also if there
        are no messages. `messages`: pairs of a message and the name of the rule by which it ended.
        """

    @property
    def running_hook(self) -> tuple[str, float] | None:
        """(name of the hook that runs now, seconds since it was called); None if no hook runs. Any thread may read
        it.
        """

    def close(self) -> None:
        """Takes no more messages and drops those that wait, whose `called` is never called. Hooks still run for the
        messages of the `on_acknowledged` for which they have begun.
        """


@dataclass(frozen=True, slots=True)
class Observers:
    """Observers of one worker; a field is None if nobody observes. `received`: called with (policy, lane, deliveries,
    check of payloads) before the engine gets these deliveries, also with copies of messages that came before and with
    deliveries that the engine drops; on the thread of the adapter, without the worker's lock. An exception fails the
    worker.
    """

    received: OnReceived | None = None
    decisions: DecisionObserver | None = None
    acknowledged: AcknowledgementObserver | None = None

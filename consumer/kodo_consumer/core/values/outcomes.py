"""Outcomes of a message: frozen values, a closed union.

A handler asks for them by exceptions (kodo_consumer.core.values.exceptions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kodoctl.topology.names import Level, State  # noqa: TC001  # the compiler needs types of fields at run time


class ErrorDetails(NamedTuple):
    """Text and stack of an error, redacted and cut; each empty where there is none."""

    text: str
    stack: str


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised or took too long."""

    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """Failed: tried again after `after` ms (None: as declared, for this `code` if the topology names it), not in memory."""

    after: int | None
    reason: str
    code: str = ""
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class StateAsked:
    """The handler asks for PENDING or BLOCKING."""

    state: State
    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """No later try can help."""

    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class Discarded:
    """Not worth handling."""

    reason: str


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """The handler asks for another level."""

    level: Level


@dataclass(frozen=True, slots=True)
class TransferAsked:
    """The handler asks for a new message on another ground.
    `payload` None: the same; `changes` go over the properties.
    """

    topic: str
    payload: bytes | None = None
    changes: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class DependencyUnavailable:
    """Something the handler needs is not there."""

    dependency: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """Was done before: its effects are there, another run would repeat them."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """Taken, and not started after all: another worker runs it, or its mark cannot be stored now."""

    reason: str


@dataclass(frozen=True, slots=True)
class OtherSubscription:
    """Another subscription's escalation on a topic both read."""


@dataclass(frozen=True, slots=True)
class TooEarly:
    """Delivered before it was due (`due`: ms since the epoch)."""

    due: int


@dataclass(frozen=True, slots=True)
class TakenOverFromSoften:
    """Left here by the Go library, which waits by itself until a message is `due` (ms since the epoch)."""

    due: int


@dataclass(frozen=True, slots=True)
class Routed:
    """A route names another level, which takes messages. `route`: its name, for people."""

    level: Level
    route: str = ""


@dataclass(frozen=True, slots=True)
class OverRate:
    """A rate has no room before `slot` (ms since the epoch), which it has set aside for this message."""

    slot: int


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A quota's window has no room before `slot` (ms since the epoch)."""

    slot: int


@dataclass(frozen=True, slots=True)
class Isolated:
    """Its tenant fills the look-ahead; by the tenant's pace its turn comes at `due` (ms since the epoch)."""

    due: int


@dataclass(frozen=True, slots=True)
class LaneFull:
    """Moved aside without a due time of the broker's, `due` (ms since the epoch) in a while, and one more than its lane may
    wait for in memory.
    """

    due: int


@dataclass(frozen=True, slots=True)
class CorruptHeaders:
    """Headers on a state topic that no worker wrote."""

    reason: str


@dataclass(frozen=True, slots=True)
class RejectedByTarget:
    """The target's broker will never take this message: too big, its schema, not authorised."""

    reason: str


Outcome = (
    Done | Failed | RetryAsked | StateAsked | DeadLettered | Discarded | MoveAsked | TransferAsked | DependencyUnavailable
    | Repeated | Deferred | OtherSubscription | TooEarly | Routed | OverRate | OverQuota | Isolated | LaneFull | CorruptHeaders | RejectedByTarget | TakenOverFromSoften
)  # fmt: skip
DONE = Done()
TOOK_TOO_LONG = Failed("handler took too long")


def failure_reason(outcome: Outcome) -> str | None:
    """Label under which a failed run of a handler is counted: an exception's class, a verdict's name; None: no failure.

    Of a reason with details (`MoveTo: no level L9`) it is what stands before them: details may be anything.
    """
    match outcome:
        case Failed(reason):
            return reason.partition(":")[0]
        case RetryAsked():
            return "Retry"
        case StateAsked(state):
            return state.value.capitalize()
        case _:
            return None


_WITH_ERROR = Failed | RetryAsked | StateAsked | DeadLettered


def error_of(outcome: Outcome) -> ErrorDetails | None:
    """Details of the error that a run ended with; None where none are kept."""
    return outcome.error if isinstance(outcome, _WITH_ERROR) else None


def ended_run(outcome: Outcome) -> bool:
    """True if the outcome ends a run of a handler without success: what was known of an earlier error is of no use any more."""
    return isinstance(outcome, _WITH_ERROR)


def with_error(outcome: Outcome, error: ErrorDetails | None) -> Outcome:
    """The outcome with details of the error that led to it; as it is where it is no failure."""
    return outcome if error is None or not isinstance(outcome, _WITH_ERROR) else replace(outcome, error=error)


def reason_text(reason: object) -> str:
    """Reason as text that a property can carry: lone surrogates, which JSON may contain, are replaced."""
    text = str(reason)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_systemic(outcome: Outcome) -> bool:
    """True if the end of a handler suggests a fault that concerns more than one message.
    PENDING and BLOCKING concern the message alone.
    """
    return isinstance(outcome, Failed | RetryAsked | DependencyUnavailable)

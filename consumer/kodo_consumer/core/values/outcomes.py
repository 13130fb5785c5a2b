"""Outcomes of a message: frozen values, a closed union.

Handlers request some of them by exceptions (kodo_consumer.core.values.exceptions).
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
    """The handler raised or took too long. `reason`: class of the exception, or words; `error`: its text and stack,
    None if they are not kept.
    """

    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """The run failed, and while attempts are left the message is tried again after `after` ms, without the in-place
    waits of other failures. `after` None: as declared, for this `code` if the topology names it. See Retry.
    """

    after: int | None
    reason: str
    code: str = ""
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class StateAsked:
    """The handler asks for a wait in PENDING or BLOCKING. If the message cannot go there, this is a failure. See
    Pending.
    """

    state: State
    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The message becomes a dead letter, because no later try can help. Without a topic of dead letters it stays in its
    lane, in memory, and its handler runs again and again.
    """

    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class Discarded:
    """The handler raised Discard, or a person discards the message: it is acknowledged, and no later run comes."""

    reason: str


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """The handler asks for another level."""

    level: Level


@dataclass(frozen=True, slots=True)
class PostponeAsked:
    """The handler requests a later delivery of the message, which counts no attempt: at `until` (ms since the epoch),
    or, if that is None, in `after` ms. `reason` may be empty.
    """

    after: int
    until: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class TransferAsked:
    """The handler asks for a new message on `topic`, as the subscription's `produces` names it, in place of this one.
    `payload` and `key` None: the old ones; `changes` replace properties of their names.
    """

    topic: str
    payload: bytes | None = None
    changes: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class DependencyUnavailable:
    """A dependency of the handler is unavailable. The message waits in memory, its handler then runs again, and no
    attempt counts; the wait grows from about 1 s to about 30 s. `dependency`: the name that the handler gave, or what
    an error showed to be down, such as `database (connection refused)`.
    """

    dependency: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """The message was done before, as the store or the handler says: it is acknowledged, because another run would
    repeat its effects.
    """


@dataclass(frozen=True, slots=True)
class Deferred:
    """The message is not started now, and is tried again in a second: it is being handled already, it must run alone,
    the store of done messages cannot be reached, or it is on a level where its tenant must not be, and cannot leave
    because routes moved it too often. This is no deferral: a handler that defers its message has run.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class OtherSubscription:
    """The message is meant for another subscription that reads the same topic, or is a producer's mark, which nobody
    handles: it is acknowledged.
    """


@dataclass(frozen=True, slots=True)
class TooEarly:
    """The message was delivered before it was due (`due`: ms since the epoch): it waits in memory until then."""

    due: int


@dataclass(frozen=True, slots=True)
class TakenOverFromSoften:
    """The Go library soften left the message in this lane, and would have waited with it until it is `due` (ms since
    the epoch): the message waits until then.
    """

    due: int


@dataclass(frozen=True, slots=True)
class Routed:
    """The message belongs on another level, which takes messages: by a route, an exclusive level or a move by hand.
    `route`: name of the route, or the reason, for people.
    """

    level: Level
    route: str = ""


@dataclass(frozen=True, slots=True)
class OverRate:
    """A rate has no room before `slot` (ms since the epoch). That moment is set aside for this message, unless the
    message is back from another topic before: then it asks again.
    """

    slot: int


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A quota holds the message up until `slot` (ms since the epoch), when all limits of the message have room. The
    slot is set aside for the message, unless it is back from another topic before: then it asks again.
    """

    slot: int


@dataclass(frozen=True, slots=True)
class Isolated:
    """The message's tenant fills the look-ahead; at the tenant's pace its turn comes at `due` (ms since the epoch)."""

    due: int


@dataclass(frozen=True, slots=True)
class LaneFull:
    """An isolated message that came before it is `due` (ms since the epoch) is one more than may wait in memory: the
    broker is to keep it.
    """

    due: int


@dataclass(frozen=True, slots=True)
class CorruptHeaders:
    """The message must not be handled and becomes a dead letter: it has headers that no worker wrote, on a topic where
    only workers write, or its key and properties cannot be read.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class RejectedByTarget:
    """The broker will never take this message at its target: too big, its schema, not authorised. It becomes a dead
    letter.
    """

    reason: str


Outcome = (
    Done | Failed | RetryAsked | StateAsked | DeadLettered | Discarded | MoveAsked | PostponeAsked | TransferAsked | DependencyUnavailable
    | Repeated | Deferred | OtherSubscription | TooEarly | Routed | OverRate | OverQuota | Isolated | LaneFull | CorruptHeaders | RejectedByTarget | TakenOverFromSoften
)  # fmt: skip
DONE = Done()
TOOK_TOO_LONG = Failed("handler took too long")


def failure_reason(outcome: Outcome) -> str | None:
    """Label under which a failed run of a handler is counted: an exception's class, a verdict's name; None: it is not
    counted as failed (done, dead, discarded, moved, postponed, unavailable).

    Of a reason with details (`MoveTo: no level L9`) it is the part before the colon, because details may be anything.
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
    """Details of the error that a run ended with; None if the outcome has no details of an error."""
    return outcome.error if isinstance(outcome, _WITH_ERROR) else None


def ended_run(outcome: Outcome) -> bool:
    """True if a run failed, asked for a retry or a state, or made the message a dead letter: its error, or the lack of
    one, then replaces that of an earlier run.
    """
    return isinstance(outcome, _WITH_ERROR)


def with_error(outcome: Outcome, error: ErrorDetails | None) -> Outcome:
    """The outcome with details of the error that led to it. Unchanged without details, and for an outcome that has
    none: all but Failed, RetryAsked, StateAsked and DeadLettered.
    """
    return outcome if error is None or not isinstance(outcome, _WITH_ERROR) else replace(outcome, error=error)


def reason_text(reason: object) -> str:
    """Reason as text that a property can carry: lone surrogates, which JSON may contain, are replaced."""
    text = str(reason)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_systemic(outcome: Outcome) -> bool:
    """True if the end of a handler suggests a fault that concerns more than one message: Failed, RetryAsked and
    DependencyUnavailable.

    PENDING and BLOCKING concern the message alone.
    """
    return isinstance(outcome, Failed | RetryAsked | DependencyUnavailable)

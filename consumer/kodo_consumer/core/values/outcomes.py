"""Outcomes of a message: frozen values, a closed union.

Handlers request some of them by exceptions (kodo_consumer.core.values.exceptions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kodoctl.topology.names import Level, State  # noqa: TC001  # the compiler needs types of fields at run time


class ErrorDetails(NamedTuple):
    """Text and stack of an error, redacted and cut as the subscription declares; either is empty if none is kept."""

    text: str
    stack: str


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The run failed: the handler raised, took too long, returned no valid result, or made a request that cannot be
    carried out. `reason`: class of the exception, or words; `error`: text and stack of the exception, None if there is
    no exception or they are not kept.
    """

    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """The run failed, and the handler asks for another one after `after` ms (`Policy.horizon` at most, where order is
    kept `Policy.longest_in_order`); None: as declared, for this `code` if the topology names it. The message skips the
    in-place waits of other failures, and without an attempt left it goes on as after any failure. See Retry.
    """

    after: int | None
    reason: str
    code: str = ""
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class StateAsked:
    """The run failed, and the handler asks for a wait in PENDING or BLOCKING. A message that cannot go there goes on as
    after other failures. See Pending.
    """

    state: State
    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The message becomes a dead letter, because its handler asked for that, or ended processes again and again.
    Without a topic of dead letters it waits in its lane, in memory, 5 s at first and 5 min at most, and is then tried
    again.
    """

    reason: str
    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class Discarded:
    """The handler raised Discard, or a person discards the message unhandled: it is acknowledged."""

    reason: str


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """The handler asks for another level."""

    level: Level


@dataclass(frozen=True, slots=True)
class PostponeAsked:
    """The handler requests a later delivery of the message, which counts no attempt: at `until` (ms since the epoch)
    or, if that is None, `after` ms from now; at once if that is past, and after the longest wait at most, as
    for RetryAsked. The run failed if the message has nowhere to wait. `reason` may be empty. See Postpone.
    """

    after: int
    until: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class TransferAsked:
    """The handler asks for a new message on `topic`, as the subscription's `produces` names it, in place of this one.
    `payload` None: the old one; `key` None: the old key and the old ordering key, else it is the only key; `changes`:
    properties that are added or replaced. See Transfer.
    """

    topic: str
    payload: bytes | None = None
    changes: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class DependencyUnavailable:
    """A dependency of the handler is unavailable. The message waits in memory, is then tried again, and no attempt
    counts; the wait grows from about 1 s to about 30 s. `dependency`: the name that the handler gave, or the part of
    the infrastructure that an error reports to be at fault, such as `database (connection refused)`; where error texts
    are redacted, without the words of the error.
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
    the store of done messages cannot be reached, or it is on a level where its tenant must not be, and may leave only
    later, because it was moved too often. This is no deferral: a handler that defers its message has run.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class OtherSubscription:
    """The message is meant for another subscription that reads the same topic, or is a producer's mark, which nobody
    handles: it is acknowledged.
    """


@dataclass(frozen=True, slots=True)
class TooEarly:
    """The message was delivered before it is due (`due`: ms since the epoch): it waits in memory until then, unless
    more such messages wait there than may (see LocalDelays).
    """

    due: int


@dataclass(frozen=True, slots=True)
class TakenOverFromSoften:
    """The Go library soften left the message in this lane, and would have waited with it until it is `due` (ms since
    the epoch): the message waits until then, in memory if that is 5 s at most, else in the broker, for `Policy.horizon`
    at most.
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
    """A rate holds the message up until `slot` (ms since the epoch). The slot is set aside for the message, unless it
    is back from another topic before: then it asks again. See LimiterSet.reserve.
    """

    slot: int


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A quota holds the message up until `slot` (ms since the epoch). The slot is set aside for the message, unless it
    is back from another topic before: then it asks again. See LimiterSet.reserve.
    """

    slot: int


@dataclass(frozen=True, slots=True)
class Isolated:
    """The message's tenant fills the look-ahead, so the message is to wait elsewhere. `due`: ms since the epoch when
    its turn comes at the tenant's pace or, if that is an hour away or more, a moment in 30 to 60 minutes.
    """

    due: int


@dataclass(frozen=True, slots=True)
class LaneFull:
    """An isolated message that came before it is `due` (ms since the epoch) is one more than may wait in memory: the
    broker is to keep it until then, at the end of its lane.
    """

    due: int


@dataclass(frozen=True, slots=True)
class CorruptHeaders:
    """The message must not be handled and becomes a dead letter (it waits in memory if there is no topic of those): on
    a topic where only workers write it has broken headers or, if workers sign, no valid signature; or, on any topic, it
    is encrypted, or a part such as its key cannot be read.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class RejectedByTarget:
    """The broker will never take this message at its target, for its size, its schema or a missing right for example.
    It becomes a dead letter.
    """

    reason: str


Outcome = (
    Done | Failed | RetryAsked | StateAsked | DeadLettered | Discarded | MoveAsked | PostponeAsked | TransferAsked | DependencyUnavailable
    | Repeated | Deferred | OtherSubscription | TooEarly | Routed | OverRate | OverQuota | Isolated | LaneFull | CorruptHeaders | RejectedByTarget | TakenOverFromSoften
)  # fmt: skip
DONE = Done()
TOOK_TOO_LONG = Failed("handler took too long")


def failure_reason(outcome: Outcome) -> str | None:
    """Label under which a failed run of a handler is counted: the class of its exception, the name of its request, such
    as `Retry`, or words. None, because the run is not counted as failed, for any outcome but Failed, RetryAsked and
    StateAsked: for DeadLettered, too.

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
    """True for Failed, RetryAsked, StateAsked and DeadLettered: the error in such an outcome, or the lack of one,
    replaces the error of an earlier run in the message's headers.
    """
    return isinstance(outcome, _WITH_ERROR)


def with_error(outcome: Outcome, error: ErrorDetails | None) -> Outcome:
    """The outcome with details of the error that led to it, in place of earlier ones. It is unchanged if `error` is
    None, or if it can have no details: if it is none of Failed, RetryAsked, StateAsked and DeadLettered.
    """
    return outcome if error is None or not isinstance(outcome, _WITH_ERROR) else replace(outcome, error=error)


def reason_text(reason: object) -> str:
    """Reason as text that a property can carry: `?` replaces each lone surrogate, which JSON may contain."""
    text = str(reason)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_systemic(outcome: Outcome) -> bool:
    """True if the end of a handler suggests a fault that concerns more than one message: Failed, RetryAsked and
    DependencyUnavailable.

    StateAsked and DeadLettered concern the message alone.
    """
    return isinstance(outcome, Failed | RetryAsked | DependencyUnavailable)

"""Exceptions by which a handler requests an outcome for its message.

A handler that returns has done its work; any other exception, or a time-out, is a failure, except an error that shows
a fault of the infrastructure: it counts as Unavailable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, get_args

from kodo_consumer.core.values.envelope import Duration, Level, State
from kodo_consumer.core.values.outcomes import (
    DeadLettered,
    DependencyUnavailable,
    Discarded,
    Failed,
    MoveAsked,
    Outcome,
    PostponeAsked,
    Repeated,
    RetryAsked,
    StateAsked,
    TransferAsked,
    error_of,
    reason_text,
)
from kodo_consumer.core.values.wire_texts import PropertyValue, property_texts, why_no_text

_KINDS: Final = frozenset(get_args(Outcome))  # to look one up costs less than to compare with each


class HandlerSignal(Exception):  # noqa: N818  # not an error: a request of a handler
    """Base class of the exceptions by which a handler requests an outcome; each subclass defines `outcome`. Any other
    exception counts as failed, or as Unavailable if it shows a fault of the infrastructure that is not merely busy,
    such as a missing table. An exception group counts as kodo_consumer.core.values.exception_groups says.
    """

    @property
    def outcome(self) -> Outcome:
        """The outcome that the exception requests."""
        raise NotImplementedError


def outcome_of(verdict: HandlerSignal) -> Outcome:
    """Outcome that a handler's request asks for. Raises whatever the `outcome` of a user's class raises; TypeError if
    that is no outcome.
    """
    found: Any = verdict.outcome
    if type(found) in _KINDS or isinstance(found, Outcome):
        outcome: Outcome = found
        return outcome
    raise TypeError(f"{type(verdict).__name__}.outcome is no outcome, but {found!r}")


class HandlerFailedError(HandlerSignal):
    """Failure of a handler in another process, as code around handlers sees it: the handler raised an exception that is
    no request, took too long, or has no process. Its text is the reason, such as the name of the exception's class.
    """

    def __init__(self, reason: str, outcome: Outcome | None = None) -> None:
        super().__init__(reason)
        self._outcome = outcome or Failed(reason)

    @property
    def outcome(self) -> Outcome:
        """The outcome that the constructor got; if it got none, Failed with the reason."""
        return self._outcome


class Retry(HandlerSignal):
    """Requests another try `after` a timedelta or a text such as "30s" (None: as declared), without the in-place waits
    of other failures. The run failed and takes an attempt of RETRYING, or of the backup level that the message is on;
    without one left, or without RETRYING, the message goes on as after any failure.

    `after` is cut to the longest wait of the subscription (see RetryAsked). `code`: a word for which the topology may
    have delays of its own (`retrying.by_code`), which count if `after` is None. `why`, or else `code`, is the reason of
    a message that is moved. Wrong arguments raise at once: UnitError for a text that is no time, TypeError for any
    other value of `after`, and for a `code` that is no text.
    """

    def __init__(self, after: timedelta | str | None = None, why: str = "", *, code: str = "") -> None:
        if not isinstance(code, str):
            raise TypeError(f'code is a word of retrying.by_code, such as "busy", not {code!r}')
        self.after = _milliseconds(after)
        self.code = reason_text(code)
        self.why = reason_text(why) or self.code
        super().__init__(self.why or "retry")

    @property
    def outcome(self) -> Outcome:
        """RetryAsked of the arguments; its reason is never empty."""
        return _retry_asked(self.after, self.why or "asked to retry", self.code)


class Pending(HandlerSignal):
    """Requests a wait in PENDING of the message's level (a level that drains uses that of L1), as long as the topology
    declares for the attempt; counts one attempt of that state. The exception's text travels with the message. The run
    counts as failed. It is a failure like any other if the level has no PENDING that takes messages, on a backup level,
    and in a lane that keeps an order (unless `on_failure` is "leave"). Without an attempt left in PENDING the message
    goes to RETRYING, or on from there.
    """

    @property
    def outcome(self) -> Outcome:
        """StateAsked with PENDING."""
        return StateAsked(State.PENDING, reason_text(self) or "asked for pending")


class Blocking(HandlerSignal):
    """Requests a wait in BLOCKING of the message's level: all is as with Pending, but for the state BLOCKING."""

    @property
    def outcome(self) -> Outcome:
        """StateAsked with BLOCKING."""
        return StateAsked(State.BLOCKING, reason_text(self) or "asked for blocking")


class Dead(HandlerSignal):
    """Requests that the message becomes a dead letter; the text travels with it: short, no secrets. Where the topology
    has no topic of dead letters, the message waits in memory, and its handler runs again.
    """

    @property
    def outcome(self) -> Outcome:
        """DeadLettered with the text."""
        return DeadLettered(reason_text(self) or "dead")


class Repeat(HandlerSignal):
    """Reports that the message was done before: it is acknowledged, and counted as a repeat. Let it pass through the
    transaction, which must roll back.
    """

    @property
    def outcome(self) -> Outcome:
        """Outcome `Repeated`."""
        return Repeated()


class InvalidPayloadError(Dead):
    """Error of a payload that cannot be read or encoded: it is not the JSON, Avro or text that was asked for, or does
    not fit the declared schema or the handler's type. Unless the handler catches the error, its message becomes a dead
    letter, as with Dead.
    """


class Discard(HandlerSignal):
    """Requests that the message is acknowledged as discarded: this subscription neither tries it again nor keeps it as
    a dead letter. The text is the reason in audit records.
    """

    @property
    def outcome(self) -> Outcome:
        """Discarded with the text."""
        return Discarded(reason_text(self) or "discarded")


class MoveTo(HandlerSignal):
    """Requests a move to the ready lane of a level, such as "L2"; counts no attempt. The run failed instead if that
    level is not declared or drains, if exclusive levels keep the tenant from it, if the message is in that lane
    already, or if its lane keeps an order (unless `on_failure` is "leave"). A message that was moved too often
    (`Policy.max_hops`) becomes a dead letter. A level that is no text raises TypeError at once.
    """

    def __init__(self, level: Level | str) -> None:
        if not isinstance(level, str):
            raise TypeError(f'level is a name such as "L2", not {level!r}')
        super().__init__(level)
        self.level = level

    @property
    def outcome(self) -> Outcome:
        """MoveAsked; Failed if no topology can have a level of this name."""
        if self.level not in list(Level):
            return Failed(f"MoveTo: no level {reason_text(self.level)}")
        return MoveAsked(Level(self.level))


class Postpone(HandlerSignal):
    """Requests that the message is delivered again at the time `until` (with a time zone), or after a timedelta or a
    text such as "30s", or up to 3 s later. The wait is cut to the longest one of the subscription (see RetryAsked); a
    time in the past means at once. No attempt counts, and the run has not failed.

    If the lane keeps an order (unless `on_failure` is "leave"), the message waits in memory, and its key with it; a
    redelivery ends that wait. Else it is published to its own waiting state or backup level, or to the first state of
    its level that takes messages, of PENDING, RETRYING and BLOCKING, and `why` travels with it; without such a topic
    the run failed. Wrong arguments raise TypeError at once, a text that is no time UnitError.
    """

    def __init__(self, until: datetime | timedelta | str, why: str = "") -> None:
        reason = reason_text(why)
        super().__init__(reason or "postpone")
        if isinstance(until, datetime):
            if until.tzinfo is None:
                raise TypeError("until is a time with a time zone, as in datetime.now(UTC) + timedelta(hours=1)")
            self.asked = PostponeAsked(0, max(0, round(until.timestamp() * 1000)), reason)
        elif isinstance(until, timedelta | str):
            self.asked = PostponeAsked(_milliseconds(until) or 0, None, reason)
        else:
            raise TypeError(f'until is a datetime, a timedelta or a text such as "30s", not {until!r}')

    @property
    def outcome(self) -> Outcome:
        """Outcome `PostponeAsked`, as made by the constructor."""
        return self.asked


class Transfer(HandlerSignal):
    """Requests a new message on another topic, named as in the subscription's `produces`; this one is acknowledged once
    the new one is stored. The run failed if the topic is not in `produces`, if `properties` has names of the platform's
    own, or, for a topic of the same file, if the message does not fit its payload schema or lacks properties that it
    requires. If the broker refuses the new message for good, for its size for example, this one becomes a dead letter.

    Payload (bytes), keys and properties are the old ones unless given, the event time always; `key` replaces the
    ordering key, too, and `properties` replace old ones of their names, as texts (true, false and numbers as JSON
    writes them). The new message has an identity of its own. Wrong arguments raise TypeError at once.
    """

    def __init__(
        self,
        topic: str,
        payload: bytes | None = None,
        *,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
    ) -> None:
        changes, wrong = property_texts({} if properties is None else properties)
        _check_transfer(topic, payload, key, wrong)
        super().__init__(topic)
        key = None if key is None else str.__str__(key)  # marshal, between processes, writes no StrEnum
        self.asked = TransferAsked(str.__str__(topic), payload, changes, key)

    @property
    def outcome(self) -> Outcome:
        """Outcome `TransferAsked`, as made by the constructor."""
        return self.asked


def _check_transfer(topic: Any, payload: Any, key: Any, wrong: Sequence[str]) -> None:
    """Raises TypeError at the handler's call: later nobody knows which handler made it."""
    if why_no_text(topic) or (key is not None and why_no_text(key)):
        raise TypeError(f"topic and key are text, not {topic!r} and {key!r}")
    if not (payload is None or isinstance(payload, bytes)):
        raise TypeError(f"payload is bytes, not {type(payload).__name__}: encode it, as in json.dumps(order).encode()")
    if wrong:
        raise TypeError(f"properties: {'; '.join(wrong)}")


class Unavailable(HandlerSignal):
    """Reports that a dependency is down: the message waits in memory, 1 s at first, twice as long each further time up
    to 30 s, and up to a quarter longer at random; then its handler runs again. No attempt counts, however often.
    """

    def __init__(self, dependency: str) -> None:
        super().__init__(dependency)
        self.dependency = reason_text(dependency)

    @property
    def outcome(self) -> Outcome:
        """DependencyUnavailable with its name."""
        return DependencyUnavailable(self.dependency)


def exception_for(outcome: Outcome) -> HandlerSignal:
    """Makes the exception that code around a handler gets for the outcome of the handler in another process. For a
    request (such as RetryAsked) it is the exception of this library that makes the request (Retry), so a subclass comes
    as its base (InvalidPayloadError as Dead); for a failure it is HandlerFailedError with the reason, and for any other
    outcome HandlerFailedError with the name of the outcome's class. Details of an error are not in it, except in
    HandlerFailedError: see `error_behind`.
    """
    match outcome:
        case RetryAsked(after, reason, code):
            return Retry(None if after is None else timedelta(milliseconds=after), reason, code=code)
        case StateAsked(State.PENDING, reason):
            return Pending(reason)
        case StateAsked(_, reason):
            return Blocking(reason)
        case DeadLettered(reason):
            return Dead(reason)
        case Discarded(reason):
            return Discard(reason)
        case MoveAsked(level):
            return MoveTo(level)
        case PostponeAsked(after, until, reason):
            wait = timedelta(milliseconds=after)
            return Postpone(wait if until is None else datetime.fromtimestamp(until / 1000, UTC), reason)
        case TransferAsked(topic, payload, changes, key):
            return Transfer(topic, payload, key=key, properties=changes)
        case DependencyUnavailable(dependency):
            return Unavailable(dependency)
        case Repeated():
            return Repeat()
        case Failed(reason):
            return HandlerFailedError(reason, outcome)
        case _:
            return HandlerFailedError(type(outcome).__name__, outcome)


def error_behind(outcome: Outcome) -> HandlerFailedError | None:
    """Exception from which to raise the one of `exception_for` (`raise … from`), so that ErrorTextReader finds the
    details of an error in another process: HandlerFailedError with the outcome. None if the outcome has no details.
    """
    return None if error_of(outcome) is None else HandlerFailedError(type(outcome).__name__, outcome)


@lru_cache(maxsize=256)
def _retry_asked(after: int | None, why: str, code: str) -> RetryAsked:
    """RetryAsked of these values, shared by equal requests: to make a frozen value costs more than to find it."""
    return RetryAsked(after, why, code)


def _milliseconds(span: timedelta | str | None) -> int | None:
    if span is None:
        return None
    if isinstance(span, timedelta):
        return max(0, round(span.total_seconds() * 1000))
    return int(Duration.parse(span))

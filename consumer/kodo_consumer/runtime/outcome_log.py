"""Log of the outcomes of handlers. Failures are logged where handlers run (handler_errors.py)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.outcomes import (
    DeadLettered,
    Discarded,
    Done,
    PostponeAsked,
    Repeated,
    RetryAsked,
    StateAsked,
    TransferAsked,
)
from kodo_consumer.runtime.failure_forecast import FailureForecast
from kodo_consumer.runtime.handler_errors import LogRate, message_fields, message_words
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from kodo_consumer.core.values.outcomes import Outcome
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Message

log = logging.getLogger("kodo.consumer")
_MAX_REASON: Final = 200  # characters
_WORDS: Final[dict[type[Outcome], str]] = {
    Done: "done",
    DeadLettered: "given up",
    Discarded: "discarded",
    PostponeAsked: "postponed",
    Repeated: "done before",
    RetryAsked: "retry requested",
    StateAsked: "wait requested",
    TransferAsked: "transferred",
}


class OutcomeLog:
    """Log entries of one worker about the outcomes of its handlers: a run that ends with DeadLettered (by Dead, or
    because its handler ended its process or worker again and again) at warning, ten in 10 s at most; messages that are
    done, and other verdicts except MoveTo and Unavailable, at debug. Failures are logged elsewhere. Any thread may
    write.
    """

    def __init__(self) -> None:
        self._rate = LogRate()

    def write(self, message: Message, outcome: Outcome, policy: Policy, *, is_ended: bool = False) -> None:
        """Logs the outcome of a run before the worker carries it out, or after that (`is_ended`: the worker has done
        so). A DeadLettered that comes too late, because the worker took its run for over, has no entry. Entries name
        neither tenant nor reason if `policy` keeps error texts.
        """
        level = logging.WARNING if isinstance(outcome, DeadLettered) else logging.DEBUG
        words = _WORDS.get(type(outcome))
        if words is None or not log.isEnabledFor(level):
            return
        if level == logging.WARNING and self._rate.take(level) is None:
            return
        following = "" if isinstance(outcome, Done) else FailureForecast(lambda: policy)(message, outcome)
        if level == logging.WARNING and not following and not is_ended:
            return
        # whether hooks redact is known to the executor alone: where texts are kept, tenant and reason stay out
        redacts = policy.error_text is not None
        fields = message_fields(message, following, redacts=redacts)
        reason = "" if redacts else one_line(getattr(outcome, "reason", ""), _MAX_REASON)
        log.log(
            level,
            "%s%s: %s%s",
            words,
            f" ({reason})" if reason else "",
            message_words(fields),
            f"; {following}" if following else "",
            extra=fields | ({"reason": reason} if reason else {}),
        )

"""Forecast of the next step of a message whose handler failed, as text for the log: the failure is logged before the
worker has decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kodo_consumer.core.state.in_flight import InFlight, Stage
from kodo_consumer.core.state_machine import Delay, Reroute, Rule, decide
from kodoctl.text.formatting import duration_text

if TYPE_CHECKING:
    from kodo_consumer.core.values.outcomes import Outcome
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Message


class FailureForecast:
    """Forecast of the next step of a message whose handler failed, by the decision of the state machine, without the
    jitter of delays, and as if memory had room for an in-place wait. Thread-safe.

    `policy_of` returns the policy that the worker follows now.
    """

    def __init__(self, policy_of: Callable[[], Policy]) -> None:
        self._policy_of = policy_of

    def __call__(self, message: Message, outcome: Outcome) -> str:
        """Text about a message after this outcome: `tried again in about 30 s`, with `from L1/retrying` if it moves
        there, or `becomes a dead letter`; empty if the message is not running any more, or is neither delayed nor
        rerouted.
        """
        in_flight = message._in_flight  # noqa: SLF001  # the run belongs to the engine's message
        if not isinstance(in_flight, InFlight) or in_flight.stage not in (Stage.RUNNING, Stage.DEFERRED):
            return ""
        now = round(time.time() * 1000)
        match decide(in_flight.envelope(may_wait=True), outcome, self._policy_of(), now):
            case Delay(delay=delay):
                return f"tried again in about {duration_text(delay)}"
            case Reroute(why=Rule.DEAD):
                return "becomes a dead letter"
            case Reroute(target=target, headers=headers):
                wait = "" if headers.due is None else f" in about {duration_text(max(0, headers.due - now))}"
                return f"tried again{wait} from {target.level}/{target.state}"
            case _:
                return ""

"""Validation of outcomes: if the request of a handler cannot be carried out, its run counts as failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kodo_consumer.core.checks.message_validation import MessageValidator, validator_of
from kodo_consumer.core.state_machine import why_not_level, why_not_postponed
from kodo_consumer.core.values.envelope import PREFIX
from kodo_consumer.core.values.outcomes import Failed, MoveAsked, Outcome, PostponeAsked, TransferAsked, reason_text
from kodoctl.errors import UsageError

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.values.policy import Policy


class OutcomeValidator:
    """Checks moves, postponements and transfers that handlers request, by a policy; all other outcomes pass. A transfer
    to a topic of the same file must also fit the payload schema of that topic, and have its required properties;
    undeclared properties and the size are not checked.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._forms: dict[str, MessageValidator | None] = {}

    def validate(self, in_flight: InFlight, asked: Outcome) -> Outcome:
        """Returns the outcome `asked`, or Failed with the reason if it is a move, a postponement or a transfer that
        cannot be carried out.
        """
        if isinstance(asked, MoveAsked):
            problem = why_not_level(in_flight.envelope(may_wait=True), asked.level, self._policy)
            exclusive = self._policy.exclusive
            if not problem and exclusive.level_of(in_flight.tenant, asked.level) is not asked.level:
                problem = exclusive.rule_for(in_flight.tenant, asked.level)
            return Failed(f"MoveTo: {problem}") if problem else asked
        if isinstance(asked, PostponeAsked):
            problem = why_not_postponed(in_flight.envelope(may_wait=True), self._policy)
            return Failed(f"Postpone: {problem}") if problem else asked
        if isinstance(asked, TransferAsked):
            problem = self._problem(in_flight, asked)
            return Failed(reason_text(f"Transfer: {problem}")) if problem else asked
        return asked

    def _problem(self, in_flight: InFlight, asked: TransferAsked) -> str:
        to = self._policy.produces.get(asked.topic)
        if to is None:
            return f"{asked.topic} is not in produces"
        if reserved := [name for name in asked.changes if name.startswith(PREFIX)]:
            return f"properties that are the platform's own: {', '.join(reserved)}"
        form = self._form(to)
        if form is None:
            return ""
        properties: Mapping[str, str] = {**in_flight.delivery.properties, **asked.changes}
        if missing := form.missing(properties):
            return f"{asked.topic} requires the properties {', '.join(missing)}"
        try:
            form.encode(in_flight.delivery.payload if asked.payload is None else asked.payload)
        except UsageError as problem:
            return f"{asked.topic}: {problem.diagnostics[0].detail}"
        return ""

    def _form(self, to: str) -> MessageValidator | None:
        """Rules for messages to a topic; None: it takes any."""
        if to not in self._forms:
            send_target = self._policy.send_targets.get(to)
            declares = send_target is not None and (
                send_target.schema is not None or "required" in send_target.properties.values()
            )
            self._forms[to] = validator_of(send_target) if send_target and declares else None
        return self._forms[to]

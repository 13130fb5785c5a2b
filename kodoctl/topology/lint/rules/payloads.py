"""K304: payload schemas that are missing, invalid, or incompatible with the version before. K306: policies of landed
payloads that contradict themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kodoctl.errors import Severity
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.topology import NEVER
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import LandedPayloads
    from kodoctl.topology.payload_schemas import PayloadFile

_NOTHING_LANDS = "with `keep: never` no payload lands, so nothing is masked: leave one of the two out"


@rule("K304", Severity.ERROR, "payload schema that cannot be used")
def payloads(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds payload schemas whose file cannot be read, that are no valid JSON Schema or Avro, or valid but not usable
    here (such as a pattern that is not linear, or too many checks), or not compatible with the earlier version, if a
    revision is given. Topics without a payload schema pass.
    """
    judged: dict[int, str] = {}
    for expansion, path, _ in scope.grounds():
        ground = str(path[1])
        payload = expansion.topology.payloads.get(ground)
        if payload is None:
            continue
        where = expansion.topology.where(*path, "payload", "schema")
        if id(payload) not in judged:
            from kodoctl.topology.payload_definition import why_unusable

            judged[id(payload)] = payload.problem or why_unusable(payload.type, payload.definition)
        if problem := judged[id(payload)]:
            yield RuleMatch(where, f"{payload.path}: {problem}")
        elif before := scope.earlier.get((expansion.topology.source.name, ground)):
            mode = _compatibility(scope, expansion, ground)
            yield from (RuleMatch(where, f"{payload.path}: {reason}") for reason in _changes(before, payload, mode))


@rule("K306", Severity.WARNING, "a payload policy that does something else than it says")
def landed_payloads(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds masks without effect: with `keep: never` no payload lands (is stored in a table), and Avro payloads cannot
    be masked, so that with a mask they do not land at all.
    """
    for expansion in scope.expansions:
        if _masks_nothing(expansion.topology.spec.payloads):
            yield RuleMatch(expansion.topology.where("payloads", "mask"), _NOTHING_LANDS)
    for expansion, path, ground in scope.grounds():
        where = expansion.topology.where
        if _masks_nothing(ground.payloads):
            yield RuleMatch(where(*path, "payloads", "mask"), _NOTHING_LANDS)
        policy = ground.payloads or expansion.topology.spec.payloads
        if policy and policy.mask and ground.payload and ground.payload.type == "avro" and policy.keep != NEVER:
            place = (*path, "payloads", "mask") if ground.payloads else ("payloads", "mask")
            detail = f"payloads of {path[1]} are avro, in which nothing is masked: with a mask they do not land at all"
            yield RuleMatch(where(*place), detail)


def _masks_nothing(policy: LandedPayloads | None) -> bool:
    return policy is not None and policy.keep == NEVER and bool(policy.mask)


def _compatibility(scope: LintScope, expansion: Expansion, ground: str) -> str:
    from kodoctl.topology.compat.compatibility import DEFAULT

    topics = (topic for topic in expansion.topics if topic.ground == ground and topic.state is State.READY)
    ready = next(topics, None)  # of any level: they share their policies; none if `levels` is []
    return (ready and scope.effective(ready, "schema_compatibility")) or DEFAULT


def _changes(before: PayloadFile, now: PayloadFile, mode: str) -> Iterator[str]:
    """Yields each reason why `now` is not compatible with `before` by `mode`; none if `before` was no valid schema."""
    from kodoctl.topology.compat.compatibility import what_breaks
    from kodoctl.topology.payload_definition import is_schema

    if before.problem or not is_schema(before.type, before.definition):
        return
    if before.type != now.type:
        yield f"was {before.type} before, is {now.type} now: no consumer can read both; use a new ground topic"
        return
    for reason in what_breaks(now.type, before.definition, now.definition, mode):
        yield f"not {mode} compatible: {reason}"

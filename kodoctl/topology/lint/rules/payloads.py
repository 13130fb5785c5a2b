"""K304: payload schemas that are missing, invalid, or break those who still speak the one before. K306: policies of landed
payloads that do something else than they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kodoctl.errors import Severity
from kodoctl.topology.compat import compatibility
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.topology import NEVER
from kodoctl.topology.names import Level, State

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.model.topology import LandedPayloads
    from kodoctl.topology.payload_schemas import PayloadFile

_NOTHING_LANDS = "with `keep: never` no payload lands, so nothing is masked: leave one of the two out"


@rule("K304", Severity.ERROR, "payload schema that cannot be used")
def payloads(scope: LintScope) -> Iterator[RuleMatch]:
    """The file exists, is valid JSON Schema or Avro, and is compatible with the one before it (where that is known)."""
    judged: dict[int, str | None] = {}
    for expansion, path, _ in scope.grounds():
        ground = str(path[1])
        payload = expansion.topology.payloads.get(ground)
        if payload is None:
            continue
        where = expansion.topology.where(*path, "payload", "schema")
        if id(payload) not in judged:
            judged[id(payload)] = payload.problem or what_is_wrong(payload.type, payload.definition)
        if problem := judged[id(payload)]:
            yield RuleMatch(where, f"{payload.path}: {problem}")
        elif before := scope.earlier.get((expansion.topology.source.name, ground)):
            mode = _compatibility(scope, expansion, ground)
            yield from (RuleMatch(where, f"{payload.path}: {reason}") for reason in _changes(before, payload, mode))


@rule("K306", Severity.WARNING, "a payload policy that does something else than it says")
def landed_payloads(scope: LintScope) -> Iterator[RuleMatch]:
    """Where payloads never land, nothing is masked; and no mask applies to a payload that is no JSON: it does not land."""
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
    topics = (topic for topic in expansion.topics if topic.ground == ground)
    ready = next(topic for topic in topics if topic.state is State.READY and topic.level is Level.L1)
    return scope.effective(ready, "schema_compatibility") or compatibility.DEFAULT


def _changes(before: PayloadFile, now: PayloadFile, mode: str) -> Iterator[str]:
    """Each way in which `now` breaks the promise of `mode`; an earlier file that was no schema promised nothing."""
    if before.problem or what_is_wrong(before.type, before.definition):
        return
    if before.type != now.type:
        yield f"was {before.type} before, is {now.type} now: no consumer can read both; use a new ground topic"
        return
    for reason in compatibility.what_breaks(now.type, before.definition, now.definition, mode):
        yield f"not {mode} compatible: {reason}"


def what_is_wrong(kind: str, definition: Any) -> str | None:
    """Reason why a definition is not valid JSON Schema (`json`) or Avro (`avro`), in one sentence; None if it is."""
    if kind == "json":
        import jsonschema

        try:
            jsonschema.validators.validator_for(definition, jsonschema.Draft202012Validator).check_schema(definition)
        except jsonschema.SchemaError as problem:
            return f"not valid JSON Schema: at {problem.json_path}: {problem.message[:200]}"
        except (TypeError, AttributeError):
            return "not valid JSON Schema: it should be an object"
        return None
    import fastavro

    try:
        fastavro.parse_schema(definition)
    except KeyError as problem:
        return f"not valid Avro: {problem} is missing"
    except Exception as problem:  # noqa: BLE001  # fastavro raises its own and, for odd shapes, built-in errors
        return f"not valid Avro: {str(problem)[:200] or type(problem).__name__}"
    if _lacks_fields(definition):  # fastavro takes it for a record without fields, brokers refuse it
        return "not valid Avro: a record has no list of `fields`"
    return None


def _lacks_fields(definition: Any) -> bool:
    if isinstance(definition, list):
        return any(map(_lacks_fields, definition))
    if not isinstance(definition, dict):
        return False
    if definition.get("type") == "record" and not isinstance(definition.get("fields"), list):
        return True
    return any(
        _lacks_fields(value) for key, value in definition.items() if key in ("type", "fields", "items", "values")
    )

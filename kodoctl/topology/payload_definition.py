"""Check of the definition in a payload schema file. Lint reports its result; commands that load topologies refuse by
it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from kodoctl.host.extras import install_command
from kodoctl.topology.payload_validator import PayloadValidator, UnusableSchemaError, is_json_schema


def why_unusable(kind: str, definition: Any) -> str:
    """Reason, in one sentence, why a definition is not usable JSON Schema (kind `json`) or Avro (`avro`), such as that
    the extra `avro` is not installed; "" if it is usable.
    """
    if kind == "json":
        try:
            PayloadValidator(definition)
        except UnusableSchemaError as problem:
            return str(problem)
        return ""
    return _why_no_avro(definition)


def is_schema(kind: str, definition: Any) -> bool:
    """True if a definition is valid JSON Schema or Avro, even if `why_unusable` refuses it: an earlier version of
    kodoctl may have accepted it. Avro counts as valid where the extra `avro` is missing, and nobody can judge it.
    """
    if kind == "avro":
        return find_spec("fastavro") is None or not _why_no_avro(definition)
    return is_json_schema(definition)


def _why_no_avro(definition: Any) -> str:
    try:
        import fastavro
    except ImportError:
        return f"Avro needs fastavro: {install_command('avro')}"
    try:
        fastavro.parse_schema(definition)
    except KeyError as problem:
        return f"not valid Avro: {problem} is missing"
    except Exception as problem:  # noqa: BLE001  # fastavro raises its own and, for odd shapes, built-in errors
        return f"not valid Avro: {str(problem)[:200] or type(problem).__name__}"
    if _lacks_fields(definition):  # fastavro takes it for a record without fields, brokers refuse it
        return "not valid Avro: a record has no list of `fields`"
    return ""


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

"""Patched payloads: a JSON merge patch (RFC 7396) over each letter's payload. The recall ledger keeps the old one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from kodoctl.protocol.json_payload import JsonPayloadError, read_json
from kodoctl.recall.message.stored_message import NotJsonError
from kodoctl.topology.payload_validator import PayloadValidator

Json = Any


class NotEditableError(ValueError):
    """A payload cannot be patched: it is no JSON object, writing it again would change more than the patch does, or the
    result does not match its schema. The text of the error is the reason.
    """


@dataclass(frozen=True)
class Edit:
    """Change of payloads by a recall. `patch`: the JSON merge patch as in its file; `schema`: JSON Schema, which
    PayloadValidator must accept and a patched payload must match; None: any payload is allowed.
    """

    patch: Mapping[str, Json]
    schema: Mapping[str, Json] | None = None

    @cached_property
    def _validator(self) -> PayloadValidator | None:
        return None if self.schema is None else PayloadValidator(self.schema)

    def apply(self, payload: bytes | None) -> bytes:
        """Returns the patched payload as compact JSON. Raises NotEditableError, also for a tombstone, for a payload that
        is JSON and no object, of which `merge` would keep nothing, and if the result does not match `schema`.
        """
        document = _exact(payload)
        if not isinstance(document, dict):
            raise NotEditableError("it is no JSON object")
        patched = merge(document, self.patch)
        if self._validator is not None and (misfit := self._validator.misfit(patched)):
            raise NotEditableError(f"patched, it no longer fits the declared schema{misfit}")
        try:
            return json.dumps(patched, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (ValueError, RecursionError) as problem:
            raise NotEditableError(str(problem)) from None


def merge(target: Json, patch: Json) -> Json:
    """Returns `target` changed by `patch` as in RFC 7396: null as a member of a patch object removes that member,
    objects merge at every depth, everything else replaces; a target that is no object counts as {} for a patch object.
    Neither argument is changed; the result may share parts with both.
    """
    if not isinstance(patch, Mapping):
        return patch
    found = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merge(found.get(name), value)
    return found


def _exact(payload: bytes | None) -> Json:
    """Parses the payload as JSON. Raises NotEditableError if writing the payload again would change values that
    the patch does not touch.
    """
    try:
        return read_json(payload or b"", real=_same_float)
    except JsonPayloadError as problem:
        raise NotEditableError(str(problem) or "it is no JSON text") from None


def _same_float(text: str) -> float:
    if len(text) > 64 or Decimal(repr(float(text))) != Decimal(text):
        raise NotEditableError("it holds a number with more digits than would be kept")
    return float(text)


def read_patch(text: str) -> Mapping[str, Json]:
    """Parses the text of a patch file. Raises NotJsonError unless it is a JSON object with members: {} changes nothing,
    and other JSON would replace whole payloads.
    """
    try:
        found = read_json(text.encode())
    except (JsonPayloadError, UnicodeEncodeError) as problem:
        raise NotJsonError(str(problem) or "it is no JSON text") from None
    if isinstance(found, list) and found and all(isinstance(step, dict) and "op" in step for step in found):
        raise NotJsonError(
            'a JSON Patch (RFC 6902) is not taken: write a merge patch (RFC 7396), such as {"currency": "EUR", "old": null}'
        )
    if not isinstance(found, dict) or not found:
        raise NotJsonError('a merge patch is a JSON object, such as {"currency": "EUR", "obsolete": null}')
    return found

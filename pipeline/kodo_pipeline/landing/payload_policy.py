"""Payload policies of topics: payloads that must not land, that land masked, or that are removed after a time. Applied
to Arrow batches.

Identity, size and digest of a message stay. Payloads of audit topics are kodoctl's own records, without any part of a
business payload, and are never changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.landing.tables import AUDIT
from kodoctl.recall.message.stored_message import digest
from kodoctl.topology.json_paths import JsonPath
from kodoctl.topology.model.topology import NEVER
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    import pyarrow as pa

    from kodoctl.topology.expand import Expansion

NOT_LANDED: Final = "not_landed"
NO_JSON: Final = "no_json"
MASKED: Final = "masked"
EXPIRED: Final = "expired"
ERASED: Final = "erased"
MASK: Final = "***"


@dataclass(frozen=True, slots=True)
class PayloadPolicy:
    """Payload policy of one ground topic. `keep`: age in ms after which a maintenance removes payloads, None: never, 0:
    payloads do not land. `mask`: JSON paths (kodoctl.topology.json_paths) whose values are replaced by "***" when a
    payload lands.
    """

    keep: int | None = None
    mask: tuple[str, ...] = ()


def payload_policies(expansion: Expansion) -> dict[str, PayloadPolicy]:
    """Payload policies by name of the ground topic, as the file declares them for the topic, else for all topics.
    Ground topics that keep their payloads for ever and mask nothing are left out.
    """
    spec = expansion.topology.spec
    found = {}
    for name, ground in spec.topics.items():
        declared = ground.payloads or spec.payloads
        if declared is not None and (declared.keep is not None or declared.mask):
            keep = declared.keep
            found[name] = PayloadPolicy(
                0 if keep == NEVER else int(keep) if isinstance(keep, Duration) else None, declared.mask
            )
    return found


def apply_policy(rows: pa.RecordBatch, policy: PayloadPolicy | None) -> pa.RecordBatch:
    """Applies a policy to rows of kodo_pipeline.landing.tables.EVENTS, all of one topic. If `keep` is 0, removes their
    payloads; a longer `keep` has no effect here. Else, if there is a mask, replaces values in the payloads that have
    some, which are then written anew as JSON, and removes payloads that cannot be handled as one JSON document, such as
    those with the same name twice in an object; tombstones and empty payloads stay. The columns `payload_state` and
    `payload_digest` tell both. Without a policy, or on an audit topic, returns the rows unchanged.
    """
    if policy is None or not rows.num_rows or rows.column("state")[0].as_py() == AUDIT:
        return rows
    if policy.keep == 0:
        return without_payloads(rows, [True] * rows.num_rows, NOT_LANDED)
    if policy.mask:
        return _mask_rows(rows, [JsonPath.parse(one) for one in policy.mask])
    return rows


def without_payloads(rows: pa.RecordBatch, chosen: Sequence[bool], word: str) -> pa.RecordBatch:
    """Returns the rows with the payloads of the `chosen` ones (True or False for each row) replaced by null. In these
    rows the column `payload_state` becomes `word`, and the digest of the removed payload is added if there is none (a
    masked payload has that of the stored one). Rows without a payload stay unchanged.
    """
    payloads = rows.column("payload").to_pylist()
    gone = [chosen[at] and one is not None for at, one in enumerate(payloads)]
    return _replace_payloads(rows, payloads, {at: (None, word) for at, one in enumerate(gone) if one})


def _mask_rows(rows: pa.RecordBatch, paths: Sequence[JsonPath]) -> pa.RecordBatch:
    payloads = rows.column("payload").to_pylist()
    made = {at: _mask(one, paths) for at, one in enumerate(payloads) if one}
    return _replace_payloads(rows, payloads, {at: one for at, one in made.items() if one is not None})


def _mask(payload: bytes, paths: Sequence[JsonPath]) -> tuple[bytes | None, str] | None:
    """Returns (payload with masked values, payload state). None if no path leads to a value: the payload lands
    unchanged. The new payload is None if the bytes are not exactly one JSON document, because their sensitive values
    cannot be located.
    """
    try:
        document = json.loads(payload.decode(), object_pairs_hook=_once)
        if not any([path.replace(document, MASK) for path in paths]):  # noqa: C419 - each of them
            return None
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(), MASKED
    except (ValueError, RecursionError):
        return None, NO_JSON


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object of the names and values that a JSON parser found. Raises ValueError if a name occurs twice, because
    readers differ in which of the values they take.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _replace_payloads(
    rows: pa.RecordBatch, payloads: list[bytes | None], changes: Mapping[int, tuple[bytes | None, str]]
) -> pa.RecordBatch:
    import pyarrow as pa

    if not changes:
        return rows
    states, digests = rows.column("payload_state").to_pylist(), rows.column("payload_digest").to_pylist()
    for at, (payload, word) in changes.items():
        digests[at] = digests[at] or digest(payloads[at])  # that of what is stored, also where it was masked before
        payloads[at], states[at] = payload, word
    new = {"payload": payloads, "payload_state": states, "payload_digest": digests}
    columns = [
        pa.array(new[field.name], field.type) if field.name in new else rows.column(field.name) for field in rows.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)

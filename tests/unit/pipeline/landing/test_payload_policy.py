"""Payloads as the topology file lets them land."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from kodo_pipeline.landing.payload_policy import (
    PayloadPolicy,
    apply_policy,
    payload_policies,
    without_payloads,
)
from kodo_pipeline.landing.tables import EVENTS

from kodoctl.recall.message.stored_message import digest
from tests.unit.topology.topology_files import expanded

FILE = """
payloads: {keep: 7d}
topics:
  orders: {}
  carts: {payloads: {keep: never}}
  people: {payloads: {mask: ["$.email"]}}
  open: {payloads: {}}
"""
NEVER, MASK = PayloadPolicy(0), PayloadPolicy(None, ("$..email",))


def rows(*payloads: bytes | None, state: str = "ready") -> pa.RecordBatch:
    found = [
        {"id": str(at), "state": state, "size": len(one or b""), "payload": one} for at, one in enumerate(payloads)
    ]
    return pa.RecordBatch.from_pylist(found, schema=EVENTS.arrow())


def shown(found: pa.RecordBatch) -> list[tuple[Any, Any]]:
    return [(row["payload"], row["payload_state"]) for row in found.to_pylist()]


def test_each_topic_has_its_own_policy_or_that_of_the_file() -> None:
    found = payload_policies(expanded(FILE))
    assert found == {
        "orders": PayloadPolicy(7 * 86_400_000), "carts": NEVER, "people": PayloadPolicy(None, ("$.email",)),
    }  # fmt: skip


def test_a_payload_that_never_lands_leaves_size_and_digest() -> None:
    made = apply_policy(rows(b"secret", None, b""), NEVER)
    assert shown(made) == [(None, "not_landed"), (None, None), (None, "not_landed")]
    assert made.column("payload_digest").to_pylist() == [digest(b"secret"), None, digest(b"")]
    assert made.column("size").to_pylist() == [6, 0, 0]
    assert made.column("id").to_pylist() == ["0", "1", "2"]


def test_values_are_masked_and_what_cannot_be_read_for_sure_does_not_land() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    given = (
        b'{"email": "a@b", "n": [1.50, {"email": 7}]}', b'{"name": "x"}', b"no json", b"\xff", b'{"email": 1, "email": 2}',
        deep, b'{"email": 1, "x": "\\ud800"}', None, b"",
    )  # fmt: skip
    made = apply_policy(rows(*given), MASK)
    assert shown(made) == [
        (b'{"email":"***","n":[1.5,{"email":"***"}]}', "masked"), (given[1], None), *[(None, "no_json")] * 5, (None, None),
        (b"", None),
    ]  # fmt: skip
    digests = made.column("payload_digest").to_pylist()
    assert [one is not None for one in digests] == [state is not None for _, state in shown(made)]
    assert digests[0] == digest(given[0])


def test_audit_records_and_topics_without_a_policy_land_as_they_are() -> None:
    for policy, state in ((NEVER, "audit"), (MASK, "audit"), (None, "ready"), (PayloadPolicy(9), "ready")):
        given = rows(b'{"email": 1}', state=state)
        assert apply_policy(given, policy) is given
    assert apply_policy(rows(), NEVER).num_rows == 0
    unmasked = rows(b"{}")
    assert apply_policy(unmasked, MASK) is unmasked


def test_the_digest_of_a_masked_payload_stays_when_it_goes() -> None:
    masked = apply_policy(rows(b'{"email": 1}', b'{"email": 2}'), MASK)
    made = without_payloads(masked, [True, False], "erased")
    assert shown(made) == [(None, "erased"), (b'{"email":"***"}', "masked")]
    assert made.column("payload_digest").to_pylist() == [digest(b'{"email": 1}'), digest(b'{"email": 2}')]
    assert json.loads(made.column("payload")[1].as_py()) == {"email": "***"}

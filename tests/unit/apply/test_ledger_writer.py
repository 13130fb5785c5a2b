"""Ownership ledgers after an adoption: only what surely is ours is recorded as created."""

from __future__ import annotations

import json
from typing import Any

from kodoctl.apply.ledger_writer import LedgerWriter
from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.values.ledger import OwnershipKind, decode
from tests.samples.inventories import HERE, planned
from tests.services.servers import Answer, Request, answer_json, serving
from tests.unit.plan.test_platform_plans import SHOP, declared, held, there


def test_an_object_without_a_marker_of_which_only_an_intent_is_known_is_adopted() -> None:
    properties: dict[str, Any] = {}

    def answer(request: Request) -> Answer:
        if request.is_write:
            properties.update(json.loads(request.body))
        return answer_json({"properties": properties})

    live = held(there(), OwnershipKind.INTENT)
    plan = planned(declared(), live)
    with serving(answer) as server:
        writer = LedgerWriter(HttpAdmin(Connection(server.url)), plan, live)
        writer.confirm(plan.changes)
    assert decode("trade", HERE, properties[f"{LEDGER_PREFIX}trade"]).owned[SHOP.address] is OwnershipKind.ADOPTED

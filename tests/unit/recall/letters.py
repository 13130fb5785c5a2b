"""Builders for tests of recalls."""

from __future__ import annotations

import json
from typing import Any

from kodoctl.recall.message.stored_message import DeadLetter, Position
from kodoctl.recall.plan.destinations import RecallSource, family_of
from kodoctl.topology.load import load_topology

DEAD = "persistent://kodo/trade/orders-billing-DLQ"
NOW = 1_800_000_000_000


def letter(payload: Any = None, *, entry: int = 0, partition: int = 0, batch: int = -1, **fields: Any) -> DeadLetter:
    """A letter whose payload is JSON unless it is bytes; `reason=`, `uid=` and the like become properties."""
    own = {name: fields.pop(name) for name in list(fields) if name in DeadLetter.__dataclass_fields__}
    names = {"reason": "kodo-reason", "level": "kodo-level", "recall": "kodo-recall", "origin": "kodo-origin-id"}
    properties = {names.get(name, name): str(value) for name, value in fields.items()} | dict(own.pop("properties", {}))
    data = payload if isinstance(payload, bytes) or payload is None else json.dumps(payload).encode()
    place = {"topic": DEAD, "publish_time": NOW - 1000, **own}
    return DeadLetter(position=Position(partition, 1, entry, batch), payload=data, properties=properties, **place)


def family(tmp_path: Any, subscription: str = "{}", ground: str = "") -> RecallSource:
    """The family of orders / billing."""
    file = tmp_path / "trade.yaml"
    body = f"version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics:\n  orders:\n{ground}    subscriptions:\n"
    file.write_text(f"{body}      billing: {subscription}\n", encoding="utf-8")
    return family_of(load_topology(str(file)), "orders", "billing")

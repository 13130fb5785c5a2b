"""Limits that a live order may change, with their values as the file writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kodo_consumer.cli.live_orders import LiveOrders
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Quota, Rate

from tests.unit.consumer.engine_bench import policy


def test_limits_have_their_value_by_the_file() -> None:
    limits = (
        Rate(None, Pace(100, 1_000, 100), shared=True),
        Quota("uid", 1_500, 3_600_000, shared=True),
        Concurrency(None, 8, shared=False),
    )
    store: Any = None
    found = LiveOrders(replace(policy(), limits=limits), store).limits
    assert [(kind, by, value) for kind, by, _, _, value in found] == [
        ("rate", "", "100/s"),
        ("quota", "uid", "1500/h"),
        ("concurrency", "", "8"),
    ]

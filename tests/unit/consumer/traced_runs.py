"""Consumers whose handler runs are traced: what tests of their spans share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Message
from kodo_consumer.runtime.settings import Settings

from tests.unit.consumer.topologies import write

TOPICS = """
  orders:
    levels: double
    backup: true
    fair_by: uid
    subscriptions:
      billing: {in_place: [], retrying: {delays: [10s], attempts: 3}, produces: [shipments]}
      patient: {in_place: [1s], retrying: {delays: [10s], attempts: 3}}
      strict: {handler_timeout: 1s, in_place: [], retrying: {delays: [10s]}}
  shipments: {}
"""
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
both = pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])


def load(folder: Path, subscription: str = "billing", **settings: Any) -> Consumer:
    """One subscription of `orders`, with these settings."""
    found = Consumer.load(write(folder, TOPICS), topic="orders", subscription=subscription, environ={})
    found.settings = Settings(**settings)
    return found


def failing(consumer: Consumer, problem: BaseException, times: int = 1) -> list[int]:
    """A handler that raises so many times."""
    runs: list[int] = []

    def handle(message: Message) -> None:
        runs.append(1)
        if len(runs) <= times:
            raise problem

    consumer.handler(handle)
    return runs

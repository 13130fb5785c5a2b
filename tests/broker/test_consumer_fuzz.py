"""Hostile messages by the hundred: random bytes in every field of the metadata, of fixed seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.broker import Broker
from tests.hostile.campaign import Campaign

pytestmark = [pytest.mark.broker, pytest.mark.timed]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hostile_messages_end_no_thread_stop_no_lane_and_none_is_lost(
    broker: Broker, namespace: str, tmp_path: Path, seed: int
) -> None:
    Campaign(broker, namespace, tmp_path).run(seed, 400, within=120)

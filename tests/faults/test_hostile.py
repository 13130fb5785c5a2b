"""Ten thousand hostile messages, of a seed that is drawn each time and printed."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import pytest

from tests.brokers.broker import Broker
from tests.hostile.campaign import Campaign

pytestmark = [pytest.mark.broker, pytest.mark.timed, pytest.mark.full, pytest.mark.timeout(1_200)]
MESSAGES = 10_000


def test_ten_thousand_hostile_messages_end_no_thread_stop_no_lane_and_none_is_lost(
    broker: Broker, namespace: str, tmp_path: Path
) -> None:
    """KODOCTL_TEST_SEED repeats one."""
    seed = int(os.environ.get("KODOCTL_TEST_SEED") or secrets.randbits(32))
    sys.stdout.write(f"\nseed {seed}\n")  # also of a run that never ends
    sys.stdout.write(Campaign(broker, namespace, tmp_path).run(seed, MESSAGES, within=900) + "\n")

"""Consumers under real faults, in brief: `make faults` does the same for hours. The ledger outside decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import trouble
from tests.faults.campaign import Campaign

pytestmark = [pytest.mark.broker, pytest.mark.timed]


@pytest.mark.timeout(900)
def test_nothing_is_lost_and_no_effect_is_doubled_whatever_breaks(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    with campaign.running():
        for name, fault, repeats in [
            *trouble.kills(2 * len(trouble.STEPS)),
            *trouble.drains(2),
            *trouble.hostile(),
            *trouble.clocks(15.0, -3_600.0),
            *trouble.wires(1.5),
            *trouble.freezes(5.0),
            *trouble.brokers(1),
        ]:
            campaign.suffer(name, fault, repeats=repeats)
        verdict = campaign.settle()
    print(*campaign.story, verdict, f"slowest recovery {campaign.tally.slowest_recovery:.1f} s", sep="\n")  # noqa: T201
    assert verdict.is_good, verdict
    assert verdict.sent > 1_000

"""Consumers under real faults, in brief: `make faults` does the same for hours. The ledger outside decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import trouble
from tests.faults.campaign import Campaign
from tests.faults.trouble import Trouble

pytestmark = [pytest.mark.broker, pytest.mark.timed]

_KILLS = [*trouble.kills(2 * len(trouble.STEPS))]
_WIRES = [*trouble.wires(1.5)]
BRIEF = [  # each step of a consumer, and one of each kind of everything else
    *_KILLS[::2], *trouble.drains(1), *trouble.hostile(), *trouble.clocks(15.0), *_WIRES[:3:2], *trouble.brokers(1),
]  # fmt: skip
ALL = [
    *_KILLS, *trouble.drains(2), *trouble.hostile(), *trouble.clocks(15.0, -3_600.0), *_WIRES, *trouble.freezes(5.0),
    *trouble.brokers(1),
]  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.full
@pytest.mark.parametrize("troubles", [BRIEF, ALL], ids=["brief", "all"])
def test_nothing_is_lost_and_no_effect_is_doubled_whatever_breaks(tmp_path: Path, troubles: list[Trouble]) -> None:
    campaign = Campaign(tmp_path)
    with campaign.running():
        for name, fault, repeats in troubles:
            campaign.suffer(name, fault, repeats=repeats)
        verdict = campaign.settle()
    print(*campaign.story, verdict, f"slowest recovery {campaign.tally.slowest_recovery:.1f} s", sep="\n")  # noqa: T201
    assert verdict.is_good, verdict
    assert verdict.sent > 1_000

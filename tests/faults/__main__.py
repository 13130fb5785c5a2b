"""`python -m tests.faults`: the long form, in parts. Each part has a broker of its own and is added to the report."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import report, trouble
from tests.faults.campaign import Campaign
from tests.faults.trouble import Trouble
from tests.native.border import follow_environment

_PART = 100  # kills
_DISK = 600 << 20


def plan(kills: int, brokers: int, *, own_disk: bool, seed: int) -> list[Trouble]:
    """The faults of one part, in a random order that the seed repeats."""
    troubles = [
        *trouble.kills(kills),
        *trouble.drains(max(1, kills // 20)),
        *trouble.hostile(),
        *trouble.clocks(60.0, -3_600.0),
        *trouble.wires(random.Random(seed).choice([2.0, 10.0, 20.0])),
        *trouble.freezes(5.0, 35.0, 90.0),
        *trouble.brokers(brokers),
        *(trouble.full_disk(20.0) if own_disk else ()),
    ]
    random.Random(seed).shuffle(troubles)
    return troubles


def play(folder: Path, troubles: list[Trouble], *, seed: int, rate: int, own_disk: bool) -> dict[str, object]:
    """One part: what it did and what came of it."""
    began = time.monotonic()
    campaign = Campaign(folder, rate=rate, seed=seed, disk=_DISK if own_disk else None)
    with campaign.running():
        for number, (name, fault, repeats) in enumerate(troubles, 1):
            print(f"{time.monotonic() - began:6.0f} s  {number}/{len(troubles)}  {name}", flush=True)
            campaign.suffer(name, fault, repeats=repeats)
        verdict = campaign.settle()
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "faults": dict(campaign.tally.faults),
        "hostile": campaign.tally.hostile,
        "slowest_recovery": round(campaign.tally.slowest_recovery, 1),
        "verdict": verdict.json(),
        "good": verdict.is_good,
        "machine": report.machine(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000, help="of the consumer, all parts together (default 1000)")
    parser.add_argument("--brokers", type=int, default=20, help="kills of the broker, all parts together (default 20)")
    parser.add_argument("--rate", type=int, default=50, help="messages a second (default 50)")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="order of the faults (default: another each time)"
    )
    parser.add_argument(
        "--report", type=Path, default=Path("benchmarks/faults"), help="folder (default benchmarks/faults)"
    )
    parser.add_argument("--disk", action="store_true", help="fill the broker's disk, too (root only; see the README)")
    asked = parser.parse_args()
    follow_environment()
    own_disk = asked.disk
    if own_disk and os.geteuid() != 0:
        parser.error("--disk needs root: the broker gets a disk of its own")
    parts = max(1, -(-asked.kills // _PART))
    good = True
    for part in range(parts):
        kills = asked.kills // parts + (part < asked.kills % parts)
        brokers = asked.brokers // parts + (part < asked.brokers % parts)
        seed = asked.seed + part
        with tempfile.TemporaryDirectory(prefix="kodoctl-faults-", ignore_cleanup_errors=True) as folder:
            troubles = plan(kills, brokers, own_disk=own_disk, seed=seed)
            found = play(Path(folder), troubles, seed=seed, rate=asked.rate, own_disk=own_disk)
        report.add(asked.report, found)
        print(f"part {part + 1} of {parts}: {'good' if found['good'] else 'BROKEN'}: {found['verdict']}", flush=True)
        good = good and bool(found["good"])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

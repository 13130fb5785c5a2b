"""`python -m tests.chaos`: faults of every kind on a cluster, for so many minutes or so many faults; added to the report."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import report, troubles
from tests.chaos.applies import Applies
from tests.chaos.campaign import LOSS, ClusterCampaign
from tests.chaos.troubles import Trouble

_DISK = 600 << 20


def faults(rng: random.Random, *, long: bool, disk: bool) -> Iterator[Trouble]:
    """Without an end: rounds of every kind of fault, each in another order."""
    while True:
        chosen = [
            *troubles.nodes(rng, long=long),
            *troubles.workers(),
            *troubles.wires(rng.choice([2.0, 5.0, 10.0])),
            *(troubles.disk(15.0) if disk else ()),
        ]
        rng.shuffle(chosen)
        yield from chosen


def play(
    folder: Path, *, minutes: float, count: int, seed: int, rate: int, long: bool, disk: bool
) -> dict[str, object]:
    """One campaign: what it did and what came of it."""
    began, rng = time.monotonic(), random.Random(seed)
    campaign = ClusterCampaign(folder, rate=rate, seed=seed, disk=_DISK if disk else None)
    calm, stuck = threading.Lock(), []
    with campaign.running():
        applies = Applies(campaign, calm)
        applies.start()
        try:
            for number, (name, fault, repeats) in enumerate(faults(rng, long=long, disk=disk), 1):
                if time.monotonic() - began > minutes * 60 or number > count:
                    break
                print(f"{time.monotonic() - began:6.0f} s  {number}  {name}", flush=True)
                with calm:
                    try:
                        campaign.suffer(name, fault, repeats=repeats)
                    except AssertionError as problem:
                        stuck.append(f"{name}: {problem}")
                        print(f"         STUCK: {problem}", flush=True)
                        campaign.cluster.heal()
                time.sleep(rng.uniform(1.0, 6.0))
        finally:
            applies.close()
        verdict = campaign.settle()
    print("\n".join(campaign.story), flush=True)
    audits = [code for code in campaign.audits if code == LOSS and not verdict.lost]
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "faults": dict(campaign.tally.faults),
        "slowest_recovery": round(campaign.tally.slowest_recovery, 1),
        "stuck": stuck,
        "applies": applies.record.json(),
        "audits": campaign.audits,
        "verdict": verdict.json(),
        "good": verdict.is_good and applies.record.is_good and not stuck and not audits,
        "machine": report.machine(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=240, help="how long faults are injected (default 240)")
    parser.add_argument("--faults", type=int, default=300, help="how many at most (default 300)")
    parser.add_argument("--rate", type=int, default=50, help="messages a second (default 50)")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="order of the faults (default: another each time)"
    )
    parser.add_argument("--short", action="store_true", help="without the faults that last minutes")
    parser.add_argument("--disk", action="store_true", help="fill a bookie's disk, too (root only)")
    parser.add_argument("--keep", type=Path, help="folder for everything that is written, instead of a temporary one")
    parser.add_argument(
        "--report", type=Path, default=Path("benchmarks/faults"), help="folder (default benchmarks/faults)"
    )
    asked = parser.parse_args()
    if asked.disk and os.geteuid() != 0:
        parser.error("--disk needs root: the bookie gets a disk of its own")
    with tempfile.TemporaryDirectory(prefix="kodoctl-chaos-", ignore_cleanup_errors=True) as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found = play(
            folder,
            minutes=asked.minutes,
            count=asked.faults,
            seed=asked.seed,
            rate=asked.rate,
            long=not asked.short,
            disk=asked.disk,
        )
    report.add(asked.report, found)
    print(f"{'good' if found['good'] else 'BROKEN'}: {found}", flush=True)
    return 0 if found["good"] else 1


if __name__ == "__main__":
    sys.exit(main())

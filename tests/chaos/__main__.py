"""`python -m tests.chaos`: faults of every kind on a cluster, for so many minutes or so many faults; added to the report."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos import report, spans, troubles
from tests.chaos.campaign import ClusterCampaign, Fault
from tests.chaos.routines import Applies, Audits, Recalls, Routine, audit, recall
from tests.chaos.troubles import Trouble
from tests.faults.ledger import Verdict
from tests.native.border import follow_environment

_DISK = 4 << 30  # more than hours of traffic fill
_LONG_FROM = 60  # minutes


def faults(rng: random.Random, *, long: bool, disk: bool, only: str = "") -> Iterator[Trouble]:
    """Without an end: rounds of every kind of fault whose name has `only`, each in another order; `long`: in the second and every
    third after it those that last minutes.
    """
    for number in itertools.count():
        chosen = [
            *troubles.nodes(rng, long=long and number % 3 == 1),
            *troubles.workers(),
            *troubles.wires(rng.choice([2.0, 5.0, 10.0])),
            *(troubles.disk(15.0) if disk else ()),
        ]
        rng.shuffle(chosen)
        yield from (trouble for trouble in chosen if only in trouble[0])


def play(
    folder: Path, *, minutes: float, count: int, seed: int, rate: int, long: bool, disk: bool, only: str = ""
) -> dict[str, object]:
    """One campaign: what it did and what came of it. What fails of the campaign itself is in `stuck`, with everything that is known
    by then: hours of faults are not lost with their last minute. `verdict`: None where there is none.
    """
    start, rng = time.monotonic(), random.Random(seed)
    campaign = ClusterCampaign(folder, rate=rate, seed=seed, disk=_DISK if disk else None)
    calm, stuck = threading.Lock(), list[str]()
    verdict, unrecalled, copies = None, list[int](), dict[str, int]()
    order = dict[str, object]()
    with campaign.running(), (ordered := campaign.ordered_traffic()).running():
        routines = [Applies(campaign, calm), Recalls(campaign, calm), Audits(campaign, calm)]
        for routine in routines:
            routine.start()
        try:
            for number, (name, fault, breaks) in enumerate(faults(rng, long=long, disk=disk, only=only), 1):
                if time.monotonic() - start > minutes * 60 or number > count:
                    break
                print(f"{time.monotonic() - start:6.0f} s  {number}  {name}", flush=True)
                with calm:
                    if (problem := _inflict(campaign, name, fault, breaks)) is not None:
                        stuck.append(problem)
                        print(f"         STUCK: {problem}", flush=True)
                        campaign.cluster.heal()
                time.sleep(rng.uniform(1.0, 6.0))
        except Exception as problem:  # noqa: BLE001 - the cluster does not run any more
            stuck.append(f"{name}: not healed: {problem!r}")
        finally:
            for routine in routines:
                routine.close()
        try:
            verdict, unrecalled = _end(campaign, routines)
            copies = campaign.copies()
            ordered.settle()
            order = {"messages": ordered.handled, "overtaken": ordered.verdict(), "problems": ordered.problems}
        except Exception as problem:  # noqa: BLE001 - the report of hours is written, whatever it is
            stuck.append(f"the end: {problem!r}")
    summary = spans.summary(campaign.spans, campaign.runs(), campaign.ledger.planned, slots=campaign.slots)
    well = verdict is not None and verdict.is_good
    kept = bool(order) and not (order["overtaken"] or order["problems"])
    good = well and kept and not (stuck or unrecalled) and all(routine.record.is_good for routine in routines)
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - start),
        "faults": summary,
        "stuck": stuck,
        "commands": {routine.name: routine.record.json() for routine in routines},
        "unrecalled": unrecalled,
        "copies": copies,
        "order": order,
        "verdict": None if verdict is None else verdict.json(),
        "good": good,
        "machine": report.machine(),
    }


def _inflict(campaign: ClusterCampaign, name: str, fault: Fault, breaks: int) -> str | None:
    """One fault; what went wrong with it."""
    try:
        campaign.inflict(name, fault, breaks=breaks)
    except Exception as problem:  # noqa: BLE001 - the other faults of the campaign follow, whatever it is
        return f"{name}: {problem if isinstance(problem, AssertionError) else repr(problem)}"
    print(f"         {campaign.story[-1]}", flush=True)
    return None


def _end(campaign: ClusterCampaign, routines: Sequence[Routine]) -> tuple[Verdict, list[int]]:
    """Everything is handled, every dead letter recalled and handled, the audit asked; the ledger's verdict, and letters that
    have no effect after all.
    """
    _, recalls, audits = routines
    campaign.settle(180.0)
    recall(recalls, "recall-last.json")
    campaign.tally.bound = sum(
        spans.bound(
            span, sorted(campaign.runs(), key=lambda run: run.at), campaign.ledger.planned, slots=campaign.slots
        )
        for span in campaign.spans
    )
    verdict = campaign.settle(180.0)
    audit(audits)
    return verdict, campaign.unhandled_letters()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=240, help="how long faults are injected (default 240)")
    parser.add_argument("--faults", type=int, default=300, help="how many at most (default 300)")
    parser.add_argument("--rate", type=int, default=50, help="messages a second (default 50)")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="order of the faults (default: another each time)"
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="without the faults that last minutes, as a campaign of less than an hour is",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose name has this text, and no report")
    parser.add_argument("--disk", action="store_true", help="fill a bookie's disk, too (root only)")
    parser.add_argument("--keep", type=Path, help="folder for everything that is written, instead of a temporary one")
    parser.add_argument(
        "--report", type=Path, default=Path("benchmarks/faults"), help="folder (default benchmarks/faults)"
    )
    asked = parser.parse_args()
    follow_environment()
    if asked.disk and os.geteuid() != 0:
        parser.error("--disk needs root: the bookie gets a disk of its own")
    long = not asked.short and asked.minutes >= _LONG_FROM
    known = itertools.islice(faults(random.Random(0), long=long, disk=asked.disk), 99)
    if not any(asked.only in name for name, *_ in known):
        parser.error(f"no fault of such a campaign has {asked.only!r} in its name")
    with tempfile.TemporaryDirectory(prefix="kodoctl-chaos-", ignore_cleanup_errors=True) as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        logging.basicConfig(
            filename=folder / "producer.log",
            level=logging.INFO,
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )
        found = play(
            folder,
            minutes=asked.minutes,
            count=asked.faults,
            seed=asked.seed,
            rate=asked.rate,
            long=long,
            disk=asked.disk,
            only=asked.only,
        )
    print(f"{'good' if found['good'] else 'BROKEN'}: {found}", flush=True)
    if not asked.only:
        report.add(asked.report, found)
    return 0 if found["good"] else 1


if __name__ == "__main__":
    sys.exit(main())

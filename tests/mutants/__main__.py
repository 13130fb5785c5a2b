"""`python -m tests.mutants`: does a test fail for each kept mutant? `… choose`: more mutants into the set."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from kodoctl.dev.instance import EngineName
from kodoctl.dev.progress import quiet
from kodoctl.dev.resolve import UpFlags
from tests.brokers import shared_broker
from tests.brokers.broker import CACHE, VERSION
from tests.mutants import mutant_choice, mutant_set
from tests.mutants.mutant_choice import Candidate, TestsByLine
from tests.mutants.mutant_set import Mutant, NotApplicableError
from tests.mutants.mutated_copy import FULL, GATE, Copies, recorded_first
from tests.mutants.protection_report import BAR, REPORT, Outcome, Result, render, share, table
from tests.services.ports import unusual_ports

_MEMORY = 6 << 30
"""Bytes of data that a process may have: a mutant may collect without an end."""


@contextmanager
def one_broker() -> Iterator[None]:
    """A broker for the tests of all mutants, unless one is given. None of them looks for brokers that others left: it could end
    what still runs.
    """
    if "KODOCTL_TEST_ADMIN_URL" in os.environ:
        yield
        return
    run = shared_broker.open_run(CACHE / "test-runs", os.environ)
    try:
        flags = UpFlags(f"run-{run.name}", VERSION, engine=EngineName.JAVA, preferred=unusual_ports())
        addresses = shared_broker.join(run, CACHE, os.environ, flags, quiet)
        os.environ["KODOCTL_TEST_ADMIN_URL"], os.environ["KODOCTL_TEST_BROKER_URL"] = (
            addresses.admin_urls[0],
            addresses.broker_urls[0],
        )
        yield
    finally:
        shared_broker.close_run(run, os.environ)


def judge(mutant: Mutant, copies: Copies, *, wide: bool) -> Result:
    """Whether the gate catches a mutant, or else tests marked `full` that did once."""
    start = time.monotonic()
    outcome, detail = Outcome.NOBODY, ""
    try:
        with copies.trial(mutant) as trial:
            for tests in recorded_first(mutant, wide=wide):
                if failing := trial.failing(tests, GATE):
                    outcome, detail = Outcome.GATE, failing[0]
                    break
            else:
                if failing := trial.failing(mutant.caught_by, FULL):
                    outcome, detail = Outcome.FULL, failing[0]
    except NotApplicableError as problem:
        outcome, detail = Outcome.BROKEN, str(problem)
    return Result(mutant, outcome, detail, time.monotonic() - start)


def run(mutants: list[Mutant], *, wide: bool, processes: int, report: Path | None) -> int:
    """Judges the mutants; 1 where the gate catches too few of them, one does not apply, or its tests fail without it."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, one_broker():
        copies = Copies(Path(folder))
        tests = sorted({test for mutant in mutants for test in mutant.caught_by})
        with copies.trial(None) as trial:
            if failing := trial.failing(tests, GATE, most=len(tests)):
                print("These tests fail without any mutant:", *failing, sep="\n  ")
                return 1
        results = list[Result]()
        with ThreadPoolExecutor(processes) as pool:
            for result in pool.map(lambda one: judge(one, copies, wide=wide), mutants):
                results.append(result)
                line = f"{len(results)}/{len(mutants)}  {result.mutant.id}: {result.outcome}"
                print(f"{line}, {result.seconds:.0f} s  {result.detail}", flush=True)
    print(table(results))
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(render(results, time.monotonic() - start), encoding="utf-8")
    return int(share(results) < BAR or any(one.outcome is Outcome.BROKEN for one in results))


def choose(flags: argparse.Namespace) -> int:
    """Fills the set up; written after each mutant, so that an end before the last one loses nothing."""
    present = mutant_set.load()
    missed = mutant_set.load(flags.misses) if flags.misses else []

    def tell(candidate: Candidate, mutant: Mutant | None) -> None:
        one = candidate.mutant
        print(f"{one.id}: {', '.join(mutant.caught_by) if mutant else 'not caught'}", flush=True)
        if mutant is not None:
            present.append(mutant)
            mutant_set.save(present)
        elif flags.misses is not None:
            missed.append(one)
            mutant_set.save(missed, flags.misses)

    with tempfile.TemporaryDirectory() as folder, one_broker():
        mutant_choice.choose(
            tuple(present),
            tuple(missed),
            TestsByLine(flags.coverage),
            Copies(Path(folder)),
            only=flags.package,
            seed=flags.seed,
            count=flags.count,
            processes=flags.processes,
            tell=tell,
        )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="ID", action="append", help="this mutant; can be repeated")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument(
        "--wide", action="store_true", help="if no unit test catches one: scenarios, broker, Spark, too"
    )
    parser.add_argument("--processes", type=int, default=2, help="mutants at a time (default 2)")
    parser.add_argument("--report", type=Path, default=REPORT, help=f"file, unless --only is given (default {REPORT})")
    commands = parser.add_subparsers(dest="command")
    more = commands.add_parser("choose", help="choose mutants that tests catch, until there are --count of them")
    more.add_argument("--seed", type=int, default=1, help="of the order in which places are tried (default 1)")
    more.add_argument("--count", type=int, default=150, help="mutants of all packages together (default 150)")
    more.add_argument("--processes", type=int, default=2, help="mutants at a time (default 2)")
    more.add_argument("--package", action="append", default=[], help="fill this folder only; can be repeated")
    more.add_argument("--misses", type=Path, help="write mutants that no test catches to this file")
    more.add_argument(
        "coverage", type=Path, nargs="+", help="files of coverage, written by pytest --cov --cov-context=test"
    )
    flags = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    if flags.command == "choose":
        return choose(flags)
    mutants = mutant_set.load()
    if flags.only:
        mutants = [one for one in mutants if one.id in flags.only]
        if unknown := set(flags.only) - {one.id for one in mutants}:
            parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    if flags.list:
        for one in mutants:
            print(one.id, one.file, one.operator, *one.caught_by, sep="\t")
        return 0
    report = None if flags.only else flags.report
    return run(mutants, wide=flags.wide, processes=flags.processes, report=report)


if __name__ == "__main__":
    sys.exit(main())

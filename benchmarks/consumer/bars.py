"""Every bar of the consumer in one command: measures them interleaved, keeps the raw results, prints the table.

    python benchmarks/consumer/bars.py [--rounds 5] [--beside CHECKOUT] [--go BINARY] [--variant NAME=VARIABLE=VALUE ...]
        [--messages 200000] [--moves 100000] [--flood 1000000] [--lookahead 50000] [--only PROGRAM ...]
    python benchmarks/consumer/bars.py --table      # only prints it, from what was measured before
    python benchmarks/consumer/bars.py --write      # puts the tables into README.md here and of the project

Needs a broker (kodoctl dev up --use) and a machine that does nothing else for an hour or two. In each round every program runs once, in random
order, each with its arms in random order or in turn; `source`, which has rounds of its own, runs once. With `--beside` the
same arms of that checkout run among them, and are the column "before": `git worktree add ../before COMMIT`. Every run of an arm is
a line of bars.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bar_table import TABLES, filled

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS, PAGES = HERE / "bars.jsonl", (HERE / "README.md", ROOT / "README.md")
NO_OPS = ("sync", "async", "sync-fair", "failing")
MOVES = ("reroute", "route", "slots")
FALL_BACK = ("sync", "async", "reroute")  # whose variants are measured as well
Records = list[dict[str, Any]]


def _variants(asked: argparse.Namespace) -> list[str]:
    names = ["python", *(text.partition("=")[0] for text in asked.variant)]
    return [f"{arm}-{name}" for arm in FALL_BACK for name in names]


def _before(asked: argparse.Namespace, *arms: str) -> list[str]:
    return [f"{arm}-before" for arm in arms] if asked.beside else []


def _program(name: str, *arguments: str) -> Records:
    """One run of a program of this folder: its records."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.jsonl"
        subprocess.run([sys.executable, HERE / f"{name}.py", "--out", out, *arguments], check=True)
        return _records(out)


def _editions(asked: argparse.Namespace) -> list[str]:
    """Options of programs whose arms have variants."""
    beside = ["--beside", str(asked.beside)] if asked.beside else []
    return [*beside, *(one for variant in asked.variant for one in ("--variant", variant))]


def throughput(asked: argparse.Namespace) -> Records:
    """No-ops with many messages, so that the start weighs little; then moves and slots."""
    go = ["--go", asked.go] if asked.go else []
    variants = _variants(asked)
    quick = ["raw", "raw-failing", *NO_OPS, "audit", *["go"] * bool(go), *_before(asked, *NO_OPS)]
    quick += [arm for arm in variants if arm.startswith(NO_OPS)]
    slow = ["raw-reroute", "raw-route", "slots-sketch", *MOVES, *_before(asked, *MOVES)]
    slow += [arm for arm in variants if arm.startswith(MOVES)]
    run = partial(_program, "throughput", "--repeats", "1", *go, *_editions(asked))
    return [*run("--messages", str(asked.messages), *quick), *run("--messages", str(asked.moves), *slow)]


def readthrough(asked: argparse.Namespace) -> Records:
    arms = ["ours", "raw-reroute", *_before(asked, "ours")]
    sizes = ["--messages", str(asked.flood), "--lookahead", str(asked.lookahead), "--seconds", "600"]
    return _program("readthrough", "--repeats", "1", *sizes, *_editions(asked), *random.sample(arms, len(arms)))


def fairness(asked: argparse.Namespace) -> Records:
    return _program("fairness", *_editions(asked), "--loads", "f2", "--arms", "ours", *_before(asked, "ours"))


def footprint(asked: argparse.Namespace) -> Records:
    return _program("footprint", *_editions(asked), "idle", *_before(asked, "idle"))


def workers(asked: argparse.Namespace) -> Records:
    return _program("workers", "--repeats", "1", "--messages", str(asked.messages))


def source(asked: argparse.Namespace) -> Records:
    """Returns the records of `benchmarks/pipeline/source.py`, which runs its own rounds and appends to a file in its
    own folder.
    """
    found: Records = []
    for checkout, suffix in ((ROOT, ""), (asked.beside, "-before")):
        if checkout is not None:
            folder = checkout / "benchmarks/pipeline"
            file = folder / "source.jsonl"
            before = len(file.read_text("utf-8").splitlines()) if file.exists() else 0
            environ = os.environ | {"PYTHONPATH": f"{checkout / 'consumer'}{os.pathsep}{checkout}"} if suffix else None
            arms = [] if suffix else ["--arms", "reader", "native-1", "native-2", "native-8"]
            command = [sys.executable, folder / "source.py", "--rounds", str(asked.rounds), *arms]
            subprocess.run(command, env=environ, check=True)
            lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()[before:]]
            found += [line | {"arm": line["arm"] + suffix} for line in lines if "rate" in line]
    return found


PROGRAMS: dict[str, Callable[[argparse.Namespace], Records]] = {
    one.__name__: one for one in (throughput, readthrough, fairness, footprint, workers, source)
}


def _records(file: Path) -> Records:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def read(name: str) -> Records:
    """Records of a file of this folder."""
    return _records(HERE / name)


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def measure(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Records as they come."""
    run = f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}"
    commits = {False: _commit(ROOT), True: _commit(asked.beside) if asked.beside else ""}
    for number in range(asked.rounds):
        for name in random.sample(asked.only, len(asked.only)):
            if name == "source" and number:
                continue
            print(f"== round {number + 1} of {asked.rounds}: {name}", flush=True)
            try:
                records = PROGRAMS[name](asked)
            except subprocess.CalledProcessError as problem:
                asked.failed.append(name)
                print(f"{name}: {problem}", file=sys.stderr)
                continue
            for record in records:
                own = {"round": record["round"] if name == "source" else number, "cores": os.cpu_count()}
                commit = commits[record["arm"].endswith("-before")]
                yield {"run": run, "program": name, "commit": commit} | record | own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=200_000, help="of no-op arms")
    parser.add_argument("--moves", type=int, default=100_000, help="messages of arms that move each, and of slots")
    parser.add_argument("--flood", type=int, default=1_000_000)
    parser.add_argument("--lookahead", type=int, default=50_000)
    parser.add_argument(
        "--beside", type=lambda text: Path(text).resolve(), metavar="CHECKOUT", help="the former edition"
    )
    parser.add_argument("--go", help="binary of golang/")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=VARIABLE=VALUE", help="see variants.py")
    parser.add_argument("--only", nargs="+", choices=[*PROGRAMS], default=[*PROGRAMS], help="programs (default: all)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="raw results, which are added to")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the tables")
    parser.add_argument("--write", action="store_true", help="measure nothing, put the tables into both README.md")
    asked = parser.parse_args()
    asked.failed = []
    if not (asked.table or asked.write):
        for record in measure(asked):
            with asked.out.open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
    if asked.write:
        for page in PAGES:
            page.write_text(filled(page.read_text("utf-8"), read), encoding="utf-8")
    else:
        records = _records(asked.out)
        own = [table for table in TABLES.values() if table.file == RESULTS.name]
        print("\n".join(line for table in own for line in (*table.lines(records), "")))
    if asked.failed:
        sys.exit(f"failed: {', '.join(asked.failed)}")


if __name__ == "__main__":
    main()

"""Start time of `kodoctl` and `kodo-consumer`, compared with `python -c 'import typer, rich'`, which both commands import.

usage: python benchmarks/startup/measure.py [--rounds 20] [--before FOLDER] [--out FOLDER]

In each round every command runs once, in turn, so that other load on the machine hits all alike; ratios are taken round by
round. `--before`: a checkout of an earlier commit, measured in the same rounds. Writes results.jsonl (one line a run) and
results.md (the tables of the README) into FOLDER, by default next to this file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
YARDSTICK = "import typer, rich"
TYPER_AND_PYDANTIC = "import typer, rich; a pydantic adapter"
BAR = 2.5  # times the yardstick
KODOCTL = "import sys; sys.argv[0] = 'kodoctl'; from kodoctl.cli.main import main; main()"
CONSUMER = "import sys; sys.argv[0] = 'kodo-consumer'; from kodo_consumer.cli.main import main; main()"
SMALL, USUAL = "topologies/shapes/simple.yaml", "topologies/trade.yaml"
BASH, ZSH = {"_KODOCTL_COMPLETE": "complete_bash"}, {"_KODOCTL_COMPLETE": "complete_zsh"}
FLOORS = {
    "python -c pass": "pass",
    YARDSTICK: YARDSTICK,
    TYPER_AND_PYDANTIC: "import typer, rich, pydantic; pydantic.TypeAdapter(str)",
}
COMMANDS: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "kodoctl --help": (KODOCTL, ["--help"], {}),
    "kodoctl pipeline --help": (KODOCTL, ["pipeline", "--help"], {}),
    "kodoctl lint --help": (KODOCTL, ["lint", "--help"], {}),
    "bash completes `kodoctl li`": (KODOCTL, [], {**BASH, "COMP_WORDS": "kodoctl li", "COMP_CWORD": "1"}),
    "bash completes `kodoctl plan --`": (KODOCTL, [], {**BASH, "COMP_WORDS": "kodoctl plan --", "COMP_CWORD": "2"}),
    "zsh completes `kodoctl `": (KODOCTL, [], {**ZSH, "_TYPER_COMPLETE_ARGS": "kodoctl "}),
    "kodoctl lint, without a payload schema": (KODOCTL, ["lint", SMALL], {}),
    "kodoctl lint, with a payload schema": (KODOCTL, ["lint", USUAL], {}),
    "kodo-consumer --help": (CONSUMER, ["--help"], {}),
}


@dataclass(frozen=True)
class Run:
    """One process: seconds of wall and CPU, its exit code. `edition`: now, before, or "" of what is none of ours."""

    what: str
    edition: str
    round: int
    wall_s: float
    cpu_s: float
    exit: int


def measure(program: str, arguments: list[str], environment: dict[str, str], tree: Path) -> tuple[float, float, int]:
    """Wall and CPU seconds and the exit code of one process in a source tree."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        cwd=tree,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, process.returncode


def todo(before: Path | None) -> Iterator[tuple[str, str, str, list[str], dict[str, str], Path]]:
    """Yields the commands of a round, in order: (name, edition, program, arguments, environment, tree)."""
    yield from ((what, "", program, [], {}, ROOT) for what, program in FLOORS.items())
    trees = [("now", ROOT), *([("before", before)] if before else [])]
    for what, (program, arguments, extra) in COMMANDS.items():
        yield from ((what, edition, program, arguments, extra, tree) for edition, tree in trees)


def environment_of(tree: Path, compiled: str, extra: dict[str, str]) -> dict[str, str]:
    """Returns the environment of a process. Its modules are compiled once, into `compiled`, as those of an installation
    are.
    """
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "PYTHONPATH": f"{tree}:{tree / 'consumer'}:{tree / 'pipeline'}",
        "PYTHONPYCACHEPREFIX": compiled,
        **extra,
    }


def table(runs: list[Run]) -> Iterator[str]:
    """Medians with the smallest and largest, one row a command and edition; ratios round by round."""
    yardstick = {run.round: run for run in runs if run.what == YARDSTICK}
    yield f"| command | | CPU ms | wall ms | CPU / `{YARDSTICK}` | wall / `{YARDSTICK}` | |"
    yield "|---|---|---|---|---|---|---|"
    for what, edition in dict.fromkeys((run.what, run.edition) for run in runs):
        mine = [run for run in runs if (run.what, run.edition) == (what, edition)]
        times = [_cell([getattr(run, key) * 1000 for run in mine], 0) for key in ("cpu_s", "wall_s")]
        ratios = [
            [getattr(run, key) / getattr(yardstick[run.round], key) for run in mine] for key in ("cpu_s", "wall_s")
        ]
        verdict = "" if edition != "now" else "met" if statistics.median(ratios[0]) <= BAR else "**missed**"
        yield f"| {what} | {edition} | {' | '.join([*times, *(_cell(ratio, 2) for ratio in ratios)])} | {verdict} |"


def _cell(values: Iterable[float], digits: int) -> str:
    found = list(values)
    return f"**{statistics.median(found):.{digits}f}** ({min(found):.{digits}f}–{max(found):.{digits}f})"


def main() -> None:
    """Runs every command in turn, as many rounds as asked for; the first round compiles, and is thrown away."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    about = {
        "system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count(),
        "python": platform.python_version(), "load_before": os.getloadavg()[0],
        **{name: version(name) for name in ("typer", "rich", "pydantic")},
    }  # fmt: skip
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as compiled:
        for number in range(-1, arguments.rounds):
            for what, edition, program, words, extra, tree in todo(arguments.before):
                result = measure(program, words, environment_of(tree, compiled, extra), tree)
                if number >= 0:
                    runs.append(Run(what, edition, number, round(result[0], 4), round(result[1], 4), result[2]))
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    if failed := {run.what for run in runs if run.exit}:
        sys.exit(f"failed: {', '.join(sorted(failed))}")
    lines = [json.dumps({"machine": about}), *(json.dumps(asdict(run)) for run in runs)]
    (arguments.out / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (arguments.out / "results.md").write_text("\n".join(table(runs)) + "\n", encoding="utf-8")
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()

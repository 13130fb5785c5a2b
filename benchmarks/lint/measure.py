"""Cost of `kodoctl --help` and `kodoctl lint` as whole processes, compared with tools that a user would pick instead.

usage: python benchmarks/lint/measure.py [--rounds 5] [--out FOLDER]

Writes results.jsonl (one line a run) and results.md (the table of the README) into FOLDER, by default next to this file.
Peers are installed into a throw-away virtual environment; one that cannot be installed is DNF.
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
from pathlib import Path

HERE = Path(__file__).parent
SIZES = (100, 5000)
PEERS = ("check-jsonschema", "yamllint")
TIMEOUT = 300  # seconds; beyond it a run is DNF

READ = "import sys, yaml; yaml.load(open(sys.argv[1], encoding='utf-8'), Loader=yaml.{loader})"


@dataclass(frozen=True)
class Run:
    """One process: seconds of wall and CPU, peak resident memory in MiB; `exit` None = did not finish or not there."""

    what: str
    topics: int
    round: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    exit: int | None


def topology(topics: int) -> str:
    """A file as people write it: every fifth ground topic with two levels and a backup, all with limits and roles."""
    head = (
        "version: 1\nname: bench\ntenant: kodo\nnamespace: bench\n"
        "namespace_policies:\n  retention: {time: 3d, size: 20GiB}\n  backlog_quota: {size: 5GiB, when_full: hold_producers}\n"
        "defaults:\n  partitions: 4\n  policies:\n    retention: {time: 3d, size: 10GiB}\ntopics:\n"
    )
    return head + "".join(_ground(number) for number in range(topics))


def _ground(number: int) -> str:
    levels = "    levels: double\n    backup: true\n" if number % 5 == 0 else ""
    return (
        f"  topic-{number:05d}:\n    description: messages of kind {number}\n{levels}"
        "    message_properties: {uid: required, size: optional}\n    fair_by: uid\n"
        "    policies: {retention: {time: 7d, size: 20GiB}}\n    producers: [shop]\n"
        "    subscriptions:\n      worker:\n        workers: [worker]\n        recall: [sre]\n        expected_workers: 2\n"
        "        retrying: {delays: [10s, 1m, 5m], attempts: 12}\n"
        "        limits:\n          - {kind: rate, by: uid, limit: 100/s, burst: 200}\n          - {kind: quota, by: uid, limit: 5000/h}\n"
    )


def measure(command: list[str]) -> tuple[float, float, float, int | None]:
    """Wall and CPU seconds, peak MiB and exit code of one process (its children are not counted: none has any)."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() - began > TIMEOUT:
            process.kill()
            os.wait4(process.pid, 0)
            return TIMEOUT, 0.0, 0.0, None
        time.sleep(0.001)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode


def commands(folder: Path) -> Iterator[tuple[str, int, list[str] | None]]:
    """(name, ground topics, command); None for a peer that could not be installed."""
    kodoctl = str(Path(sys.executable).with_name("kodoctl"))
    peers = install(folder)
    schema = str(HERE.parents[1] / "schemas/topology.v1.json")
    yield "kodoctl --help", 0, [kodoctl, "--help"]
    yield "python -c pass (floor)", 0, [sys.executable, "-c", "pass"]
    for topics in SIZES:
        file = folder / f"{topics}.yaml"
        file.write_text(topology(topics), encoding="utf-8")
        yield "kodoctl lint", topics, [kodoctl, "lint", str(file)]
        yield (
            "yaml.CSafeLoader (floor: read only)",
            topics,
            [sys.executable, "-c", READ.format(loader="CSafeLoader"), str(file)],
        )
        yield "yaml.safe_load (read only)", topics, [sys.executable, "-c", READ.format(loader="SafeLoader"), str(file)]
        check = peers.get("check-jsonschema")
        yield "check-jsonschema, our schema", topics, check and [check, "--schemafile", schema, str(file)]
        lint = peers.get("yamllint")
        yield (
            "yamllint (style only)",
            topics,
            lint and [lint, "-d", "{extends: relaxed, rules: {line-length: disable}}", str(file)],
        )


def install(folder: Path) -> dict[str, str]:
    """The peers' programs, in a virtual environment of their own."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "peers")], check=True)
    pip = [str(folder / "peers/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    found = {}
    for peer in PEERS:
        if subprocess.run([*pip, peer], check=False, capture_output=True).returncode == 0:
            found[peer] = str(folder / "peers/bin" / peer)
    return found


def versions(folder: Path) -> dict[str, str]:
    """Versions of the peers that are there."""
    listed = subprocess.run(
        [str(folder / "peers/bin/python"), "-m", "pip", "list", "--format", "json"], capture_output=True, check=True
    )
    return {one["name"]: one["version"] for one in json.loads(listed.stdout) if one["name"] in PEERS}


def table(runs: list[Run]) -> Iterator[str]:
    """Medians with the smallest and largest, one row a command and size."""
    yield "| command | ground topics | wall s | CPU s | peak MiB |"
    yield "|---|---|---|---|---|"
    for what, topics in dict.fromkeys((run.what, run.topics) for run in runs):
        mine = [run for run in runs if (run.what, run.topics) == (what, topics)]
        if any(run.exit is None for run in mine):
            yield f"| {what} | {topics or ''} | DNF | | |"
            continue
        cells = [
            _cell((getattr(run, key) for run in mine), digits)
            for key, digits in (("wall_s", 2), ("cpu_s", 2), ("peak_mib", 0))
        ]
        yield f"| {what} | {topics or ''} | {' | '.join(cells)} |"


def _cell(values: Iterable[float], digits: int) -> str:
    found = list(values)
    return f"**{statistics.median(found):.{digits}f}** ({min(found):.{digits}f}–{max(found):.{digits}f})"


def main() -> None:
    """Runs every command in turn, as many rounds as asked for, so that load of the machine hits all alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        todo = list(commands(folder))
        about = {
            "system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count(),
            "python": platform.python_version(), "load_before": os.getloadavg()[0], **versions(folder),
        }  # fmt: skip
        for number in range(-1, arguments.rounds):  # the first round warms caches and is thrown away
            for what, topics, command in todo:
                result = measure(command) if command else (0.0, 0.0, 0.0, None)
                print(f"round {number + 1}: {what} {topics or ''} {result[0]:.2f} s", file=sys.stderr)
                if number >= 0:
                    runs.append(Run(what, topics, number, *(round(value, 3) for value in result[:3]), result[3]))
    lines = [json.dumps({"machine": about}), *(json.dumps(asdict(run)) for run in runs)]
    (arguments.out / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (arguments.out / "results.md").write_text("\n".join(table(runs)) + "\n", encoding="utf-8")
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()

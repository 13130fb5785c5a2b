"""Whether the memory of `kodoctl pipeline ingest` depends on how much it lands: peaks of whole processes, Spark's start included.

    python benchmarks/pipeline/memory.py [--messages 200000 1000000] [--partitions 4] [--size 1024] [--heap 1g]

Needs a broker (kodoctl dev up --use). Each number of messages is landed by a process of its own into a new landing, in batches
of 64 MiB. Java takes as much as it may before it clears up: with `--heap` it may take less than usually, so that what is
kept would show. MiB by program (what Python's processes share is counted for each, so that their sum grows with their number) and of
the largest process, seconds of the processor, messages a second (start included).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import Memory, cluster, fill, machine, namespace, remove, say, timed, write
from ingest import TOPOLOGY

from kodoctl.cli.application import app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--heap", default="1g")
    asked = parser.parse_args()
    where, about = cluster(), machine()
    runs = [measure(where, asked, messages) for messages in asked.messages]
    write("memory.jsonl", {**about, **vars(asked)}, runs)
    print("\n".join(table(runs)))


def measure(where: Any, asked: argparse.Namespace, messages: int) -> dict[str, Any]:
    space = namespace(where)
    place = ["--admin-url", where.admin_url, "--broker-url", where.broker_url or ""]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "bench.yaml"
        file.write_text(TOPOLOGY.format(tenant=space.partition("/")[0], partitions=asked.partitions), encoding="utf-8")
        try:
            app(["apply", str(file), "--auto-approve", *place], standalone_mode=False)
            fill(where, space, "flow", messages, asked.partitions, asked.size)
            command = [
                sys.executable,
                "-m",
                "kodoctl",
                "pipeline",
                "ingest",
                str(file),
                "--landing",
                str(folder / "landed"),
            ]
            command += ["--max-bytes", str(64 * 2**20), *place]
            heap = {**os.environ, "_JAVA_OPTIONS": f"-Xmx{asked.heap}"}  # goes before what Spark says
            with Memory(own=False) as memory:  # which filled the topics, and is large for that
                took, done = timed(
                    lambda: subprocess.run(command, env=heap, capture_output=True, text=True, check=False)
                )
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"{messages:,}" in done.stdout, done.stdout
        finally:
            remove(where, space)
    peaks = {program: round(peak) for program, peak in memory.peaks.items()}
    largest = {program: round(size) for program, size in memory.largest.items()}
    memory_text = f"MiB {peaks}, of one process {largest}, processes {dict(memory.most)}"
    say(f"{messages:,} messages: {took:.0f} s, {memory_text}, s of the processor {memory.spent}")
    found = {"messages": messages, "seconds": round(took, 2), "peak_mib": peaks, "largest_mib": largest}
    return {**found, "processes": dict(memory.most), "cpu_s": memory.spent}


def table(runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| messages | Java MiB | Python MiB (largest process) | seconds | s of the processor |",
        "|---|---|---|---|---|",
    ]
    return lines + [
        f"| {run['messages']:,} | {run['peak_mib']['java']:,} | {run['peak_mib']['python']:,} "
        f"({run['largest_mib']['python']:,}) | {run['seconds']} "
        f"| {sum(run['cpu_s'].values()):.0f} |"
        for run in runs
    ]


if __name__ == "__main__":
    main()

"""Cost of `pipeline run`: once for some thousand messages, and repeatedly in one standing session for a few new ones.

    python benchmarks/pipeline/run.py [--messages 5000] [--rounds 20] [--new 4] [--no-report]
    python benchmarks/pipeline/run.py --rounds 300     (make soak-pipeline)
    python benchmarks/pipeline/run.py --demo

Needs a broker (kodoctl dev up --use); a worker beside it does the messages, with `audit: true`. Arms: `first`, the command as it is
typed, into a landing that has seen the empty topics; `standing`, `run --every 1s` as it is typed, with `--new` messages sent before each
run, ended by SIGTERM behind the last; `demo`, `make demo-pipeline`, which brings a broker of its own. Recorded of each run: seconds, seconds of the processor (all its processes), seconds by stage, load;
of a standing one the resident MiB, threads and open files of its driver and of Java, and every tenth round the MiB of Java's heap behind
a full collection: the least of ten, for the next run has begun by then.

Exit 1 where the resident memory is over `--bound` MiB in any round, the heap grows by more than `--growth` MiB a round, or threads or
open files by more than one in ten rounds, behind the first fifth of the rounds; or where SIGTERM does not end it with exit code 0.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import HERE, _tree, cluster, machine, namespace, remove, say, write

BIN = Path(sys.executable).parent
TOPOLOGY = """
version: 1
name: bench
tenant: {tenant}
namespace: ns
topics:
  flow:
    partitions: 2
    levels: double
    message_properties: {{uid: required}}
    fair_by: uid
    subscriptions: {{s: {{audit: true, retrying: {{delays: [1s], attempts: 2}}}}}}
"""
HANDLER = "def handle(message):\n    pass\n"
HEAP = re.compile(r"used (\d+)K")
SAMPLES, SAMPLE_EVERY = 10, 0.7  # of the heap; seconds
COUNTS = {"driver_threads": 0.1, "java_threads": 0.1, "driver_files": 0.1, "java_files": 0.1}
Run = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--new", type=int, default=4)
    parser.add_argument("--no-report", action="store_true")
    parser.add_argument("--bound", type=float, default=3_000.0)
    parser.add_argument("--growth", type=float, default=0.5)
    parser.add_argument("--conf", action="append", default=[], help="of the command")
    parser.add_argument("--demo", action="store_true", help="measure the demo, and nothing else")
    asked = parser.parse_args()
    about = machine()
    if asked.demo:
        write("run.jsonl", {**about, "demo": True}, [demo()])
        return
    where = cluster()
    space = namespace(where)
    runs: list[Run] = []
    ended = 0
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        Path("bench.yaml").write_text(TOPOLOGY.format(tenant=space.partition("/")[0]), encoding="utf-8")
        Path("noop.py").write_text(HANDLER, encoding="utf-8")
        place = ["--admin-url", where.admin_url, "--broker-url", where.broker_url or ""]
        command = [str(BIN / "kodoctl"), "pipeline", "run", "bench.yaml", *place, "--format", "json"]
        command += [*(["--no-report"] if asked.no_report else []), *(f"--conf={one}" for one in asked.conf)]
        try:
            subprocess.run(
                [BIN / "kodoctl", "apply", "bench.yaml", "--auto-approve", *place], check=True, stdout=sys.stderr
            )
            run_once(command)
            with worker(place):
                send(asked.messages)
                settle()
                runs.append({"arm": "first", **run_once(command)})
                say(json.dumps(runs[-1]))
                ended = stand([*command, "--every", "1s"], asked, runs)
        finally:
            remove(where, space)
            write("run.jsonl", {**about, **vars(asked), "sigterm": ended}, runs)
    sys.exit(judge(runs, asked) or ended)


def demo() -> Run:
    began = time.monotonic()
    subprocess.run([sys.executable, HERE.parents[1] / "examples/demo/pipeline.py"], check=True)
    return {"arm": "demo", "seconds": round(time.monotonic() - began, 1), "load": round(os.getloadavg()[0], 2)}


def run_once(command: Sequence[str]) -> Run:
    """The command in a process of its own: its verdict, and what it took."""
    before, began = os.times(), time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    seconds, after = time.monotonic() - began, os.times()
    if done.returncode not in (0, 6):
        sys.exit(f"the run ended with {done.returncode}")
    found = next(one for one in map(json.loads, done.stdout.splitlines()) if one["event"] == "verdict")
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": round(seconds, 2), "processor": round(processor, 2), **_stage_times(found)}


def stand(command: Sequence[str], asked: argparse.Namespace, runs: list[Run]) -> int:
    """Runs of the service, which are added to `runs`; its exit code behind SIGTERM."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ThreadPoolExecutor(1) as beside:
        assert process.stdout is not None
        spent, heaps = 0.0, {}
        try:
            for found in _verdicts(process.stdout):
                number = sum(one["arm"] == "standing" for one in runs)
                there = _tree(process.pid)
                now = sum(map(_spent, there))
                run = {"arm": "standing", "round": number, "seconds": found["seconds"],
                       "processor": round(now - spent, 2), **_stage_times(found), **_holds(process.pid, there)}  # fmt: skip
                spent = now
                if number % 10 == 9:
                    heaps[len(runs)] = beside.submit(_heap, there)
                runs.append(run)
                say(json.dumps(run))
                if number + 1 == asked.rounds:
                    break
                send(asked.new)
            for index, heap in heaps.items():
                runs[index]["heap"] = heap.result()
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            code = process.wait(120)
            say(f"SIGTERM: exit code {code} after {time.monotonic() - began:.1f} s")
            return code
        finally:
            process.kill()


def _verdicts(lines: Iterator[str] | Any) -> Iterator[Run]:
    for line in lines:
        found = json.loads(line)
        if found["event"] == "failed":
            sys.exit(f"a run failed: {found['problems']}")
        if found["event"] == "verdict":
            yield found


def _stage_times(found: Run) -> Run:
    return {
        "landed": found["landed"],
        "verdict": found["verdict"],
        "stages": found["stages"],
        "load": round(os.getloadavg()[0], 2),
    }


def _spent(pid: int) -> float:
    """Seconds of the processor of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _holds(pid: int, there: dict[int, Any]) -> Run:
    """Returns the resources of the process and its Java: resident MiB, threads and open files."""
    java = next(one for one, process in there.items() if process.program == "java")
    return {
        "resident": round(sum(one.resident for one in there.values())),
        **{
            f"{name}_{what}": value
            for name, one in (("driver", pid), ("java", java))
            for what, value in (
                ("mib", round(there[one].resident)),
                ("threads", len(list(Path(f"/proc/{one}/task").iterdir()))),
                ("files", len(list(Path(f"/proc/{one}/fd").iterdir()))),
            )
        },
    }


def _heap(there: dict[int, Any]) -> float:
    """MiB of Java's heap that is in use behind a full collection: the least of some, for what a run needs is not what stays."""
    java = str(next(pid for pid, process in there.items() if process.program == "java"))
    least = float("inf")
    for _ in range(SAMPLES):
        subprocess.run(["jcmd", java, "GC.run"], check=True, stdout=subprocess.DEVNULL)
        heap = subprocess.run(["jcmd", java, "GC.heap_info"], check=True, stdout=subprocess.PIPE, text=True).stdout
        lines = [line for line in heap.splitlines() if re.search(r"(Gen|generation|heap) .*used", line)]
        least = min(least, sum(int(HEAP.search(line)[1]) for line in lines) / 1024)  # type: ignore[index]
        time.sleep(SAMPLE_EVERY)
    return round(least, 1)


def judge(runs: list[Run], asked: argparse.Namespace) -> int:
    """The exit code, said with its reasons."""
    rounds = [one for one in runs if one["arm"] == "standing"]
    settled = [one for one in rounds if one["round"] >= len(rounds) / 5]
    most = max((one["resident"] for one in rounds), default=0)
    say(f"{len(rounds)} rounds: at most {most} MiB resident")
    wrong = most > asked.bound
    for name, allowed in {"heap": asked.growth, **COUNTS}.items():
        growth = slope([(one["round"], one[name]) for one in settled if name in one])
        say(f"{name}: grows by {growth:.3f} a round")
        wrong = wrong or growth > allowed
    return int(wrong)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Slope of the line through the points by least squares; 0 for fewer than two points."""
    if len(points) < 2:
        return 0.0
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


@contextmanager
def worker(place: list[str]) -> Iterator[None]:
    """A consumer that does every message, for the length of a block."""
    command = [
        BIN / "kodo-consumer",
        "run",
        "bench.yaml",
        "--topic",
        "flow",
        "--subscription",
        "s",
        "--handler",
        "noop:handle",
        *place,
    ]
    environ = {**os.environ, "PYTHONPATH": f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"}
    with Path("worker.log").open("wb") as log, subprocess.Popen(command, env=environ, stderr=log) as process:
        try:
            settle()
            yield
        finally:
            process.terminate()


def send(messages: int) -> None:
    from kodo_consumer import Producer

    where = cluster()
    with Producer.load("bench.yaml", topic="flow", admin_url=where.admin_url, broker_url=where.broker_url) as producer:
        for number in range(messages):
            producer.post({"n": number}, properties={"uid": f"tenant-{number % 101}"})
        producer.flush()


def settle() -> None:
    """Waits 10 s, in which the worker handles the sent messages and writes its records."""
    time.sleep(10)


if __name__ == "__main__":
    main()

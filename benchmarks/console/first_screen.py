"""Time and requests of `kodoctl ui` on a large estate: 50 topologies with 500 lanes, and 10,000 dead letters in one of them.

Each topology has two ground topics with a subscription each: ready, retrying, pending, blocking and dead letters. In one
lane of dead letters are 10,000 letters of 12 causes and 100 tenants. Steps: the start of the command until it prints its
address; the first screen; further refreshes, each after the last reading is too old to be shown again; the causes of the
letters, which a thread reads beside it; the page of that lane, and its file of JSON lines.

usage: python benchmarks/console/first_screen.py [--topologies 50] [--letters 10000] [--rounds 5] [--out FOLDER]
needs KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL (for example from `kodoctl dev up`)

Writes results.jsonl (one line a step) and results.md (the table of the README) into FOLDER, by default next to this file.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

HERE = Path(__file__).parent
KODOCTL = [sys.executable, "-m", "kodoctl"]
CAUSES, TENANTS = 12, 100
LETTERS = "ABCDEFGHIJKL"  # of causes: digits would be one
DEAD_LETTERS = "persistent://bench/ui-c00/orders-work-DLQ"
STALE_S = 4.2  # after which the console reads the lanes again


def topology(number: int) -> str:
    """A file with two ground topics of five lanes each."""
    subscription = (
        "{concurrency: 8, in_place: [], error_text: true, retrying: {delays: [1m], attempts: 3},"
        " limits: [{kind: rate, limit: 5/s}, {kind: quota, limit: 100/m}]}"
    )
    name = f"c{number:02d}"
    topics = "".join(
        f"  {ground}:\n    partitions: 1\n    fair_by: uid\n    message_properties: {{uid: required}}\n"
        f"    subscriptions: {{work: {subscription}}}\n"
        for ground in ("orders", "bills")
    )
    return (
        f"version: 1\nname: {name}\ntenant: bench\nnamespace: ui-{name}\n"
        f"create_tenant: {{clusters: [standalone]}}\ntopics:\n{topics}"
    )


def send_letters(url: str, topic: str, count: int) -> None:
    """Stores dead letters as workers leave them."""
    import pulsar

    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    producer = client.create_producer(topic, max_pending_messages=count)
    for number in range(count):
        properties = {
            "kodo-id": f"order-{number}", "uid": f"u{number % TENANTS}", "kodo-reason": f"Error{LETTERS[number % CAUSES]}",
            "kodo-error": f"bank {number} answered 503", "kodo-from-level": "L1",
        }  # fmt: skip
        producer.send_async(json.dumps({"order": number, "amount": 12.5}).encode(), lambda *_: None, properties)
    producer.flush()
    client.close()


class Ui:
    """A running console. `started`: seconds, of wall and of CPU, until it printed its address; `memory`: peak of its
    memory in MiB, at its end.
    """

    def __init__(self, files: Path) -> None:
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*KODOCTL, "ui", str(files)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        address = urlsplit(self.process.stdout.readline().strip())
        self.started = time.monotonic() - began, self.cpu()
        self._port, self._folder = address.port, address.path.rstrip("/")
        self._cookie = f"kodoctl-ui-{address.port}={address.query.partition('=')[2]}"
        self.memory = 0

    def cpu(self) -> float:
        """CPU seconds of its process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def get(self, path: str) -> tuple[float, float, str]:
        """(seconds of wall, of the console's CPU, text) of a page. Ends the program if it is none."""
        began, cpu = time.monotonic(), self.cpu()
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)) as connection:
            connection.request("GET", self._folder + path, headers={"Cookie": self._cookie})
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status != 200:
            sys.exit(f"{path}: {answer.status}\n{text[:2000]}")
        return time.monotonic() - began, self.cpu() - cpu, text

    def end(self) -> None:
        """Ends the console as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.memory = usage.ru_maxrss >> 10


@contextmanager
def running(files: Path) -> Iterator[Ui]:
    """A console that has ended behind the block."""
    ui = Ui(files)
    try:
        yield ui
    finally:
        ui.end()


def requests_of(files: Path) -> tuple[int, int, int]:
    """(topics, lanes, requests) of one reading of all lanes, by the console's own functions in this process."""
    from kodoctl.cli.common.command_target import TargetOptions, load_desired
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.status.status_reader import read_lanes

    desired = load_desired([str(files)], None)
    with closing(HttpAdmin(TargetOptions().connection())) as admin:
        read, _ = read_lanes(admin, desired.expansions, lambda: False)
        topics = sum(len(one.topics) for one in desired.expansions)
        return topics, sum(len(one.lanes) for one in read), admin.traffic.reads


def measure(files: Path, rounds: int) -> Iterator[dict[str, object]]:
    """Yields the steps of all rounds."""
    topics, lanes, reads = requests_of(files)
    yield {"step": "one reading of all lanes", "topics": topics, "lanes": lanes, "reads": reads}
    lane = {"topology": "c00", "topic": "orders-work-DLQ", "subscription": "work"}
    for number in range(rounds):
        with running(files) as ui:
            steps: dict[str, tuple[float, float, str]] = {"start until the address": (*ui.started, "")}
            steps["first screen"] = ui.get("/")
            began, cpu = time.monotonic(), ui.cpu()
            while "× Error" not in ui.get("/lanes")[2]:
                time.sleep(0.2)
            steps["causes of the letters are there, after it"] = time.monotonic() - began, ui.cpu() - cpu, ""
            time.sleep(STALE_S)
            steps["refresh"] = ui.get("/lanes")
            steps["refresh within 4 seconds"] = ui.get("/lanes")
            steps["page of the lane of letters"] = ui.get(f"/lane?{urlencode(lane)}")
            steps["its file of JSON lines"] = ui.get(f"/export?{urlencode({**lane, 'as': 'jsonl'})}")
        for step, (seconds, cpu, text) in steps.items():
            yield {
                "step": step,
                "round": number,
                "seconds": round(seconds, 3),
                "cpu_s": round(cpu, 2),
                "bytes": len(text),
            }
        yield {"step": "memory of the console", "round": number, "peak_mib": ui.memory}


def table(steps: list[dict[str, object]]) -> Iterator[str]:
    """Medians with the smallest and the largest, one row a step."""
    yield "| step | wall | CPU | size |"
    yield "|---|---|---|---|"
    for name in dict.fromkeys(str(one["step"]) for one in steps if "seconds" in one):
        mine = [one for one in steps if one["step"] == name]
        wall, cpu, size = ([float(str(one[key])) for one in mine] for key in ("seconds", "cpu_s", "bytes"))
        shown = f"{statistics.median(size) / 1024:,.0f} KiB" if any(size) else ""
        yield f"| {name} | {_cell(wall)} | {_cell(cpu)} | {shown} |"


def _cell(values: list[float]) -> str:
    return f"**{statistics.median(values):.2f} s** ({min(values):.2f}–{max(values):.2f})"


def main() -> None:
    """Applies the estate, fills a lane, and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topologies", type=int, default=50)
    parser.add_argument("--letters", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    about = {
        "system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count(),
        "python": platform.python_version(), "load_before": os.getloadavg()[0],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "topologies"
        files.mkdir()
        for number in range(arguments.topologies):
            (files / f"c{number:02d}.yaml").write_text(topology(number), encoding="utf-8")
        subprocess.run([*KODOCTL, "apply", str(files), "--auto-approve"], check=True, stdout=subprocess.DEVNULL)
        try:
            send_letters(os.environ["KODOCTL_BROKER_URL"], DEAD_LETTERS, arguments.letters)
            steps = list(measure(files, arguments.rounds))
        finally:
            letters = ["--allow-destroy", f"topic.{DEAD_LETTERS}"]
            subprocess.run(
                [*KODOCTL, "destroy", str(files), "--auto-approve", *letters], check=False, stdout=subprocess.DEVNULL
            )
    lines = [json.dumps({"machine": about}), *map(json.dumps, steps)]
    (arguments.out / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = "\n".join(table(steps))
    (arguments.out / "results.md").write_text(rows + "\n", encoding="utf-8")
    print(json.dumps(steps[0]), rows, sep="\n")


if __name__ == "__main__":
    main()

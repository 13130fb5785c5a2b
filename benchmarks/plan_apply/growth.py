"""Growth of plan and destroy with the number of topics: CPU seconds, peak memory and requests of kodoctl's process alone,
and wall time, which means something only if nothing else runs.

Two shapes: topics that are alike (those of measure.py), and ground topics as people write them (mixed). A real broker holds the
first ten ground topics of each; stand_in.py answers for the others as that broker answered. Steps: a first plan with each view, a
plan with nothing to change, destroy, and the bare deletes that are its floor.

usage: python benchmarks/plan_apply/growth.py [--sizes 300,3000,20000] [--shapes alike,mixed] [--destroy-up-to 3000] [--out FOLDER]
needs KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL (for example from `kodoctl dev up`)

Writes growth.jsonl (one line a step), growth.md (the tables of the README) and growth.svg (CPU seconds by topics) into FOLDER, by
default next to this file.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import log, log10
from pathlib import Path
from typing import Any

from measure import HERE, record, run, topology
from stand_in import Estate, StandIn, enlarge

REAL = 10  # ground topics that the broker holds
LARGE = 20_000  # topics of a namespace, whose ledger has no room for 100,000; beyond it several, and one view
VIEWS = ("text", "html", "markdown", "json")
PLAN, DESTROY, FLOOR = "plan, nothing to change", "destroy", "floor: bare deletes"
COLORS = {"first plan, text": "#888888", PLAN: "#1f77b4", DESTROY: "#d62728"}
Result = dict[str, Any]

_BARE = """
import sys, urllib3
from concurrent.futures import ThreadPoolExecutor
base, count = sys.argv[1], int(sys.argv[2])
pool = urllib3.PoolManager(maxsize=16)
with ThreadPoolExecutor(12) as threads:
    list(threads.map(lambda n: pool.request("DELETE", f"{base}/t{n:06d}/partitions"), range(100_000, 100_000 + count)))
"""


def alike(name: str, grounds: int) -> str:
    """The topics of measure.py: 4 policies and one subscription each."""
    return topology(name, grounds, digits=6)


def mixed(name: str, grounds: int) -> str:
    """Ground topics as people write them: every fifth with two levels and a backup, all with waiting states and 4 partitions."""
    head = (
        f"version: 1\nname: {name}\ntenant: bench\nnamespace: {name}\ncreate_tenant: {{clusters: [standalone]}}\n"
        "defaults:\n  partitions: 4\n  policies:\n    retention: {time: 3d, size: 10GiB}\ntopics:\n"
    )
    return head + "".join(map(_ground, range(grounds)))


def _ground(number: int) -> str:
    more = "    levels: double\n    backup: true\n" if number % 5 == 0 else ""
    return (
        f"  topic-{number:06d}:\n    description: messages of kind {number}\n{more}"
        "    message_properties: {uid: required, size: optional}\n    fair_by: uid\n"
        "    policies: {retention: {time: 7d, size: 20GiB}}\n"
        "    subscriptions:\n      worker:\n        expected_workers: 2\n"
        "        retrying: {delays: [10s, 1m, 5m], attempts: 12}\n"
        "        limits:\n          - {kind: rate, by: uid, limit: 100/s, burst: 200}\n"
    )


SHAPES = {"alike": (alike, 1), "mixed": (mixed, 6)}  # with how many topics a ground topic has on average


def measure(shape: str, topics: int, out: Path, *, destroys: bool) -> Iterator[Result]:
    """All steps of one shape and size; every step is one line of `out`."""
    make, family = SHAPES[shape]
    parts = max(1, topics // LARGE)
    grounds = topics // parts // family // REAL * REAL
    names = [f"{shape}-{topics}-{int(time.time())}-{part}" for part in range(parts)]
    admin, broker = os.environ["KODOCTL_ADMIN_URL"].rstrip("/"), os.environ["KODOCTL_BROKER_URL"]
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, make, names, REAL)
        run("apply", folder, "--auto-approve", "-v")
        _write(folder, make, names, grounds)

        def step(title: str, result: Result) -> Result:
            about = {"shape": shape, "size": topics, "step": title, "load": round(os.getloadavg()[0], 1)}
            return record({**about, **result}, out)

        for view in VIEWS if topics <= LARGE else VIEWS[:1]:
            yield step(f"first plan, {view}", run("plan", folder, "--format", view))
        estates = [Estate(admin, broker, f"bench/{name}", REAL, grounds) for name in names]
        for estate, name in zip(estates, names, strict=True):
            enlarge(estate, name)
        with StandIn(*estates) as stand_in:
            there = {"topics": stand_in.topics}
            for title, command in ((PLAN, "plan"), *([(DESTROY, "destroy --auto-approve")] if destroys else [])):
                words = command.split()
                words.insert(1, folder)
                stand_in.requests.clear()
                result = run(*words, "-v", KODOCTL_ADMIN_URL=stand_in.url)
                yield step(title, {**there, **result, "seen": dict(stand_in.requests)})
            if destroys:
                base = f"{stand_in.url}/admin/v2/persistent/{estates[0].namespace}"
                yield step(FLOOR, {**there, **_bare_deletes(base, there["topics"])})


def _write(folder: str, make: Callable[[str, int], str], names: list[str], grounds: int) -> None:
    for name in names:
        (Path(folder) / f"{name}.yaml").write_text(make(name, grounds))


def _bare_deletes(base: str, count: int) -> Result:
    """What a process needs that sends as many deletes and does nothing else."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", _BARE, base, str(count)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu_s": round(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, 2), "writes": count}


def tables(results: list[Result]) -> str:
    """Markdown: figures of each step, then how they grow between two sizes, and the ratio of a destroy to its floor."""
    lines = [
        "| shape | size | step | wall s | CPU s | peak MiB | requests a topic | lines | KiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for one in results:
        requests = one.get("reads", 0) + one.get("writes", 0)
        each = f"{requests / one['topics']:.3f}" if "topics" in one else ""
        size = [f"{one['lines']:,}", f"{one['bytes'] / 1024:,.0f}"] if "lines" in one else ["", ""]
        figures = [one.get(name, "") for name in ("wall_s", "cpu_s", "peak_mib")]
        cells = [one["shape"], f"{one['size']:,}", one["step"], *figures, each, *size]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "| shape | step | from, to | topics × | CPU × | exponent |", "|---|---|---|---|---|---|"]
    for shape, step, runs in _series(results):
        for one, two in pairwise(runs):
            more, cost = two["size"] / one["size"], two["cpu_s"] / one["cpu_s"]
            exponent = log(cost) / log(more)
            lines.append(
                f"| {shape} | {step} | {one['size']:,}, {two['size']:,} | {more:.1f} | {cost:.1f} | {exponent:.2f} |"
            )
    lines += ["", "| shape | size | CPU of a destroy ÷ its floor | requests ÷ floor |", "|---|---|---|---|"]
    by_step = {(one["shape"], one["size"], one["step"]): one for one in results}
    for (shape, size, step), one in by_step.items():
        if step == DESTROY and (floor := by_step.get((shape, size, FLOOR))):
            requests = (one["reads"] + one["writes"]) / floor["writes"]
            lines.append(f"| {shape} | {size:,} | {one['cpu_s'] / floor['cpu_s']:.1f} | {requests:.1f} |")
    return "\n".join(lines) + "\n"


def _series(results: list[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """Yields (shape, step, results by size) for the steps that are drawn."""
    for shape in SHAPES:
        for step in COLORS:
            runs = [one for one in results if (one["shape"], one["step"]) == (shape, step)]
            if runs:
                yield shape, step, sorted(runs, key=lambda one: one["size"])


def drawing(results: list[Result]) -> str:
    """An SVG document: CPU seconds by topics, both logarithmic; the grey line is linear growth."""

    def place(topics: float, seconds: float) -> str:
        return f"{60 + (log10(topics) - 2) * 170:.0f},{300 - (log10(seconds) + 1) * 80:.0f}"

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 330" font-family="sans-serif" font-size="11">']
    for size in (100, 1_000, 10_000, 100_000):
        x = place(size, 0.1).partition(",")[0]
        parts.append(f'<text x="{x}" y="318" text-anchor="middle">{size:,} topics</text>')
    for seconds in (0.1, 1, 10, 100):
        y = place(100, seconds).partition(",")[2]
        parts.append(f'<text x="50" y="{y}" text-anchor="end">{seconds:g} s</text>')
    parts.append(
        f'<polyline points="{place(300, 0.3)} {place(100_000, 100)}" fill="none" stroke="#ccc" stroke-dasharray="4"/>'
    )
    for number, (shape, step, runs) in enumerate(_series(results)):
        dashes = ' stroke-dasharray="6 3"' if shape == "mixed" else ""
        points = " ".join(place(one["size"], one["cpu_s"]) for one in runs)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[step]}" stroke-width="2"{dashes}/>')
        parts.append(f'<text x="75" y="{20 + 14 * number}" fill="{COLORS[step]}">{shape}: {step}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="300,3000,20000")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--destroy-up-to", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    out = options.out / "growth.jsonl"
    out.unlink(missing_ok=True)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux"
    record({"machine": machine, "when": time.strftime("%Y-%m-%d"), "load_before": os.getloadavg()[0]}, out)
    results: list[Result] = []
    for size in map(int, options.sizes.split(",")):
        for shape in options.shapes.split(","):
            for result in measure(shape, size, out, destroys=size <= options.destroy_up_to):
                results.append(result)
                (options.out / "growth.md").write_text(tables(results), encoding="utf-8")
                (options.out / "growth.svg").write_text(drawing(results), encoding="utf-8")


if __name__ == "__main__":
    main()

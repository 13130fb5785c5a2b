"""Install size and import time of kodoctl and of each extra, in new environments with the locked releases.

usage: make release-check && python benchmarks/install/measure.py [--rounds 7] [--write]

Installs the wheels in dist/, one environment for each extra, with bytecode, as pip does. Writes results.jsonl next to this
file and the table into docs/how-to/install.md; `--write` only writes the table, from the results that are there.
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
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.bar_rows import fill  # noqa: E402

RESULTS = Path(__file__).with_name("results.jsonl")
PAGE = ROOT / "docs" / "how-to" / "install.md"
BAR_MB = 120
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
BASE = {
    "command line": "import kodoctl.cli.main, kodoctl.cli.plan.plan_command",
    "worker": "import kodo_consumer.cli.worker_commands, kodo_consumer.running.multi_run",
}
EXTRAS = {
    "avro": "import fastavro",
    "database": "import kodo_consumer.outbox.outbox",
    "postgres": "import kodo_consumer.outbox.outbox, psycopg",
    "otel": "import opentelemetry.sdk.trace",
    "ui": "import kodoctl.ui.web_server, kodoctl.ui.application",
    "recall": "import deltalake, pyarrow",
    "sql": "import duckdb, deltalake, pyarrow",
    "spark": "import pyspark.sql, pyarrow, deltalake, pandas",
    "fast": "import kodo_fast",
}


def sizes(environment: Path) -> dict[str, int]:
    """Bytes of the files that are installed, without pip and setuptools: of files and of bytecode; of both on the disk, in
    its blocks; and of pip and setuptools, bytecode included.
    """
    total = {"files": 0, "bytecode": 0, "disk": 0, "pip": 0}
    [packages] = environment.glob("lib/python3.*/site-packages")
    for path in (path for path in packages.rglob("*") if path.is_file()):
        status = path.lstat()
        if path.relative_to(packages).parts[0].partition("-")[0] in NOT_OURS:
            total["pip"] += status.st_size
            continue
        total["bytecode" if path.suffix == ".pyc" else "files"] += status.st_size
        total["disk"] += status.st_blocks * 512
    return total


def cpu_ms(python: Path, statement: str, folder: Path) -> float:
    """CPU milliseconds of a process that runs a statement."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    process = subprocess.Popen([python, "-c", statement], cwd=folder, env=environ)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{statement}: exit code {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def measured(extra: str, statements: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Installs kodoctl with an extra ("" for none) in a new environment: a record for each arm of statements that import."""
    [wheel], fast = ROOT.glob("dist/kodoctl-*.whl"), map(str, ROOT.glob("dist/kodo_fast-*.whl"))
    what = [f"{wheel}[{extra}]" if extra not in ("", "fast") else str(wheel), *(fast if extra == "fast" else ())]
    locks = [word for lock in ("dev", "spark") for word in ("-c", str(ROOT / "requirements" / f"{lock}.txt"))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = folder / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        install = (Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--compile-bytecode")
        subprocess.run([*install, "--python", python, *locks, *what], check=True)
        found = []
        for arm, statement in statements.items():
            times = [(cpu_ms(python, "pass", folder), cpu_ms(python, statement, folder)) for _ in range(rounds + 1)][1:]
            spent = round(statistics.median(after - before for before, after in times), 1)
            found.append({"arm": arm, **sizes(folder / "venv"), "import": statement, "ms": spent})
        return found


def table(records: Iterable[dict[str, Any]]) -> list[str]:
    """Rows of the page: what an extra adds to the base, and the whole environment, in MB of a million bytes."""
    rows = {record["arm"]: record for record in records if "arm" in record}
    base = rows["command line"]
    lines = ["| | adds | environment | on the disk | without bytecode | import |", "|---|---|---|---|---|---|"]
    for arm, row in rows.items():
        all_of_it, before = row["files"] + row["bytecode"], base["files"] + base["bytecode"]
        added = "" if arm in BASE else f"{(all_of_it - before) / 1e6:.0f} MB"
        columns = (f"{size / 1e6:.0f} MB" for size in (all_of_it, row["disk"], row["files"]))
        lines.append(f"| {arm if arm in BASE else f'`{arm}`'} | {added} | {' | '.join(columns)} | {row['ms']:.0f} ms |")
    return lines


def about(records: Iterable[dict[str, Any]]) -> list[str]:
    """Sentence about the bar and the machine."""
    found = list(records)
    machine, rows = found[0]["machine"], {record["arm"]: record for record in found[1:]}
    whole = {arm: rows[arm]["files"] + rows[arm]["bytecode"] for arm in BASE}
    verdict = "met" if max(whole.values()) <= BAR_MB * 1e6 else "missed"
    disk = "met" if rows["worker"]["disk"] <= BAR_MB * 1e6 else "missed"
    return [
        f"The bar for the command line and for a worker is {BAR_MB} MB: {verdict} by the sizes of the files, {disk} in blocks on the disk.",
        f"pip and setuptools, which `python -m venv` brings, are {rows['worker']['pip'] / 1e6:.0f} MB more and not counted.",
        f"Measured {machine['date']}: Python {machine['python']}, {machine['system']}, {machine['cores']} cores that others used as well.",
    ]


def filled(text: str, records: list[dict[str, Any]]) -> str:
    """The page with its table made of the records."""
    return fill(text, "measure.py", {"sizes": partial(table, records), "about": partial(about, records)})


def main() -> None:
    """Measures every extra, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="only write the table")
    options = parser.parse_args()
    if not options.write:
        machine = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version(), "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
        }  # fmt: skip
        records = [{"machine": machine}]
        records += measured("", BASE, options.rounds)
        for extra, statement in EXTRAS.items():
            print(extra, file=sys.stderr)
            records += measured(extra, {extra: statement}, options.rounds)
        RESULTS.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    results = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    PAGE.write_text(filled(PAGE.read_text("utf-8"), results), encoding="utf-8")
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()

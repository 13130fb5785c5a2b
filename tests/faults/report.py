"""What campaigns found, for people and for programs. Every part that ran is kept; the totals are over all of them."""

from __future__ import annotations

import json
import platform
from collections import Counter
from pathlib import Path
from typing import Any

RESULTS = "results.jsonl"
REPORT = "report.md"
_HEAD = """# Faults: what consumers did with them

Written by `make faults`. Consumers with a store (SQLite), a producer that never stops and a broker of their own suffer one
fault after the other; a ledger outside counts. *Lost*: messages with a receipt that are neither done nor dead nor stored.
*Doubled effects*: work that was done twice. *Doubled handler runs* are allowed, within what the faults explain: after the
death of a consumer what ran, and one group of acknowledgements of the worker and one of the client (1,068 together); after
a broken connection up to everything the consumers hold (4,000).

"""


def add(folder: Path, part: dict[str, Any]) -> None:
    """Appends one campaign and writes the report anew."""
    with (folder / RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(part, sort_keys=True) + "\n")
    parts = [json.loads(line) for line in (folder / RESULTS).read_text(encoding="utf-8").splitlines()]
    (folder / REPORT).write_text(render(parts), encoding="utf-8")


def machine() -> str:
    """What it ran on."""
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"


def render(parts: list[dict[str, Any]]) -> str:
    """The report in Markdown."""
    verdicts = [part["verdict"] for part in parts]
    total = {
        name: sum(verdict[name] for verdict in verdicts) for name in verdicts[0] if isinstance(verdicts[0][name], int)
    }
    lists = {name: sum(len(verdict[name]) for verdict in verdicts) for name in ("lost", "altered", "doubled_effects")}
    rows = [
        ("sent, with a receipt", total["sent"]),
        ("sent, without one", total["unsure"]),
        ("done", total["done"]),
        ("dead", total["dead"]),
        ("still stored", total["still_stored"]),
        ("**lost**", f"**{lists['lost']}**"),
        ("altered", lists["altered"]),
        ("**doubled effects**", f"**{lists['doubled_effects']}**"),
        ("doubled handler runs", f"{total['doubled_runs']} (allowed: {total['bound_of_doubled_runs']})"),
        ("slowest recovery", f"{max(part['slowest_recovery'] for part in parts):.1f} s after a fault"),
    ]
    faults: Counter[str] = Counter()
    for part in parts:
        faults.update(part["faults"])
    lines = ["| what | messages |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines += [
        "| fault | times |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in sorted(faults.items())),
        "",
    ]
    lines += [
        "| part | minutes | faults | sent | lost | doubled effects | doubled runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, part in enumerate(parts, 1):
        verdict, count = part["verdict"], sum(part["faults"].values())
        lines.append(
            f"| {number} | {part['seconds'] / 60:.0f} | {count} | {verdict['sent']} | {len(verdict['lost'])} "
            f"| {len(verdict['doubled_effects'])} | {verdict['doubled_runs']} |"
        )
    return _HEAD + "\n".join(lines) + f"\n\n{parts[-1]['machine']}.\n"

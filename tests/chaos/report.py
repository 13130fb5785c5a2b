"""What campaigns on a cluster found, for people and for programs. Every campaign that ran is kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.report import machine

__all__ = ["add", "machine", "render"]

RESULTS = "cluster.jsonl"
REPORT = "cluster.md"
_HEAD = """# Faults on a cluster

Written by `make chaos`. Three brokers, three bookies and a ZooKeeper; two consumers with levels, limits, all states, signed
properties and an audit topic; a producer that never stops; applies of 100 topics one after the other. One fault after the other
is injected, and a ledger outside counts. *Lost*: messages with a receipt that are neither done nor dead nor stored. *Handled
twice* is allowed, within what the faults explain: what all consumers hold when a connection breaks (4,000 messages a fault). How
long the partitions that a fault hit stood still is not measured here.

"""


def add(folder: Path, found: dict[str, Any]) -> None:
    """Appends one campaign and writes the report anew."""
    with (folder / RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(found, sort_keys=True) + "\n")
    campaigns = [json.loads(line) for line in (folder / RESULTS).read_text(encoding="utf-8").splitlines()]
    (folder / REPORT).write_text(render(campaigns), encoding="utf-8")


def render(campaigns: list[dict[str, Any]]) -> str:
    """The report in Markdown: one line a campaign, then how often each fault was injected in all of them."""
    lines = [
        (
            "| campaign | minutes | faults | sent, receipt | without | done | dead | lost | effects twice | handled twice (allowed) "
            "| longest until the next effect on any partition | applies: exit codes | unclear | re-run failed | second plan not empty | audit |"
        ),
        "|---|" + "---|" * 15,
    ]
    for number, one in enumerate(campaigns, 1):
        verdict, applies = one["verdict"], one["applies"]
        exits = ", ".join(f"{code}: {count}" for code, count in applies["exits"].items())
        cells = [
            number, round(one["seconds"] / 60), sum(one["faults"].values()), verdict["sent"], verdict["unsure"],
            verdict["done"], verdict["dead"], f"**{len(verdict['lost'])}**", len(verdict["doubled_effects"]),
            f"{verdict['doubled_runs']} ({verdict['bound_of_doubled_runs']})",
            f"{one['slowest_recovery']:.1f} s" + (f", {len(one['stuck'])} stuck" if one["stuck"] else ""),
            exits, len(applies["unclear"]), len(applies["unfinished"]), len(applies["drift"]),
            ", ".join(f"exit {code}" for code in one["audits"]),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    faults: Counter[str] = Counter()
    for one in campaigns:
        faults.update(one["faults"])
    lines += [
        "",
        "| fault | times |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in sorted(faults.items())),
    ]
    return _HEAD + "\n".join(lines) + f"\n\n{campaigns[-1]['machine']}.\n"

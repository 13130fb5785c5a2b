"""What campaigns on a cluster found, for people and for programs. Every campaign that ran is kept."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from tests.chaos.spans import LATE, UNSURE
from tests.faults.report import machine

__all__ = ["add", "machine", "render"]

RESULTS = "cluster.jsonl"
REPORT = "cluster.md"
_HEAD = f"""# Faults on a cluster

Written by `make chaos`. Three brokers, three bookies and a ZooKeeper; two consumers with levels, limits, all states, signed
properties and an audit topic; a producer that never stops; keys whose order is checked; beside them applies of 100 topics, recalls of all dead letters, and
ingests with an audit, each one after the other. One fault after the other is injected, and a ledger outside counts.

- *Lost*: messages with a receipt that are neither done nor dead nor stored.
- *Letters*: dead letters that were recalled and have no effect after all.
- *Out of order*: messages of a producer and an outbox with keys, moved on to another topic, that were stored or handled behind a
  later one of their key; both topics have a subscription that keeps order.
- *Recovery*: from the moment when every node runs and serves again, until each of six ready partitions is handled again; the
  slowest of them counts. *Late*: longer than {LATE:.0f} s.
- *Silence*: the longest time without a handling on one partition during the fault; of those whose broker it did not concern,
  and of the others. A fault of a broker lasts at least until ZooKeeper's session of the broker ends (30 s).
- *Handled twice* is allowed within what was under way when connections broke: handlers that ran, moves without a receipt, and
  what was acknowledged in the {UNSURE} s before.

"""


def add(folder: Path, found: dict[str, Any]) -> None:
    """Appends one campaign and writes the report anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(found, sort_keys=True) + "\n")
    campaigns = [json.loads(line) for line in (folder / RESULTS).read_text(encoding="utf-8").splitlines()]
    (folder / REPORT).write_text(render(campaigns), encoding="utf-8")


def render(campaigns: list[dict[str, Any]]) -> str:
    """The report in Markdown: a line for each campaign, for each kind of command, and for each kind of fault in all of them."""
    lines = [*_campaigns(campaigns), "", *_commands(campaigns), "", *_faults(campaigns)]
    return _HEAD + "\n".join(lines) + f"\n\n{campaigns[-1]['machine']}.\n"


def _campaigns(campaigns: list[dict[str, Any]]) -> list[str]:
    lines = _head(
        "campaign", "minutes", "faults", "sent, receipt", "without", "done", "dead", "lost", "altered", "letters", "effects twice",
        "handled twice (allowed)", "most copies of a move", "out of order", "stuck",
    )  # fmt: skip
    for number, one in enumerate(campaigns, 1):
        cells = [
            number, round(one["seconds"] / 60), sum(row["times"] for row in one["faults"].values()),
            *_verdict(one), max(one["copies"].values(), default="unknown"), _overtaken(one), len(one["stuck"]),
        ]  # fmt: skip
        lines.append(_line(cells))
    return lines


def _overtaken(one: dict[str, Any]) -> str:
    """Messages that were stored or handled behind a later one of their key, of all whose order was checked."""
    order = one.get("order")
    return f"{sum(map(len, order['overtaken'].values()))} of {order['messages']}" if order else "not checked"


def _verdict(one: dict[str, Any]) -> list[Any]:
    """Cells of a ledger's verdict; unknown where a campaign came to none."""
    verdict = one["verdict"]
    if verdict is None:
        return ["unknown"] * 9
    return [
        verdict["sent"], verdict["unsure"], verdict["done"], verdict["dead"], f"**{len(verdict['lost'])}**",
        len(verdict["altered"]), len(one["unrecalled"]), len(verdict["doubled_effects"]),
        f"{verdict['doubled_runs']} ({verdict['bound_of_doubled_runs']})",
    ]  # fmt: skip


def _commands(campaigns: list[dict[str, Any]]) -> list[str]:
    lines = _head(
        "campaign", "commands", "exit codes: times", "unclear end", "longest without a word", "re-run failed", "said what was wrong",
    )  # fmt: skip
    for number, one in enumerate(campaigns, 1):
        for name, record in one["commands"].items():
            exits = ", ".join(f"{code}: {count}" for code, count in record["exits"].items())
            longest = f"{max(record['silences'])} s" if record["silences"] else "below 45 s"
            cells = [
                number, name, exits, len(record["unclear"]), longest, len(record["unfinished"]), len(record["wrong"]),
            ]  # fmt: skip
            lines.append(_line(cells))
    return lines


def _faults(campaigns: list[dict[str, Any]]) -> list[str]:
    lines = _head(
        "fault", "times", "recovery: median", "slowest", "late", "silence: spared partitions", "others", "handled twice (allowed)",
    )  # fmt: skip
    for name in sorted({name for one in campaigns for name in one["faults"]}):
        rows = [one["faults"][name] for one in campaigns if name in one["faults"]]
        recoveries = [seconds for row in rows for seconds in row["recoveries"]]
        spared = max(row["spared_silence"] for row in rows)
        cells = [
            name, sum(row["times"] for row in rows), f"{median(recoveries):.1f} s", f"{max(recoveries):.1f} s",
            sum(row["late"] for row in rows), f"{spared:.1f} s" if spared else "",
            f"{max(row['others_silence'] for row in rows):.1f} s",
            f"{sum(row['twice'] for row in rows)} ({sum(row['allowed'] for row in rows)})",
        ]  # fmt: skip
        lines.append(_line(cells))
    return lines


def _head(*names: str) -> list[str]:
    return [_line(list(names)), "|" + "---|" * len(names)]


def _line(cells: list[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"

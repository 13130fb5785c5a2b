"""The bars of the consumer as tables, from raw results: no figure in a README is typed by hand. Pure: records in, text out.

A record is a line of bars.jsonl: what a program measured in one run of an arm, with `program`, `run` (one measuring of all bars),
`round` and `commit`. An arm that ends in `-before` is of the former edition, in the same run. Of each program the records of its
last run count, so that no ratio is of two runs. Values are medians of rounds; a ratio is one of medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from benchmarks.bar_rows import OLD, Bar, Record, bar_rows, fill

NO_SLOWER = 0.97  # what two rounds of the same code differ by


class Results:
    """Records of the last run of each program, by arm."""

    def __init__(self, records: Iterable[Record]) -> None:
        every = list(records)
        last = {record["program"]: record["run"] for record in sorted(every, key=lambda record: str(record["run"]))}
        self._found: dict[tuple[str, str], list[Record]] = {}
        for record in every:
            if record["run"] == last[record["program"]]:
                self._found.setdefault((record["program"], record["arm"]), []).append(record)

    @property
    def programs(self) -> list[str]:
        return list(dict.fromkeys(program for program, _ in self._found))

    def of_program(self, program: str) -> list[Record]:
        return [record for (name, _), found in self._found.items() if name == program for record in found]

    def of(self, program: str, arm: str) -> list[Record]:
        return self._found.get((program, arm), [])

    def arms(self, program: str) -> list[str]:
        return [arm for name, arm in self._found if name == program]

    def median(self, program: str, arm: str, read: Callable[[Record], float]) -> float | None:
        values = [read(record) for record in self.of(program, arm)]
        return statistics.median(values) if values else None

    def cpu(self, arm: str) -> float | None:
        """µs a message."""
        return self.median("throughput", arm, lambda record: record["cpu_us"])

    def rate(self, arm: str) -> float | None:
        """Messages a second."""
        return self.median("throughput", arm, rate)


def rate(record: Record) -> float:
    """Messages a second; of a flood those handled or moved aside, or as near to it as a former edition counts."""
    if "rate" in record:
        return float(record["rate"])
    counted = record["messages"] if "messages" in record else passed(record)
    return float(counted / record["seconds"])


def passed(record: Record) -> float:
    """Messages of a flood that were handled or moved. Where they were not counted by lane, what came back and was handled is in the
    sum: it is no more than what was read.
    """
    return float(record.get("passed", min(record["read"], record["done"] + record["moved"])))


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def _quotient(left: float | None, right: float | None) -> float | None:
    return None if left is None or not right else left / right


def over(arm: str, base: str, bar: float, row: str) -> Bar:
    """µs of processor time beyond another arm's."""
    return Bar(row, bar, False, "µs", lambda found, edition: _difference(found.cpu(arm + edition), found.cpu(base)))


def share(arm: str, base: str, bar: float, row: str, unit: str = "%", *, of_edition: bool = False) -> Bar:
    """Part of another arm's rate; `of_edition`: of that arm's in the same edition."""

    def value(found: Results, edition: str) -> float | None:
        return _quotient(found.rate(arm + edition), found.rate(base + edition * of_edition))

    return Bar(row, bar, True, unit, value)


def _flood(found: Results, edition: str) -> float | None:
    read, raw = (found.median("readthrough", arm, rate) for arm in (f"ours{edition}", "raw-reroute"))
    return _quotient(read, raw)


def _quiet(when: str, *, over_idle: bool) -> Callable[[Results, str], float | None]:
    def value(found: Results, edition: str) -> float | None:
        def read(record: Record) -> float:
            return float(record[when]["p99"] - record["idle"]["p99"] * over_idle)

        return found.median("fairness", f"ours{edition}", read)

    return value


def _idle(found: Results, edition: str) -> float | None:
    return found.median("footprint", f"idle{edition}", lambda record: record["core_percent"] / 100)


def _spark(found: Results, edition: str) -> float | None:
    """The best number of splits."""
    arms = [
        arm
        for arm in found.arms("source")
        if arm.startswith(("native-", "spark-")) and arm.endswith(OLD) == (edition == OLD)
    ]
    rates = [one for arm in arms if (one := found.median("source", arm, rate)) is not None]
    return _quotient(max(rates, default=None), found.median("source", f"reader{edition}", rate))


def _fall_back(arm: str) -> Bar:
    def value(found: Results, edition: str) -> float | None:
        former = found.rate(arm + OLD)
        return _quotient(former if edition == OLD else found.rate(f"{arm}-python"), former)

    return Bar(f"pure-Python fall-back, {arm}: rate of the former edition's", NO_SLOWER, True, "%", value)


BARS: Sequence[Bar] = (
    over("sync", "raw", 7, "no-op, sync: processor time over raw"),
    over("async", "raw", 7, "no-op, async: processor time over raw"),
    share("sync", "raw", 0.65, "no-op, sync: rate of raw's"),
    share("async", "raw", 0.65, "no-op, async: rate of raw's"),
    share("sync", "go", 1.5, "no-op, sync: rate of the Go library's", "×"),
    share("async", "go", 1.5, "no-op, async: rate of the Go library's", "×"),
    over("sync-fair", "raw", 10, "with `fair_by`, 100 tenants: processor time over raw"),
    share("failing", "sync", 0.80, "10 % failing: rate of no-op's", of_edition=True),
    share("reroute", "raw-reroute", 1.05, "reroute: rate of the raw loop's"),
    share("route", "raw-route", 2.00, "route: rate of the raw loop's"),
    share("slots", "slots-sketch", 0.99, "100 async handlers of 10 ms: rate of the sketch's"),
    Bar("a flood read through: handled or moved, of the raw rerouting loop", 1.10, True, "%", _flood),
    Bar("F2, quiet p99 once the flood is in: over idle", 10, False, "ms", _quiet("settled", over_idle=True)),
    Bar("F2, quiet p99 over the whole minute", 250, False, "ms", _quiet("whole", over_idle=False)),
    Bar("idle, 12 lanes: of a core", 0.005, False, "%", _idle),
    Bar("Spark source: rate of plain Python reader loops", 2.0, True, "×", _spark),
    _fall_back("sync"),
    _fall_back("async"),
    _fall_back("reroute"),
    over("audit", "sync", 3, "audit records: processor time over none"),
)


def bars(records: Iterable[Record]) -> list[str]:
    """The table of bars."""
    return bar_rows(BARS, Results(records), signed=True)


def _cell(values: Sequence[float], digits: int = 0) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


ORDER = (
    "raw", "sync", "async", "sync-fair", "go", "failing", "raw-failing", "audit", "slots-sketch", "slots", "raw-reroute", "reroute", "raw-route", "route",
)  # fmt: skip


def _place(arm: str) -> tuple[int, str]:
    """Sort key of an arm in a table: the order of ORDER; a variant follows the arm that it varies."""
    named = [number for number, name in enumerate(ORDER) if arm == name or arm.startswith(f"{name}-")]
    return max(named, default=len(ORDER)), arm


def arms(records: Iterable[Record]) -> list[str]:
    """Returns the table of the arms of throughput.py and of the kinds of flood: median, minimum and maximum of each
    figure.
    """
    found = Results(records)
    head = "| arm | messages | µs CPU a message | a second | from the first message on: µs CPU, a second | MiB |"
    lines = [head, "|---|---|---|---|---|---|"]
    for arm in sorted(found.arms("throughput"), key=_place):
        runs = found.of("throughput", arm)
        steady = [run["steady"] for run in runs if "steady" in run]
        after = (
            f"{_cell([one['cpu_us'] for one in steady], 1)}, {_cell([one['rate'] for one in steady])}" if steady else ""
        )
        lines.append(
            f"| `{arm}` | {runs[0]['messages']:,} | {_cell([run['cpu_us'] for run in runs], 1)} |"
            f" {_cell([rate(run) for run in runs])} | {after} | {max(run['rss_mib'] for run in runs)} |"
        )
    for arm in found.arms("readthrough"):
        runs = found.of("readthrough", arm)
        costs = _cell([run["cpu_s"] / passed(run) * 1e6 for run in runs], 1)
        name = f"flood, {'`ours`' if arm == 'ours' else f'`{arm}`'}"
        lines.append(
            f"| {name} | {max(run['read'] for run in runs):,} | {costs} | {_cell([rate(run) for run in runs])} | | |"
        )
    return lines


def summary(records: Iterable[Record]) -> list[str]:
    """The consumer's rows of the project's own page."""
    found = Results(records)
    lines = ["| | consumer | the client's own loop in Python | of its rate | Go library |", "|---|---|---|---|---|"]

    def cell(arm: str) -> str:
        cost, speed = found.cpu(arm), found.rate(arm)
        return "" if cost is None or speed is None else f"{speed:,.0f}/s, {cost:.1f} µs"

    for row, arm, base, other in (
        ("handler that does nothing", "sync", "raw", "go"),
        ("async handler that does nothing", "async", "raw", "go"),
        ("move a message to a lane with a due time", "reroute", "raw-reroute", ""),
        ("transfer a message to another topic", "route", "raw-route", ""),
    ):
        part = _quotient(found.rate(arm), found.rate(base))
        of = "" if part is None else f"{part:.0%}".replace("%", " %")
        lines.append(f"| {row} | {cell(arm)} | {cell(base)} | {of} | {cell(other) if other else ''} |")
    return lines


def workers(records: Iterable[Record]) -> list[str]:
    """Returns the table of rates and costs by number of worker processes."""
    found = Results(records)
    lines = ["| arm | `--workers` | a second | of one worker's | µs CPU a message |", "|---|---|---|---|---|"]
    for arm in sorted(found.arms("workers")):
        runs = found.of("workers", arm)
        kind, _, count = arm.rpartition("-")
        of_one = _quotient(found.median("workers", arm, rate), found.median("workers", f"{kind}-1", rate))
        part = "–" if of_one is None else f"{of_one:.2f} ×"
        costs = _cell([run["cpu_us"] for run in runs], 1)
        lines.append(f"| `{kind}` | {count} | {_cell([rate(run) for run in runs])} | {part} | {costs} |")
    return lines


def about(records: Iterable[Record]) -> list[str]:
    """Returns the table of the measurements: program, date, commits, rounds, and the other load of the machine."""
    found = Results(records)
    lines = ["| program | measured | commit | before | rounds | load | cores |", "|---|---|---|---|---|---|---|"]
    for program in sorted(found.programs):
        runs = found.of_program(program)
        loads = [run.get("machine_load", run.get("load")) for run in runs]
        numbers = [load for load in loads if isinstance(load, float)]
        load = f"{min(numbers):.1f} to {max(numbers):.1f}" if numbers else ""
        commits = {run["arm"].endswith(OLD): run["commit"] for run in runs}
        rounds = max(run["round"] for run in runs) + 1
        lines.append(
            f"| {program} | {runs[0]['run'][:10]} | {commits.get(False, '')} | {commits.get(True, '–')} | {rounds} | {load} |"
            f" {max(run.get('cores') or 0 for run in runs)} |"
        )
    return lines


def _last(records: Iterable[Record], *keys: str) -> list[Record]:
    """The last record of each kind, in the order of the first ones."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        found[tuple(record[key] for key in keys)] = record
    return list(found.values())


def fairness(records: Iterable[Record]) -> list[str]:
    """How long quiet tenants wait, under each load and arm: the last run of each."""
    head = "| load | arm | before the flood p50 / p99 | whole watch p50 / p99 / max | once the flood is in p99 | a second, all tenants | load of the machine |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for one in sorted(_last(records, "load", "arm"), key=lambda record: record["load"]):
        idle, whole = one["idle"], one["whole"]
        lines.append(
            f"| {one['load']} | `{one['arm']}` | {idle['p50']:,.0f} / {idle['p99']:,.0f} |"
            f" {whole['p50']:,.0f} / {whole['p99']:,.0f} / {whole['max']:,.0f} | {one['settled']['p99']:,.0f} |"
            f" {one['total_a_second']:,} | {one['machine_load']:.1f} |"
        )
    return lines


def lateness(records: Iterable[Record]) -> list[str]:
    """Milliseconds after they are due, of each wait and arm: the last run of each."""
    lines = ["| wait | arm | least | p50 | p99 | max |", "|---|---|---|---|---|---|"]
    for one in _last(records, "delay", "arm"):
        cells = " | ".join(f"{one[f'{name}_ms']:.1f}" for name in ("min", "p50", "p99", "max"))
        lines.append(f"| {one['delay']} | {one['arm']} | {cells} |")
    return lines


def footprint(records: Iterable[Record]) -> list[str]:
    """Processor and memory: the last run of each arm."""
    lines = ["| | of a core | resident MiB | messages held |", "|---|---|---|---|"]
    for one in _last(records, "arm"):
        core = f"{one['core_percent']} %" if "core_percent" in one else ""
        lines.append(f"| `{one['arm']}` | {core} | {one['rss_mib']} | {one.get('held', '')} |")
    return lines


class Table(NamedTuple):
    """A table of a page: the file of its records, and what makes it."""

    file: str
    lines: Callable[[list[Record]], list[str]]


TABLES: dict[str, Table] = {
    "about": Table("bars.jsonl", about),
    "bars": Table("bars.jsonl", bars),
    "arms": Table("bars.jsonl", arms),
    "summary": Table("bars.jsonl", summary),
    "workers": Table("bars.jsonl", workers),
    "fairness": Table("fairness.jsonl", fairness),
    "lateness": Table("lateness.jsonl", lateness),
    "footprint": Table("footprint.jsonl", footprint),
}


def filled(text: str, read: Callable[[str], list[Record]]) -> str:
    """A page with every table of it made anew, between `<!-- bars.py: NAME -->` and `<!-- end -->`. `read`: records of a file.
    Raises KeyError for a name that is none.
    """
    return fill(text, "bars.py", {name: partial(_lines, table, read) for name, table in TABLES.items()})


def _lines(table: Table, read: Callable[[str], list[Record]]) -> list[str]:
    return table.lines(read(table.file))

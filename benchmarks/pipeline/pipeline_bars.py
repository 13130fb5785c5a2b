"""Bars of the pipeline as a table, from the raw results beside this program. Pure but for `main`.

    python benchmarks/pipeline/pipeline_bars.py             # prints the table
    python benchmarks/pipeline/pipeline_bars.py --write     # puts it into README.md here

A session is what one call of a program has measured: a line for the machine with the program's options, and one for each run. Of each bar
the last session that has its figure counts, and the one before that is the column "before". Sessions beside other work do not count:
bars are of a quiet machine, but for memory, which does not depend on it. Values are medians of a session's runs.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bar_rows import NEW, Bar, Record, bar_rows, fill

HERE = Path(__file__).parent
QUIET = 4.0  # load of the machine, up to which a session counts
ANY = float("inf")
RECALL_RATE, RECALL_SHARE = 15_000, 0.95  # letters a second of one lane, or a part of a slower loop's beside it
Reads = Callable[[str], list[Record]]


class Session(NamedTuple):
    """`about`: options of the program; `runs`: what it measured."""

    about: Record
    runs: list[Record]

    @property
    def load(self) -> float:
        """Load of the machine: the larger of the load before the session and the median load during its runs, if that
        was recorded.
        """
        during = [one["load"] for one in self.runs if "load" in one]
        return max(self.about.get("load_before", 0.0), statistics.median(during) if during else 0.0)

    def median(self, arm: str, name: str, since: int = 0) -> float | None:
        """Returns the median of a figure over the runs of one arm, from round `since` on. None if there are no runs."""
        found = [one[name] for one in self.runs if one.get("arm") == arm and one.get("round", 0) >= since]
        return statistics.median(found) if found else None


def sessions(records: Iterable[Record]) -> list[Session]:
    """Returns the sessions in the order of their measurement. If a program writes no line about the machine, each of
    its runs is a session.
    """
    found: list[Session] = []
    for one in records:
        if "machine" in one:
            found.append(Session(one["machine"], []))
        elif "at" in one:
            found.append(Session(one, [one]))
        else:
            found[-1].runs.append(one)
    return found


def figure(
    file: str,
    value: Callable[[Session], float | None],
    read: Reads,
    edition: str,
    *,
    loads: float = QUIET,
) -> float | None:
    """Returns the value of the last session that has one; of the session before that for the edition OLD. Sessions at a
    load above `loads` are left out. None if there is no such session.
    """
    quiet = [one for one in sessions(read(file)) if one.load <= loads]
    values = [found for one in quiet if (found := value(one)) is not None]
    last = 1 if edition == NEW else 2
    return values[-last] if len(values) >= last else None


def _quotient(left: float | None, right: float | None) -> float | None:
    return None if left is None or not right else left / right


def _arm(arm: str, name: str, since: int = 0, **options: Any) -> Callable[[Session], float | None]:
    """Median of a figure of one arm, of sessions with these options."""

    def value(one: Session) -> float | None:
        return one.median(arm, name, since) if options.items() <= _plain(one.about) else None

    return value


def _plain(about: Record) -> Any:
    return {name: value for name, value in about.items() if isinstance(value, (int, float, str))}.items()


def _source(arms: Sequence[str]) -> Callable[[Session], float | None]:
    """The best of these arms' rates, of that of plain readers."""

    def value(one: Session) -> float | None:
        rates = [found for arm in arms if (found := _arm(arm, "rate", messages=1_000_000)(one)) is not None]
        return _quotient(max(rates, default=None), one.median("reader", "rate"))

    return value


def _typed(one: Session) -> float | None:
    """Returns the seconds of audit and rollup in one session. Earlier editions did not measure this arm: for them, the
    sum of the two commands. None without these.
    """
    together = _arm("kodoctl both", "seconds", messages=3_000_000)(one)
    if together is not None:
        return together
    both = [_arm(f"kodoctl {name}", "seconds", messages=3_000_000)(one) for name in ("audit", "rollup")]
    return None if None in both else sum(both)  # type: ignore[arg-type]


def _increments(one: Session) -> float | None:
    options = {"messages": 30_000_000, "new": 100_000}
    return _quotient(_arm("new", "seconds", **options)(one), _arm("alone", "seconds", **options)(one))


def _upkeep(name: str, one: Session) -> float | None:
    """A figure after 2,000 batches at least, of that after 20."""
    costs = {run["batches"]: run[name] for run in one.runs if isinstance(run.get(name), float)}
    most = max(costs, default=0)
    return _quotient(costs[most], costs.get(20)) if most >= 2_000 else None


def _recall(one: Session) -> float | None:
    """Returns the rate of one lane as a quotient of the required rate, which depends on the loop measured in the same
    run. None for runs with several lanes.
    """
    if one.about.get("lanes") != 1:
        return None
    asked = min(RECALL_RATE, RECALL_SHARE * one.about["loop_per_second"])
    return _quotient(sum(one.about["lane_per_second"].values()), asked)


def _plan(one: Session) -> float | None:
    """MiB that a plan of ten million takes at most, to be made or to be carried out."""
    if one.about.get("letters") != 10_000_000:
        return None
    return float(max(one.about[step]["peak_mib"] for step in ("plan", "read")))


def _heap(one: Session) -> float | None:
    """MiB that Java's heap, behind a full collection, grew a run, behind the first fifth of at least 300 runs."""
    rounds = [run for run in one.runs if run.get("arm") == "standing"]
    heaps = [(run["round"], run["heap"]) for run in rounds if "heap" in run and run["round"] >= len(rounds) / 5]
    return (
        statistics.linear_regression(*zip(*heaps, strict=True)).slope if len(rounds) >= 300 and len(heaps) > 1 else None
    )


def _bar(
    row: str,
    bar: float,
    unit: str,
    file: str,
    value: Callable[[Session], float | None],
    *,
    least: bool = False,
    loads: float = QUIET,
) -> Bar:
    """`loads`: see `figure`."""
    return Bar(row, bar, least, unit, partial(figure, file, value, loads=loads))


BARS: Sequence[Bar] = (
    _bar(
        "`pipeline run` of 5,000 messages, start included",
        25,
        "s",
        "run.jsonl",
        _arm("first", "seconds", messages=5_000),
    ),
    _bar(
        "a further run in a standing session, 4 new messages",
        3,
        "s",
        "run.jsonl",
        _arm("standing", "seconds", 1, new=4),
    ),
    _bar("300 runs in one session: growth of Java's heap a run", 0.5, "MiB", "run.jsonl", _heap, loads=ANY),
    _bar("`make demo-pipeline`", 150, "s", "run.jsonl", _arm("demo", "seconds")),
    *(
        _bar(f"{name} after 2,000 small batches, of one after 20", 1.3, "×", "upkeep.jsonl", partial(_upkeep, figure))
        for name, figure in (
            ("a batch", "batch processor"),
            ("an audit", "audit"),
            ("an audit with its page", "report"),
        )
    ),
    _bar(
        "audit of 100,000 new behind 30,000,000 in 300 batches, of these alone",
        1.5,
        "×",
        "increments.jsonl",
        _increments,
    ),
    _bar("audit of 3,000,000, warm", 10, "s", "audit.jsonl", _arm("spark audit", "seconds", messages=3_000_000)),
    _bar("audit and rollup of 3,000,000 as typed, together", 45, "s", "audit.jsonl", _typed),
    *(
        _bar(
            f"source, {count} split{'s' * (count > 1)}: of plain readers",
            0.9,
            "%",
            "source.jsonl",
            _source([f"native-{count}", f"spark-{count}"]),
            least=True,
        )
        for count in (1, 2, 8)
    ),
    _bar(
        "source, native: of plain readers",
        2,
        "×",
        "source.jsonl",
        _source([*(f"native-{count}" for count in (1, 2, 8)), *(f"spark-{count}" for count in (1, 2, 8))]),
        least=True,
    ),
    _bar("ingest of 1,000,000", 80_000, "/s", "ingest.jsonl", _arm("ingest", "rate", messages=1_000_000), least=True),
    _bar(
        "recall, one lane: of 15,000 letters a second, or of 95 % of a slower loop",
        1,
        "%",
        "recall.jsonl",
        _recall,
        least=True,
    ),
    _bar("plan of 10,000,000 letters: memory", 400, "MiB", "plan_memory.jsonl", _plan, loads=ANY),
)


def about(read: Reads) -> list[str]:
    """Returns a table with the date, the commit and the machine's load for the last session of each program."""
    lines = ["| results | measured | commit | load before |", "|---|---|---|---|"]
    for name in dict.fromkeys(one.value.args[0] for one in BARS):  # type: ignore[attr-defined]
        if found := sessions(read(name)):
            last = found[-1].about
            cells = last.get("at", "before 26 November 2026"), last.get("commit", ""), last.get("load_before", "")
            lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return lines


def read(name: str) -> list[Record]:
    """Records of a file of this folder; none where nothing was measured."""
    file = HERE / name
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def filled(text: str, read: Reads) -> str:
    """A page with its table made anew."""
    return fill(text, "pipeline_bars.py", {"bars": partial(bar_rows, BARS, read), "about": partial(about, read)})


def main() -> None:
    if "--write" in sys.argv[1:]:
        page = HERE / "README.md"
        page.write_text(filled(page.read_text("utf-8"), read), encoding="utf-8")
    else:
        print("\n".join([*bar_rows(BARS, read), "", *about(read)]))


if __name__ == "__main__":
    main()

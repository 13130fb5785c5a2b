"""Bars of benchmarks as rows of a table, and pages whose tables are made of raw results alone: no figure in a README is typed by
hand. Pure: records in, text out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

NEW, OLD = "", "-before"
Record = dict[str, Any]


class Bar(NamedTuple):
    """A row: `value` is read for each edition (NEW, OLD) of whatever the results are, and compared with `bar`."""

    row: str
    bar: float
    least: bool  # the value is at least the bar, or at most
    unit: str  # "µs", "ms", "s", "/s", "MiB", "%" or "×"
    value: Callable[[Any, str], float | None]

    def is_met(self, value: float) -> bool:
        return value >= self.bar if self.least else value <= self.bar

    def text(self, value: float | None, *, signed: bool = False) -> str:
        if value is None:
            return "–"
        match self.unit:
            case "%":
                return f"{value * 100:.{0 if value >= 0.1 else 2}f} %"
            case "×":
                return f"{value:.2f} ×"
            case "/s":
                return f"{value:,.0f} /s"
            case _:
                return f"{value:{'+' if signed else ''}.1f} {self.unit}"

    @property
    def bar_text(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.bar * (100 if self.unit == '%' else 1):g} {self.unit}"


def bar_rows(bars: Iterable[Bar], results: Any, *, signed: bool = False) -> list[str]:
    """The table of bars. `signed`: figures are differences."""
    lines = ["| | bar | before | now | |", "|---|---|---|---|---|"]
    for one in bars:
        value = one.value(results, NEW)
        end = "not measured" if value is None else "met" if one.is_met(value) else "**missed**"
        before = one.text(one.value(results, OLD), signed=signed)
        lines.append(f"| {one.row} | {one.bar_text} | {before} | {one.text(value, signed=signed)} | {end} |")
    return lines


def fill(text: str, program: str, lines: Mapping[str, Callable[[], list[str]]]) -> str:
    """A page with every table of it made anew, between `<!-- PROGRAM: NAME -->` and `<!-- end -->`. Raises KeyError for a name
    that is none.
    """
    parts = text.split(f"<!-- {program}: ")
    for number, part in enumerate(parts[1:], 1):
        name = part.partition(" -->")[0]
        rest = part.partition("<!-- end -->")[2]
        parts[number] = "\n".join([f"{name} -->", *lines[name](), f"<!-- end -->{rest}"])
    return f"<!-- {program}: ".join(parts)

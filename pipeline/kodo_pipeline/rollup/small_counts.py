"""Counted tables made by Arrow, for few rows, because Spark takes longer to plan a query for each table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.tables import LATENCIES, ROLLUP, SENT, Table

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS: Final = LATENCIES.names[:-2]


def small_counts(detailed: pa.Table) -> dict[Table, pa.Table]:
    """Sums up `detailed`, the result of kodo_pipeline.rollup.transforms.detailed_counts, to the rows of each counted
    table of windows.
    """
    import pyarrow.compute as pc

    counts = {name: name for name in ROLLUP.names if name not in _KEYS}
    return {
        ROLLUP: _sums(detailed, _KEYS, counts),
        LATENCIES: _sums(detailed.filter(pc.field("bucket").is_valid()), LATENCIES.names[:-1], {"messages": "done"}),
        SENT: _sums(detailed.filter(pc.field("sent") > 0), SENT.names[:-1], {"messages": "sent"}),
    }


def _sums(rows: pa.Table, keys: Sequence[str], counts: Mapping[str, str]) -> pa.Table:
    """Sums the rows of each key into one. `counts`: name of the summed column, by name of the sum."""
    added = rows.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in counts.values()])
    return added.select([*keys, *(f"{name}_sum" for name in counts.values())]).rename_columns([*keys, *counts])

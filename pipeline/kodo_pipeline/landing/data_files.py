"""Data files of Delta tables, as values: path, partition and statistics, as Delta's `add` actions have them. Reads and
writes no file.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyarrow.parquet import FileMetaData

    from kodo_pipeline.landing.tables import Table

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"  # how a path says null
_LONGEST: Final = 64  # characters of a text among statistics: a longer one would have to be cut, and tells no more
_BATCH: Final = re.compile(r"^(\d{9})-")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table. `path`: relative to the folder of its table; `partition`: text value of each partition
    column, None: null; `since`, `until`: first and last value of the table's time column (`Table.moment`) in ms since
    the epoch, None: unknown; `stats`: Delta's statistics as JSON, "" if the file was found in a table's log.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    since: int | None = None
    until: int | None = None
    stats: str = ""

    @property
    def batch(self) -> int:
        """Number of the batch, or of the last batch of a merged file, from the name of the file's first folder; -1 for
        a file without rows of an ingest.
        """
        found = _BATCH.match(self.path)
        return int(found[1]) if found else -1

    def touches(self, since: int | None, until: int | None) -> bool:
        """True if the file may have rows whose time is from `since` to before `until` (ms since the epoch), also if its
        times are unknown. None: no bound.
        """
        late = until is not None and self.since is not None and self.since >= until
        early = since is not None and self.until is not None and self.until < since
        return not late and not early

    def to_json(self) -> dict[str, Any]:
        """Returns the fields of the file as a commit of the landing stores them."""
        return asdict(self)

    def to_action(self, *, change: bool = True) -> AddAction:
        """The `add` action for delta-rs. `change`: False if the rows of the file were in the table before."""
        from deltalake.transaction import AddAction

        return AddAction(self.path, self.size, dict(self.partition), int(time.time() * 1000), change, self.stats)


def partition_path(partition: Mapping[str, str | None]) -> str:
    """Folders of a partition as Hive names them, such as `date=2026-01-31/topic=orders/`, with a slash at the end."""
    return "".join(
        f"{name}={NO_VALUE if value is None else quote(value, safe='')}/" for name, value in partition.items()
    )


def partition_of(path: str, table: Table) -> dict[str, str | None]:
    """Values of the partition columns in a path that is relative to the table's folder; the inverse of
    `partition_path`.
    """
    named = dict(one.split("=", 1) for one in path.split("/")[:-1] if "=" in one)
    return {name: None if named[name] == NO_VALUE else unquote(named[name]) for name in table.partitions}


def of_metadata(path: str, size: int, about: FileMetaData, table: Table) -> DataFile:
    """Makes the DataFile of a file that was just written. `about`: footer of the file, which has the statistics."""
    lowest, highest, nulls = _statistics(about)
    stats = {"numRecords": about.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    since, until = (_to_ms(values.get(table.moment or "")) for values in (lowest, highest))
    texts = {name: {key: _text(one, up=up) for key, one in values.items()}
             for name, values, up in (("minValues", lowest, False), ("maxValues", highest, True))}  # fmt: skip
    return DataFile(path, size, about.num_rows, partition_of(path, table), since, until, json.dumps(stats | texts))


def of_add(row: Mapping[str, Any], table: Table) -> DataFile:
    """Makes the DataFile of a file in a table, from a row of delta-rs' get_add_actions(flatten=True). Raises ValueError
    if the row lacks the number of rows, because the file would then count as empty.
    """
    if row["num_records"] is None:
        raise ValueError(f"{unquote(row['path'])} has no number of rows: something else added it, without statistics")
    partition = {
        name: None if (found := row.get(f"partition.{name}")) is None else str(found) for name in table.partitions
    }
    since, until = (_to_ms(row.get(f"{end}.{table.moment}")) for end in ("min", "max"))
    return DataFile(unquote(row["path"]), row["size_bytes"], row["num_records"], partition, since, until)


def _statistics(about: FileMetaData) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Returns (lowest values, highest values, numbers of nulls), each by column: of columns without fields of their
    own, if all row groups have statistics.
    """
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(about.num_columns):
        groups = [about.row_group(group).column(index) for group in range(about.num_row_groups)]
        found = [one.statistics for one in groups]
        if not groups or "." in groups[0].path_in_schema or any(one is None or not one.has_null_count for one in found):
            continue
        name = groups[0].path_in_schema
        nulls[name] = sum(one.null_count for one in found)
        valued = [one for one in found if one.num_values]
        if valued and all(one.has_min_max and _is_plain(one.min) and _is_plain(one.max) for one in valued):
            lowest[name], highest[name] = min(one.min for one in valued), max(one.max for one in valued)
    return lowest, highest, nulls


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST
    return isinstance(value, (int, float, datetime)) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - NaN


def _text(value: Any, *, up: bool) -> Any:
    """Returns a bound in the format of Delta's statistics. Times become text in whole milliseconds, rounded outward: up
    if `up`, else down.
    """
    if not isinstance(value, datetime):
        return value
    ms = _to_ms(value) or 0
    ms += up and value.microsecond % 1000 > 0
    seconds, rest = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def _to_ms(value: datetime | None) -> int | None:
    if value is None:
        return None
    whole = value if value.tzinfo else value.replace(tzinfo=UTC)
    return int(whole.replace(microsecond=0).timestamp()) * 1000 + value.microsecond // 1000

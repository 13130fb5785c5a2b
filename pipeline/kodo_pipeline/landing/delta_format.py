"""Format of a Delta table that this kodoctl can read and write: protocol, columns, partitions. Any other format is
refused, because rows might be read wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kodoctl.errors import KodoctlError, error

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

    from kodo_pipeline.landing.tables import Table

_ELSEWHERE: Final = "use the kodoctl that wrote it, or land elsewhere with --landing"
_CONVERT: Final = "`kodoctl pipeline convert` adds them"
_READER, _WRITER, _FEATURES_SINCE = 1, 2, (3, 7)
_FEATURES: Final = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""Versions of the protocol that we can read, and features of the later one that change nothing for us. We read data
files ourselves: a table with a feature that says how to read them, such as deletionVectors, is refused.
"""


def delta_schema(table: Table) -> Schema:
    """Schema of the table for Delta."""
    from deltalake import Schema

    return Schema.from_arrow(table.delta())


def check_format(found: DeltaTable, table: Table, uri: str) -> None:
    """Raises KodoctlError (K584) if this kodoctl cannot read the table `found`: it has an unknown protocol or feature,
    or other columns, types or partition columns than `table`.
    """
    protocol = found.protocol()
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _FEATURES
    if features or not _is_plain(reader, writer):
        asks = f"reader {reader}, writer {writer}" + (f", {', '.join(sorted(features))}" if features else "")
        raise _refusal(uri, f"its Delta protocol ({asks}) is newer than this kodoctl's")
    ours = {one.name: one.type for one in delta_schema(table).fields}
    theirs = {one.name: one.type for one in found.schema().fields}
    if unknown := sorted(theirs.keys() - ours.keys()):
        raise _refusal(uri, f"it has {', '.join(unknown)}, which a newer kodoctl wrote")
    if missing := missing_columns(found, table):
        if may_lack(table, missing):
            raise _refusal(uri, f"it has no {', '.join(missing)}: an older kodoctl made it", _CONVERT)
        raise _refusal(uri, f"it has no {', '.join(missing)}: an older kodoctl, or something else, made it")
    if changed := sorted(name for name, kind in ours.items() if theirs[name] != kind):
        raise _refusal(
            uri, f"its {', '.join(changed)} are of another type: another kodoctl, or something else, made it"
        )
    if sorted(found.metadata().partition_columns) != sorted(table.partitions):
        raise _refusal(uri, "it has other partition columns")


def missing_columns(found: DeltaTable, table: Table) -> list[str]:
    """Sorted names of the columns of `table` that the Delta table does not have."""
    theirs = {one.name for one in found.schema().fields}
    return sorted(one.name for one in delta_schema(table).fields if one.name not in theirs)


def may_lack(table: Table, names: Iterable[str]) -> bool:
    """True if all these columns may be null, so that a table of an older kodoctl may lack them."""
    return {one.name for one in table.columns if one.null}.issuperset(names)


def _refusal(uri: str, why: str, remedy: str = _ELSEWHERE) -> KodoctlError:
    return KodoctlError(error("K584", "the landing has another format", f"{uri}: {why}; {remedy}"))


def _is_plain(reader: int, writer: int) -> bool:
    since_reader, since_writer = _FEATURES_SINCE
    return reader in {_READER, since_reader} and (writer <= _WRITER or writer == since_writer)

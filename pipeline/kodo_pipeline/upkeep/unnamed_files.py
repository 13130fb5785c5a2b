"""Removal of files in a table's folder that the table does not name: replaced files, and files of killed runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.tables import COMMITS, Table

if TYPE_CHECKING:
    from kodo_pipeline.landing.landing_store import Landing


YOUNG: Final = 24
"""Hours that a file stays which no commit has named yet, because a run that wrote it may still be about to name it."""


def remove_unnamed(landing: Landing, table: Table, retain: int, *, loose: int = YOUNG) -> list[int]:
    """Removes files that the table has not named for `retain` hours, and files older than `loose` hours that it never
    named; then empty folders. Returns the sizes of the removed files in bytes.
    """
    place = landing.table(table)
    there = place.folder.written()  # first: what is named later is younger than `retain`
    named = {
        one.path for one in (place.version().files if table is COMMITS else landing.snapshot(table).files[table.name])
    }
    replaced, old = set(place.replaced()), set(place.replaced(retain))
    before = time.time() - 3600 * loose
    gone = {
        name: one.size
        for name, one in there.items()
        if not name.startswith("_delta_log/") and (_data(name) in old - named or
        (_data(name) not in named | replaced and one.at <= before))
    }  # fmt: skip
    place.folder.delete(gone)
    place.folder.prune()
    return list(gone.values())


def _data(name: str) -> str:
    """Path of the data file to which a checksum file of Hadoop belongs; for any other file its own path."""
    folder, _, last = name.rpartition("/")
    if last.startswith(".") and last.endswith(".crc"):
        last = last[1 : -len(".crc")]
    return f"{folder}/{last}" if folder else last

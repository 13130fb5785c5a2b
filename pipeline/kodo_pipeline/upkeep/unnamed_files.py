"""Files below a table that it does not name: those that others replaced, and what killed runs left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kodo_pipeline.landing.tables import COMMITS, Table

if TYPE_CHECKING:
    from kodo_pipeline.landing.landing_store import Landing


YOUNG: Final = 24
"""Hours that a file stays which no commit named yet: a run that wrote it may be about to name it."""


def remove_unnamed(landing: Landing, table: Table, retain: int, *, loose: int = YOUNG) -> list[int]:
    """Removes files that the table names no more since `retain` hours, or never named since `loose` hours. Sizes of those
    that were removed.
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
    """The data file that a checksum of Hadoop's is about; any other file is its own."""
    folder, _, last = name.rpartition("/")
    if last.startswith(".") and last.endswith(".crc"):
        last = last[1 : -len(".crc")]
    return f"{folder}/{last}" if folder else last

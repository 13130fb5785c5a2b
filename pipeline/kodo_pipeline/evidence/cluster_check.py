# adapter: reads the broker and the landing
"""Check that a cluster is the one from which a landing was read: on another cluster the same positions have other
messages.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from kodo_pipeline.evidence.cursors import partition_histories
from kodo_pipeline.landing.landing_commits import HISTORY
from kodo_pipeline.landing.tables import CURSORS
from kodo_pipeline.source.partition_stats import PartitionMetadata, histories
from kodoctl.errors import KodoctlError, error
from kodoctl.text.formatting import many
from kodoctl.topology.names import partition_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kodo_pipeline.evidence.partition_history import Key
    from kodo_pipeline.landing.landing_store import Landing
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.topology.expand import Expansion

_AT_ONCE: Final = 8  # topics


def must_be_same_cluster(landing: Landing, now: Mapping[str, PartitionMetadata]) -> None:
    """Raises KodoctlError (K589) if every partition in the newest metadata of the landing was created at another time
    than the partition that exists now: then this is another cluster, or all topics were deleted and created again.
    `now`: metadata by full name of the partition. Partitions that only one of the two has, or without a known creation
    time, are ignored; if no others are left, nothing is raised. The newest metadata is that of the newest ingest, which
    need not have been completed. Raises KodoctlError also if the landing cannot be read.
    """
    _check(landing, _newest_look(landing), now)


def same_partitions(landing: Landing, admin: Admin, expansion: Expansion, found: Mapping[Key, int]) -> dict[Key, int]:
    """Filters `found`, a value per partition: partitions of the topology that were created again since the newest
    ingest began are left out; those without a known creation time stay. Raises KodoctlError: K589, as
    `must_be_same_cluster`, if all of those in `found` were created again, as on another cluster; ClusterError if the
    cluster does not answer.
    """
    listed = [(topic.name, [number for name, number in found if name == topic.name.full]) for topic in expansion.topics]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        known = list(pool.map(lambda one: histories(admin, *one) if one[1] else {}, listed))
    now = {
        partition_name(topic.full, number): made
        for (topic, _), parts in zip(listed, known, strict=True)
        for number, made in parts.items()
    }
    looks = _newest_look(landing)
    _check(landing, looks, now)
    others = {part for part, made in now.items() if made.is_another_than(looks.get(part))}
    return {key: fact for key, fact in found.items() if partition_name(*key) not in others}


def _newest_look(landing: Landing) -> dict[str, PartitionMetadata]:
    """Returns the partition metadata that the newest run recorded, by partition name. The run need not have finished.
    Empty if no run recorded cursors.
    """
    looks = [
        one for one in landing.commits() if one.batch is None and CURSORS.name in one.tables and one.run != HISTORY
    ]
    return partition_histories(landing.rows(CURSORS, "ingest_run", looks[-1].run) if looks else ())


def _check(landing: Landing, looks: Mapping[str, PartitionMetadata], now: Mapping[str, PartitionMetadata]) -> None:
    both = [(looks[part], now[part]) for part in sorted(looks.keys() & now.keys())
            if looks[part].created is not None and now[part].created is not None]  # fmt: skip
    if both and all(found.is_another_than(then) for then, found in both):
        then, found = (f"{one.created:%Y-%m-%d %H:%M:%S}" for one in both[0])
        detail = (
            f"{landing.root.uri}: of {many(len(both), 'partition')} none is the one that was read: the first was made on {then}"
            f" UTC, and here on {found}\nthis is another cluster, or all topics were deleted and made again: name a landing"
            " of its own with --landing"
        )
        raise KodoctlError(error("K589", "the landing is of another cluster", detail))

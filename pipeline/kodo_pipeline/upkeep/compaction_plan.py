"""Plan of a compaction: groups of small files of one partition to merge into files of up to about 128 MB. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_pipeline.landing.data_files import DataFile

TARGET: Final = 128 * 1024 * 1024  # bytes of a file
_WORTH: Final = (
    4  # a file that is so many times the others together stays as it is: a row is rewritten a few times in all
)


def compaction_groups(
    files: Iterable[DataFile], floors: Sequence[int] = (), target: int = TARGET
) -> list[list[DataFile]]:
    """Groups of files to merge, each in order of batches. `floors`: numbers of batches up to which a rollup or an audit
    has counted: files before and after such a batch are not merged with each other, because counted rows would be read
    again with new ones. `target`: bytes of a merged file.
    """
    apart: dict[tuple[object, ...], list[DataFile]] = defaultdict(list)
    for one in files:
        if one.size < target // 2:
            side = -1 if one.batch < 0 else sum(one.batch > floor for floor in floors)
            apart[(*sorted(one.partition.items(), key=str), side)].append(one)
    return [group for found in apart.values() for group in _pack_files(_worthwhile(found), target)]


def _worthwhile(files: list[DataFile]) -> list[DataFile]:
    """The files without large ones, for which the others together are too small to rewrite them."""
    kept = sorted(files, key=lambda one: one.size)
    rest = sum(one.size for one in kept)
    while kept and kept[-1].size > _WORTH * (rest - kept[-1].size):
        rest -= kept.pop().size
    return sorted(kept, key=lambda one: (one.batch, one.path))


def _pack_files(files: list[DataFile], target: int) -> list[list[DataFile]]:
    groups: list[list[DataFile]] = []
    size = target
    for one in files:
        if size + one.size > target:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one.size
    return [one for one in groups if len(one) > 1]

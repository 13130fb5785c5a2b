"""Dead letters for a recall by Spark: which partitions are read, before Spark starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_pipeline.recall.select_job import DeadLetterSelector

from kodoctl.errors import KodoctlError, RefusedError, UsageError
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest
from kodoctl.topology.names import HOLDER
from tests.unit.pipeline.source.test_partition_stats import cluster, stats
from tests.unit.recall.letters import DEAD, NOW, family

TOPIC = DEAD.rpartition("/")[2]


class Started(Exception):  # noqa: N818
    """Spark would start now."""


def select(tmp_path: Path, answers: Mapping[str, Any]) -> None:
    """Chooses among the dead letters of a file with two partitions of them."""
    asked = SelectionRequest(
        RecallAction.SEND, family(tmp_path, "{dead_letter: {partitions: 2}}"), parse("true", NOW), "r1", None, 100,
        again=False, edit=None,
    )  # fmt: skip

    def open_spark() -> Any:
        raise Started

    with cluster(answers) as admin:
        session: Any = SimpleNamespace(admin=admin, client=None)
        DeadLetterSelector(session, open_spark)(asked, LetterSelection(asked))


def dead_letters(count: int, *there: int) -> dict[str, Any]:
    """Answers of a cluster whose topic has `count` partitions, of which those in `there` exist."""
    parts = {f"{DEAD}-partition-{number}": stats(**{HOLDER: "7:0"}) for number in there}
    return {f"{TOPIC}/partitions": {"partitions": count}, f"{TOPIC}/partitioned-internalStats": {"partitions": parts}}


def test_all_partitions_of_the_file_are_read(tmp_path: Path) -> None:
    with pytest.raises(Started):
        select(tmp_path, dead_letters(2, 0, 1))


@pytest.mark.parametrize(
    ("answers", "kind", "text"),
    [
        (dead_letters(4, 0, 1, 2, 3), RefusedError, f"{TOPIC} has 4 partitions, 2 in the file"),
        (dead_letters(1, 0), RefusedError, f"{TOPIC} has 1 partition, 2 in the file"),
        (dead_letters(2, 0), UsageError, f"{DEAD}-partition-1"),
        ({}, UsageError, DEAD),
    ],
)
def test_other_partitions_than_those_of_the_file_are_refused_as_without_spark(
    tmp_path: Path, answers: dict[str, Any], kind: type[KodoctlError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        select(tmp_path, answers)

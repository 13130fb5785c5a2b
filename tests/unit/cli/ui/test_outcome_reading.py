"""Outcome of an action of the console: what a reading of its lanes proves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kodoctl.cli.ui import outcome_reading
from kodoctl.cli.ui.outcome_reading import OutcomeReading
from kodoctl.errors import UsageError, error
from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.topology.names import TopicName
from tests.unit.topology.topology_files import expanded

FILE = "topics:\n  J:\n    subscriptions:\n      s: {states: [retrying], retrying: {delays: [1s], attempts: 3}}\n"


class Target:
    """Target whose cluster has nothing to say."""

    @contextmanager
    def session(self) -> Iterator[Any]:
        yield SimpleNamespace(admin=None, client=None)


@pytest.mark.parametrize(("lacking", "handled", "unknown"), [("", 1, 0), ("J-s-RETRYING", 0, 1), ("J", 0, 1)])
def test_no_message_counts_as_handled_while_the_cluster_lacks_a_lane(
    lacking: str, handled: int, unknown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane that somebody had deleted with its messages was read as an empty one."""

    def partitions(_: object, topic: TopicName) -> list[str]:
        if topic.local == lacking:
            raise UsageError(error("K560", "topic not found on the cluster", f"{topic}"))
        return []

    monkeypatch.setattr(outcome_reading, "partitions_of", partitions)
    plan: Any = SimpleNamespace(letters=(), lanes=(), topic="J", subscription="s", action=RecallAction.SEND)
    target: Any = Target()
    reading = OutcomeReading(target, expanded(FILE), plan, 1, 0)
    reading._hops["one"] = 1
    found = reading()
    assert (found.handled, found.unknown, found.complete) == (handled, unknown, not lacking)
    assert found.text == (
        f"1 sent: 1 not known, because the cluster lacks {lacking}" if lacking else "1 sent: 1 handled"
    )

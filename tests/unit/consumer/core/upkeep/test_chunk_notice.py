"""Notice that messages come in chunks: once for each topic."""

from __future__ import annotations

from kodo_consumer.core.upkeep.chunk_notice import ChunkNotice
from kodo_consumer.core.values.broker import LaneStats
from kodo_consumer.core.values.effects import Alarm

from tests.unit.consumer.engine_bench import policy


def test_each_topic_is_told_of_once_as_soon_as_its_stats_say_so() -> None:
    told: list[Alarm] = []
    notice = ChunkNotice(told.append)
    first, second, *_ = policy().lanes
    for stats in (None, LaneStats(), LaneStats(chunks=True), LaneStats(chunks=True), None):
        notice(first, stats)
    notice(second, LaneStats(chunks=True))
    assert [(alarm.kind, alarm.text.partition(":")[0], alarm.severe) for alarm in told] == [
        ("chunks", first.topic.partition(":")[0], False), ("chunks", second.topic.partition(":")[0], False),
    ]  # fmt: skip
    assert first.topic in told[0].text

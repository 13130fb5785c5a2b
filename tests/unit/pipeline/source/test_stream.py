"""What a stream does where the ledger is gone at which it stood: it stops, goes on and says so, or knows that nothing went."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from kodo_pipeline.ingest.event_stream import EventStream
from kodo_pipeline.ingest.events import TopicRole
from kodo_pipeline.source.data_source import PulsarStream
from kodo_pipeline.source.options import Options
from kodo_pipeline.source.partition_stats import PartitionMetadata

from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import TopicName
from tests.unit.pipeline.evidence.test_readings import READY
from tests.unit.pipeline.source.test_partition_stats import answering

PART = f"{READY}-partition-0"
MADE = datetime(2026, 1, 1, tzinfo=UTC)
ROLES = {READY: TopicRole("orders", "L1", "ready", None, None)}
LIMIT = PulsarStream(Options(Connection(""), ())).getDefaultReadLimit()


def reloaded(*, rewrites: int = 4, made: datetime = MADE, messages: int = 0) -> dict[str, Any]:
    """A partition whose messages were all read, then trimmed; ledger 6 was opened, found empty on loading, and replaced."""
    stats = {
        "ledgers": [{"ledgerId": 7, "entries": 0, "size": 0}],
        "currentLedgerEntries": messages,
        "currentLedgerSize": 10 * messages,
        "lastConfirmedEntry": f"7:{messages - 1}",
    }
    info = {"creationDate": made.isoformat(), "version": rewrites + 1, "ledgers": [{"ledgerId": 7}]}
    return {
        "orders/partitions": {"partitions": 1},
        "orders/partitioned-internalStats": {"partitions": {PART: stats}},
        "orders/internal-info": {"partitions": {PART: info}},
    }


def options(url: str, *, strict: bool = True) -> Options:
    return Options(Connection(url), (TopicName.parse(READY),), strict=strict)


def stream(url: str, *, strict: bool = True, looks: dict[str, PartitionMetadata] | None = None) -> EventStream:
    return EventStream(options(url, strict=strict), ROLES, "r3", {}, looks or {})


def planned(made: PulsarStream, start: dict[str, str]) -> tuple[dict[str, str], list[tuple[str, int]]]:
    """The end of a batch, and its splits: (hole, entries)."""
    made.prepareForTriggerAvailableNow()
    end = made.latestOffset(start, LIMIT)
    splits = [one.value for one in made.partitions(start, end)]
    return end, [(split.hole, split.entries if split.pieces else 0) for split in splits]


@pytest.mark.parametrize("stood", ["6:-1", "5:100", "5:50"])
def test_where_nobody_knows_what_went_a_stream_stops_or_goes_on_with_a_hole_told_once(stood: str) -> None:
    start = {PART: f"{stood}:51"}
    why = f"ledger {stood[0]}, where reading stopped, is gone: what came behind may be gone unread"
    with answering(reloaded()) as server:
        with pytest.raises(ClusterError) as refused:
            planned(PulsarStream(options(server.url)), start)
        assert refused.value.diagnostics[0].detail == f"{PART}: {why}"
        lenient = PulsarStream(options(server.url, strict=False))
        end, splits = planned(lenient, start)
        assert (end, splits) == ({PART: "7:-1:51"}, [(why, 0)])
        assert [one.value.hole for one in lenient.partitions(start, start)] == [why], "whether or not it moved"
        assert planned(PulsarStream(options(server.url)), end) == (end, []), "strict again, and nothing is in its way"
        assert planned(PulsarStream(options(server.url)), {}) == ({PART: "-1:-1:0"}, []), (
            "nothing read, nothing to miss"
        )


def test_a_partition_that_is_left_stays_where_it_is_until_its_hole_is_accepted() -> None:
    start = {PART: "5:50:51"}
    with answering(reloaded()) as server:
        assert list(stream(server.url).holes(start)) == [PART]
        made = stream(server.url)
        made.left = {PART}
        assert planned(made, start) == (start, [])
        assert list(stream(server.url).holes(start)) == [PART]


@pytest.mark.parametrize("messages", [0, 3])
def test_an_empty_ledger_that_was_replaced_stops_nobody_who_looked_before(messages: int) -> None:
    with answering(reloaded(messages=messages)) as server:
        made = stream(server.url, looks={PART: PartitionMetadata(MADE, 3)})
        end, splits = planned(made, {PART: "6:-1:101"})
        assert end == {PART: f"7:{messages - 1}:{101 + messages}"}
        assert splits == ([("", messages)] if messages else [])


@pytest.mark.parametrize(
    ("known", "answers"),
    [
        (PartitionMetadata(MADE, 2), reloaded()),  # a ledger may have been deleted
        (PartitionMetadata(datetime(2025, 1, 1, tzinfo=UTC), 4), reloaded()),  # it was made again
        (PartitionMetadata(MADE, None), reloaded()),
        (PartitionMetadata(), reloaded()),
        (PartitionMetadata(MADE, 3), reloaded() | {"orders/internal-info": 403}),
    ],
)
def test_a_partition_that_may_have_lost_a_ledger_since_the_look_stops_the_stream(
    known: PartitionMetadata, answers: dict[str, Any]
) -> None:
    with answering(answers) as server, pytest.raises(ClusterError, match="K574"):
        planned(stream(server.url, looks={PART: known}), {PART: "6:-1:101"})


def test_a_batch_that_is_read_again_without_a_topic_of_it_says_so_where_the_file_has_left_it_out() -> None:
    left, gone = f"{READY}-billing-RETRYING-partition-0", f"{READY}-partition-3"
    with answering(reloaded(messages=3)) as server:
        made = stream(server.url)
        made.prepareForTriggerAvailableNow()
        splits = [one.value for one in made.partitions({}, {PART: "7:2:3", left: "7:3:4"})]
        assert [(split.topic, split.partition, split.hole) for split in splits] == [
            (
                f"{READY}-billing-RETRYING",
                0,
                "it was taken out of the file before its batch was complete, and not read to its end",
            ),
            (READY, 0, ""),
        ]
        with pytest.raises(ClusterError, match="it is not there any more"):
            made.partitions({}, {PART: "7:2:3", gone: "7:3:4"})
        assert not list(made.read(made.partitions({}, {left: "7:3:4"})[0])), "nothing is read, and nothing fails"

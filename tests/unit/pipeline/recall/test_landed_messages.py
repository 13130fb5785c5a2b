"""Lost messages as an attempt reads them from a landing, without Spark."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kodo_pipeline.evidence.audit_evidence import Cause
from kodo_pipeline.landing.tables import EVENTS
from kodo_pipeline.recall.landed_messages import (
    ERASED,
    LandedMessages,
    exclusion_reason,
    has_payload,
    moved_properties,
)

from kodoctl.protocol import properties as control
from kodoctl.protocol.signing import Signer
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import (
    ExclusionReason,
    LetterRef,
    PlannedLetter,
    PlannedPartition,
    RecallAction,
    RecallPlan,
)

READY = "persistent://kodo/trade/orders"
RETRYING = f"{READY}-billing-RETRYING"
AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
MS = 1_767_323_045_678


def event(topic: str, position: Position, payload: bytes | None = b"7", **columns: Any) -> dict[str, Any]:
    made = {
        "id": str(position), "msg_topic": topic, "payload": payload, "payload_state": None, "size": 1, "properties": [("uid", "u")], "key": None,
        "hop": 0, "level": "L1", "publish_ts": AT, "event_ts": None, "broken": None,
    }  # fmt: skip
    return made | columns


class Landing:
    def __init__(self, events: list[dict[str, Any]], moves: list[dict[str, Any]] = []) -> None:  # noqa: B006
        self.events, self.moves = events, moves

    def snapshot(self, *tables: Any) -> Any:
        return SimpleNamespace(files={table.name: [f"a file of {table.name}"] for table in tables})

    def table(self, table: Any) -> Rows:
        return Rows(table.name, self.events if table is EVENTS else self.moves)


class Rows:
    def __init__(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.name, self.rows = name, rows

    def rows_among(self, files: Any, column: str, values: Any, same: Any) -> list[dict[str, Any]]:
        assert files == [f"a file of {self.name}"], "those of the snapshot"
        kept = [row for row in self.rows if row[column] in set(values)]
        return [dict(row) for row in kept if all(row.get(name, value) == value for name, value in same.items())]


class Cluster:
    def __init__(self) -> None:
        self.locked: list[tuple[str, str]] = []
        self.closed = 0

    def lane(self, part: str, name: str) -> Cluster:
        self.locked.append((part, name))
        return self

    def close(self) -> None:
        self.closed += 1


def plan(topic: str, *positions: Position) -> RecallPlan:
    first, *others = positions
    letters = [PlannedLetter(one, MS, "a" * 32, "b" * 32) for one in others]
    letters.append(PlannedLetter(first, MS, "c" * 32, "b" * 32, repeats=(LetterRef(Position(3, 1, 1), MS),)))
    return RecallPlan(
        action=RecallAction.RESEND, run="run", made_at=MS, cluster=None, topology="trade", path="t.yaml", environment=None,
        topic="orders", subscription="billing", source_topic=topic, source_partitions=4, holder="billing", where="true", to=None,
        limit=9, again=False, because="", edit=None, lanes=(PlannedPartition(topic, 0, True, 4),), letters=tuple(letters),
        settle=(), summary=cast("Any", {}), lane="L1/ready", landing="/landing",
    )  # fmt: skip


def source(made: RecallPlan, landing: Landing, signer: Signer | None = None) -> LandedMessages:
    found = LandedMessages(made, cast("Any", Cluster()), cast("Any", landing), signer)
    found.open(ExitStack(), [one.position for one in made.letters])
    return found


def test_one_attempt_at_a_lane_at_a_time_and_nothing_to_acknowledge() -> None:
    cluster = Cluster()
    found = LandedMessages(plan(READY, Position(0, 1, 0)), cast("Any", cluster), cast("Any", Landing([])), None)
    with ExitStack() as stack:
        assert found.open(stack, [Position(3, 1, 1), Position(0, 1, 0)]) == [0, 3]
        assert found.open(stack, [Position(3, 1, 2)]) == [3], "another segment"
        assert cluster.locked == [(f"{READY}-partition-0", "kodo-recall-lost-billing")]
        assert not cluster.closed
    assert cluster.closed
    found.acknowledge(Position(0, 1, 0), None)
    assert (found.acknowledged, found.count_unacknowledged(), found.acknowledged_in_batches([])) == (0, 0, set())


def test_messages_come_in_the_order_of_the_plan_and_what_was_erased_does_not() -> None:
    places = [Position(0, 1, entry) for entry in (5, 1, 3, 2)]
    events = [event(READY, place, payload=str(place.entry).encode()) for place in reversed(places)]
    events += [event(f"{READY}-L2", places[0]), event(READY, Position(0, 1, 9))]
    events[0] |= {"payload": None}  # entry 2: masked
    events[1] |= {"payload": None, "size": 0, "event_ts": AT, "key": "k"}  # entry 3: a tombstone
    found = source(plan(READY, *places), Landing(events))
    came = list(found.messages(0))
    assert [place.entry for place, _ in came] == [1, 3, 5]
    assert [one.payload for _, one in came] == [b"1", None, b"5"]
    assert {one.publish_time for _, one in came} == {MS}
    assert (came[1][1].event_time, came[1][1].key, came[0][1].event_time) == (MS, "k", 0)
    assert found.why_missing(places[-1]) == ERASED
    assert list(found.messages(1)) == []


def test_what_was_lost_on_its_way_is_made_of_where_it_came_from() -> None:
    nowhere, origin = Position(0, 7, 7), Position(2, 1, 4)
    move = {
        "target_topic": RETRYING, "target_id": str(nowhere), "subscription": "billing", "msg_topic": READY, "id": str(origin),
        "reason": "boom", "error": None, "event": "moved",
    }  # fmt: skip
    landing = Landing([event(READY, origin)], [move, {**move, "subscription": "shipping", "id": "9:9:0:-1"}])
    found = source(plan(RETRYING, nowhere), landing)
    ((place, one),) = found.messages(0)
    assert (place, one.ledger, one.entry, one.payload) == (nowhere, 7, 7, b"7")
    assert dict(one.properties) == {
        "uid": "u", control.ORIGIN_ID: str(origin), control.ORIGIN_TOPIC: READY, control.ORIGIN_TIME: str(MS),
        control.HOP: "1", control.REASON: "boom",
    }  # fmt: skip
    signer = Signer(["k" * 16])
    stranger = source(plan(RETRYING, nowhere), landing, signer)
    assert control.SIGNATURE not in next(stranger.messages(0))[1].properties, "nobody signed what it had"
    signed = signer.signed(READY, b"7", {"uid": "u", control.ID: "order-1"})
    landing.events[0]["properties"] = list(signed.items())
    own = source(plan(RETRYING, nowhere), landing, signer)
    properties = next(own.messages(0))[1].properties
    assert signer.genuine(RETRYING, b"7", properties)
    assert properties[control.ID] == "order-1"


def test_a_dead_letter_that_was_never_stored_has_its_level_and_error() -> None:
    row = {**event(READY, Position(0, 1, 2), properties=None, hop=None, level="L2"), "published": MS}
    made = moved_properties(row, {"reason": "", "error": "E: x", "event": "dead"})
    assert (made[control.FROM_LEVEL], made[control.ERROR], made[control.HOP]) == ("L2", "E: x", "1")
    assert control.REASON not in made
    assert control.FROM_LEVEL not in moved_properties(
        {**row, "level": None}, {"reason": "", "error": "", "event": "dead"}
    )


def test_only_a_tombstone_has_no_payload_to_lose() -> None:
    assert has_payload(b"", 0)
    assert has_payload(None, 0)
    assert not has_payload(None, 5)
    assert not has_payload(None, None)
    assert not has_payload(b"{}", 2, "masked")
    assert not has_payload(None, 0, "erased")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"head": None, "landed_size": 0}, None),
        ({"head": None}, ExclusionReason.NOT_LANDED),
        ({"payload_state": "masked"}, ExclusionReason.NOT_LANDED),
        ({"landed": None, "head": None, "landed_size": None, "readable": None}, ExclusionReason.NOT_LANDED),
        ({"readable": False}, ExclusionReason.UNREADABLE),
        ({"why": Cause.SENT_AGAIN.value, "readable": False}, ExclusionReason.MOVED_ON),
    ],
)
def test_a_lost_message_that_cannot_be_sent_says_why(changes: dict[str, Any], reason: ExclusionReason | None) -> None:
    row = {"why": "", "landed": True, "head": b"7", "landed_size": 1, "payload_state": None, "readable": True}
    assert exclusion_reason(row | changes) is reason

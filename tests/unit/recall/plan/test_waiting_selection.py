"""Waiting messages in, a plan's choice out: what differs from dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kodoctl.errors import RefusedError
from kodoctl.protocol import properties as control
from kodoctl.pulsar.binary.message_reader import Cursor, PartitionFacts, ReadMessage
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEvent
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan import recall_plan_file
from kodoctl.recall.plan.recall_plan import RecallAction, RecallPlan, recall_id
from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest
from kodoctl.recall.plan.waiting_lanes import WaitingLane, with_target
from kodoctl.recall.recall_planner import RecallRequest, prepare
from kodoctl.render.recall import recall_plan_lines
from tests.unit.recall.letters import NOW, letter
from tests.unit.recall.plan.test_plan_file import PLAN
from tests.unit.recall.plan.test_waiting_lanes import one


def select(
    tmp_path: Path, messages: list[Any], action: RecallAction = RecallAction.RELEASE, to: str | None = None,
    lane: str = "L1/retrying", **changes: Any
) -> Any:  # fmt: skip
    source = one(tmp_path, lane)
    source = with_target(source, to) if action.sends else source
    request = SelectionRequest(
        action, source, parse("true", NOW), "r1", None, 100, again=False, edit=None, **changes
    )  # fmt: skip
    selection = LetterSelection(request)
    for message in messages:
        selection.offer(message)
    return selection.finish()


def waits(entry: int, properties: Mapping[str, str] | None = None) -> Any:
    return letter(entry, entry=entry, properties={control.DUE: str(NOW + 1_000), **(properties or {})})


def test_a_release_stays_in_its_partition_and_leaves_out_what_is_due(tmp_path: Path) -> None:
    due, forged = waits(3, {control.DUE: str(NOW)}), waits(4, {control.DUE: "soon"})
    lanes, letters, settle, summary = select(tmp_path, [waits(1), waits(2), due, forged])
    assert [(lane.part, lane.ready) for lane in lanes] == [
        ("persistent://kodo/trade/orders-billing-RETRYING-partition-0", False)
    ]
    assert [(one.position.entry, one.number) for one in letters] == [(1, 1), (2, 2)]
    assert (settle, summary["left_out"]) == ((), {"due": 2})


def test_what_is_due_can_be_moved_and_discarded(tmp_path: Path) -> None:
    due = waits(3, {control.DUE: str(NOW)})
    assert len(select(tmp_path, [due], RecallAction.MOVE, "L2")[1]) == 1
    assert len(select(tmp_path, [due], RecallAction.DISCARD)[1]) == 1


def test_recalled_messages_may_be_released_and_those_released_before_again(tmp_path: Path) -> None:
    back = waits(1, {control.RECALL: "r" * 32, control.RELEASE: "e" * 32})
    assert len(select(tmp_path, [back])[1]) == 1


def test_a_message_whose_copy_stands_in_the_lane_is_only_acknowledged(tmp_path: Path) -> None:
    topic = one(tmp_path, "L1/retrying").source_topic
    sent = recall_id(topic, Position(0, 1, 1), NOW - 1000)
    _, letters, settle, summary = select(tmp_path, [waits(1), waits(5, {control.RELEASE: sent})])
    assert [one.position.entry for one in letters] == [5]
    assert [one.position.entry for one in settle] == [1]
    assert summary["left_out"] == {"already": 1}


def test_a_backup_topic_has_entries_of_its_own_for_each_subscription(tmp_path: Path) -> None:
    lane = one(tmp_path, "B1/ready")
    other = recall_id(f"{lane.source_topic}/shipping", Position(0, 1, 1), NOW - 1000)
    known = {other: LetterStatus("r0", RecallEvent.SENT)}
    assert len(select(tmp_path, [waits(1)], lane="B1/ready", known=known)[1]) == 1
    own = recall_id(lane.ledger_key, Position(0, 1, 1), NOW - 1000)
    known = {own: LetterStatus("r0", RecallEvent.SENT)}
    assert [one.position.entry for one in select(tmp_path, [waits(1)], lane="B1/ready", known=known)[2]] == [1]


@pytest.mark.parametrize("action", [RecallAction.RELEASE, RecallAction.MOVE, RecallAction.DISCARD])
def test_a_plan_of_a_lane_comes_back_from_its_file(action: RecallAction) -> None:
    plan = replace(PLAN, action=action, lane="B1/ready", holder="billing")
    found = recall_plan_file.loads(recall_plan_file.dumps(plan), "p.json")
    assert found == plan
    assert (found.kind.mark, found.ledger_key) == (control.RELEASE, f"{plan.source_topic}/billing")
    assert "lane" not in recall_plan_file.to_json(PLAN)
    assert PLAN.kind.mark == control.RECALL


class Cluster:
    """Messages of one lane, and what partitions have. `cursors`: of the partitions that messages are sent to."""

    def __init__(self, lane: WaitingLane, messages: list[ReadMessage], *cursors: str) -> None:
        self.lane, self.messages, self.unread = lane, messages, SimpleNamespace(leave_out=lambda *_: None)
        self.cursors = {name: Cursor((-1, -1), ()) for name in cursors}
        self.raised: dict[str, int] = {}  # number of partitions by topic, where it is not the file's

    def identity(self, tenant: str) -> None:
        assert tenant == "kodo"

    def partitions(self, topic: str) -> int:
        return self.raised.get(topic, 1)

    def facts(self, part: str) -> PartitionFacts:
        own = part.startswith(self.lane.source_topic)
        cursors = {self.lane.holder: Cursor((-1, -1), ())} if own else self.cursors
        return PartitionFacts(part, 0, 1, (1, 9), True, cursors)

    def read_all(self, facts: PartitionFacts, *_: Any) -> list[ReadMessage]:
        return self.messages if facts.topic.endswith("-0") else []


def stored(entry: int, batch: int = -1, **properties: str) -> ReadMessage:
    return ReadMessage(None, 0, 1, entry, batch, b"%d" % (entry * 10 + batch), properties, "", "", 0, NOW, "")


def plan(lane: WaitingLane, action: RecallAction, cluster: Any, where: str = "true") -> Any:
    request = RecallRequest(
        action, lane, parse(where, NOW), "r1", None, 100, again=False, edit=None, path="t.yaml", environment=None
    )
    return prepare(request, cluster, cast("Any", SimpleNamespace(entries=lambda _: [])))


def test_nothing_is_planned_for_a_lane_without_the_subscription(tmp_path: Path) -> None:
    lane = with_target(one(tmp_path, "L1/retrying"), "L2")
    with pytest.raises(RefusedError, match="has no subscription billing, so nothing would keep") as refused:
        plan(lane, RecallAction.MOVE, Cluster(lane, [stored(1)], "shipping"))
    assert [one.code for one in refused.value.diagnostics] == ["K711"]
    assert len(plan(lane, RecallAction.MOVE, Cluster(lane, [stored(1)], "billing")).letters) == 1


@pytest.mark.parametrize("action", [RecallAction.MOVE, RecallAction.DISCARD])
@pytest.mark.parametrize(("now", "text"), [(4, "4 partitions"), (0, "no partitions")])
def test_nothing_is_planned_for_a_lane_with_other_partitions_than_the_file(
    tmp_path: Path, action: RecallAction, now: int, text: str
) -> None:
    lane = one(tmp_path, "L1/retrying")
    lane = with_target(lane, "L2") if action.sends else lane
    some = Cluster(lane, [stored(1)], "billing")
    some.raised[lane.source_topic] = now
    with pytest.raises(RefusedError, match=f"{lane.source_topic} has {text}, 1 in the file") as refused:
        plan(lane, action, some)
    assert [one.code for one in refused.value.diagnostics] == ["K822"]


def test_nothing_is_planned_for_a_target_with_other_partitions_than_the_file(tmp_path: Path) -> None:
    lane = with_target(one(tmp_path, "L1/retrying"), "L2")
    some = Cluster(lane, [stored(1)], "billing")
    some.raised["persistent://kodo/trade/orders-L2"] = 2
    with pytest.raises(RefusedError, match="orders-L2 has 2 partitions, 1 in the file"):
        plan(lane, RecallAction.MOVE, some)


def left_out(found: RecallPlan) -> tuple[list[tuple[int, int]], dict[str, int]]:
    return [(one.position.entry, one.position.batch) for one in found.letters], found.summary["left_out"]


@pytest.mark.parametrize("action", [RecallAction.MOVE, RecallAction.DISCARD])
def test_of_a_batch_all_messages_are_taken_or_none(tmp_path: Path, action: RecallAction) -> None:
    lane = one(tmp_path, "B1/ready")
    lane = with_target(lane, "L1") if action.sends else lane
    messages = [stored(1), *(stored(2, n) for n in range(3)), *(stored(3, n) for n in range(2)), stored(4)]
    messages = [
        one if (one.entry, one.batch) == (2, 1) else one._replace(properties={control.REASON: "x"}) for one in messages
    ]
    some = Cluster(lane, messages, "billing")
    assert left_out(plan(lane, action, some)) == ([(1, -1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (4, -1)], {})
    found = plan(lane, action, some, "reason IS NOT NULL")
    assert left_out(found) == ([(1, -1), (3, 0), (3, 1), (4, -1)], {"part_of_a_batch": 2})
    assert "2 in a batch of which not every message is chosen" in "\n".join(
        line.text for line in recall_plan_lines(cast("Any", recall_plan_file.to_json(found)), "context dev")
    )
    numbers = [one.number for one in found.letters]
    assert numbers == ([1, 2, 3, 4] if action.sends else [0] * 4), "numbers of a lane have no gaps"


def test_a_batch_with_messages_for_another_subscription_is_left_out(tmp_path: Path) -> None:
    lane = with_target(one(tmp_path, "B1/ready"), "L1")
    messages = [stored(2, 0), stored(2, 1, **{control.FOR: "shipping"}), stored(3, 0, **{control.FOR: "billing"})]
    found = plan(lane, RecallAction.MOVE, Cluster(lane, messages, "billing"))
    assert left_out(found) == ([(3, 0)], {"part_of_a_batch": 1})
    assert found.summary["read"] == 2


def test_copies_and_messages_sent_before_belong_to_their_batch(tmp_path: Path) -> None:
    def waiting(entry: int, batch: int, payload: int, **properties: str) -> Any:
        return letter(payload, entry=entry, batch=batch, properties={control.DUE: str(NOW + 1), **properties})

    source = one(tmp_path, "L1/retrying")
    copies = [
        waiting(1, 0, 10), waiting(1, 1, 11), waiting(2, 0, 20),  # one and two share a message,
        waiting(3, 0, 30), waiting(4, 0, 30), waiting(4, 1, 40),  # three and four another
    ]  # fmt: skip
    identities = [{control.ORIGIN_ID: text} for text in ("a", "b", "a", "c", "c", "d")]
    copies = [replace(one, properties={**one.properties, **more}) for one, more in zip(copies, identities, strict=True)]
    copies[2] = replace(copies[2], payload=copies[0].payload)
    _, letters, _, summary = select(tmp_path, copies)
    assert [(one.position.entry, one.position.batch) for one in letters] == [(1, 0), (1, 1), (3, 0), (4, 1)]
    assert [ref.position.entry for one in letters for ref in one.repeats] == [2, 4]
    due = {control.DUE: str(NOW)}
    copies[5] = replace(copies[5], properties={**copies[5].properties, **due})
    _, letters, _, summary = select(tmp_path, copies)
    assert [(one.position.entry, one.position.batch) for one in letters] == [(1, 0), (1, 1)], "nor their copies"
    assert summary["left_out"] == {"repeat": 2, "due": 1, "part_of_a_batch": 1}
    known = {
        recall_id(source.ledger_key, copies[5].position, copies[5].publish_time): LetterStatus("r0", RecallEvent.SENT)
    }
    _, letters, settle, _ = select(tmp_path, copies, known=known)
    assert [one.position.entry for one in letters] == [1, 1, 3]
    assert [ref.position.entry for ref in settle] == [4], "sent before: it is only acknowledged"

"""Audit records: written for everything that ends in a lane, stored before it is acknowledged, without a hole."""

from __future__ import annotations

from pathlib import Path

import pytest
from kodo_consumer import Consumer, Dead, Discard, Message, MoveTo, Postpone, Transfer
from kodo_consumer.core.engine.audit_recorder import BUNDLE
from kodo_consumer.core.engine.publishing import HANGS
from kodo_consumer.core.state.in_flight import Stage
from kodo_consumer.core.values.broker import Confirmed, Rejected, Unconfirmed
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.core.values.policy import AuditTo
from kodo_consumer.testing import Harness

from kodoctl.protocol.audit_records import Event, Record, decode
from tests.native.compiled import INTERPRETED_ONLY
from tests.unit.consumer.engine_bench import FAILED, L1, Bench, delivery, policy
from tests.unit.consumer.topologies import write

AUDIT = "persistent://p/n/t-s-AUDIT"
WAIT, BEST_EFFORT = AuditTo(AUDIT, wait=True), AuditTo(AUDIT, wait=False)


def bench(audit: AuditTo = WAIT, **changes: object) -> Bench:
    made = Bench(policy(audit=audit, **changes))  # type: ignore[arg-type]
    assert made.engine.flow.recorder is not None
    made.engine.flow.recorder.run = "run-1"
    return made


def finish_all(on: Bench) -> None:
    for message in on.take_all():
        on.engine.finish(message, DONE)


def test_a_message_is_acknowledged_after_the_receipt_of_its_record_and_not_before() -> None:
    on = bench()
    on.give(delivery(0), delivery(1))
    finish_all(on)
    assert on.published() == [], "records are gathered for a moment"
    assert on.engine.busy
    on.later(0.05)
    [(ticket, message)] = on.published()
    assert message.topic == AUDIT
    assert [record.id for record in decode(message.payload)] == ["7:0:0:-1", "7:1:0:-1"]
    assert on.acknowledged() == []
    assert on.engine.check_invariants() == []
    on.engine.receipt(ticket, Confirmed("(1,1,0,-1)"))
    assert on.acknowledged() == [0, 1]
    assert not on.engine.busy
    assert on.engine.counts.recorded == 2


def test_a_moved_message_has_its_record_after_its_target_has_it() -> None:
    on = bench(in_place=())
    on.give(delivery(3, uid="u1"))
    on.engine.finish(on.take_all()[0], FAILED)
    [(ticket, moved)] = on.published()
    on.later(1)
    assert on.published() == [], "no record of what has no receipt"
    on.engine.receipt(ticket, Confirmed("(9,4,0,2)"))
    on.later(0.05)
    [(ticket, message)] = on.published()
    [record] = decode(message.payload)
    assert (record.event, record.rule, record.reason) == (Event.MOVED, "retrying", "ValueError")
    assert (record.target, record.target_id) == (moved.topic, "9:4:0:2")
    assert on.acknowledged() == []
    on.engine.receipt(ticket, Confirmed("x"))
    assert on.acknowledged() == [3]


def test_a_record_says_for_how_long_handlers_had_a_slot() -> None:
    on = bench(in_place=(2_000,))
    on.give(delivery(0))
    [message] = on.take_all()
    on.later(1.5)
    on.engine.finish(message, FAILED)
    on.later(2)  # a wait in memory takes no slot
    [message] = on.take_all()
    on.later(0.25)
    on.engine.finish(message, DONE)
    on.later(0.05)
    [(_, sent)] = on.published()
    assert [record.slot_time for record in decode(sent.payload)] == [1_750]


@pytest.mark.parametrize("problem", [Unconfirmed("Timeout"), Rejected("not authorised")])
def test_records_are_kept_and_sent_again_until_they_are_stored(problem: Unconfirmed | Rejected) -> None:
    on = bench()
    on.give(delivery(0))
    finish_all(on)
    on.later(0.05)
    for _ in range(5):
        [(ticket, first)] = on.published()
        on.engine.receipt(ticket, problem)
        assert on.acknowledged() == []
        on.later(60)
    [(ticket, again)] = on.published()
    assert again.payload == first.payload, "the same numbers: a reader can tell the copies"
    on.engine.receipt(ticket, Confirmed("x"))
    assert on.acknowledged() == [0]
    assert "publish" in on.alarms()


def test_a_copy_that_comes_while_the_record_is_on_its_way_is_dropped() -> None:
    on = bench()
    on.give(delivery(0))
    finish_all(on)
    on.engine.on_disconnect(0)
    on.give(delivery(0))
    assert on.take_all() == []
    assert on.acknowledged() == []
    on.later(0.05)
    on.engine.receipt(on.published()[0][0], Confirmed("x"))
    assert on.acknowledged() == [0]


def test_hanging_records_are_sent_by_a_new_client() -> None:
    on = bench()
    on.give(delivery(0))
    finish_all(on)
    on.later(0.05)
    on.published()
    on.later(HANGS + 1)
    assert on.engine.context.effects.renew_publishing
    assert len(on.published()) == 1


def test_numbers_have_no_hole_and_a_bundle_has_an_end() -> None:
    on = bench(lookahead_messages=10_000, concurrency=3 * BUNDLE)
    on.give(*(delivery(number) for number in range(BUNDLE + 5)))
    finish_all(on)
    [(_, full)] = on.published()
    assert len(decode(full.payload)) == BUNDLE, "a full bundle does not wait"
    on.later(0.05)
    [(_, rest)] = on.published()
    numbers = [record.number for message in (full, rest) for record in decode(message.payload)]
    assert numbers == list(range(1, BUNDLE + 6))
    assert on.engine.counts.started == BUNDLE + 5


def test_the_next_of_a_key_does_not_wait_for_a_record() -> None:
    on = bench(ordered=True)
    on.give(delivery(0, key="k"), delivery(1, key="k"))
    first = on.take_all()
    assert len(first) == 1
    on.engine.finish(first[0], DONE)
    assert len(on.take_all()) == 1
    assert on.acknowledged() == []
    assert on.engine.check_invariants() == []


def test_a_drain_does_not_wait_for_more_records() -> None:
    on = bench()
    on.give(delivery(0))
    finish_all(on)
    on.engine.drain()
    [(ticket, _)] = on.published()
    assert on.engine.busy
    on.engine.receipt(ticket, Confirmed("x"))
    assert not on.engine.busy
    assert on.acknowledged() == [0]


def test_best_effort_acknowledges_at_once_and_sends_records_all_the_same() -> None:
    on = bench(BEST_EFFORT)
    on.give(delivery(0))
    finish_all(on)
    assert on.acknowledged() == [0]
    assert on.engine.busy, "a clean end takes the records along"
    on.later(0.05)
    [(ticket, message)] = on.published()
    assert [record.id for record in decode(message.payload)] == ["7:0:0:-1"]
    on.engine.receipt(ticket, Confirmed("x"))
    assert not on.engine.busy


@INTERPRETED_ONLY
def test_best_effort_gives_records_up_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.core.engine.audit_recorder.MAX_KEPT", 3)
    on = bench(BEST_EFFORT)
    for number in range(4):
        on.give(delivery(number))
        finish_all(on)
        on.later(0.05)
    assert on.acknowledged() == [0, 1, 2, 3]
    assert on.engine.counts.unrecorded == 1
    assert "audit" in on.alarms()
    for ticket, _ in on.published():
        on.engine.receipt(ticket, Confirmed("x"))
    on.give(delivery(4))
    finish_all(on)
    on.later(0.05)
    [(_, message)] = on.published()
    assert decode(message.payload)[0].number == 5, "what was given up is a hole that an auditor sees"


def test_every_way_to_end_has_its_event(tmp_path: Path) -> None:
    topics = """
  orders:
    levels: double
    fair_by: uid
    subscriptions:
      billing: {audit: true, in_place: [], retrying: {delays: [10s], attempts: 1}, produces: [shipments]}
      other: {states: []}
  shipments: {subscriptions: {tracking: {states: [], dead_letter: false}}}
"""
    consumer = Consumer.load(write(tmp_path, topics), topic="orders", subscription="billing", environ={})

    @consumer.handler
    def handle(message: Message) -> None:
        ends = {
            "no": Discard("nobody asked"),
            "dead": Dead("negative"),
            "up": MoveTo("L2"),
            "on": Transfer("shipments"),
            "later": Postpone("5s", "closed"),
        }
        if message.text() in ends and (message.text() != "up" or message.level is L1) and not message.postponements:
            raise ends[message.text()]
        if message.text() == "bad":
            raise ValueError

    harness = Harness(consumer)
    for text in ("good", "no", "dead", "up", "on", "bad", "later"):
        harness.send(text.encode(), properties={"uid": text}, id=f"id-{text}")
    harness.inject(b"theirs", properties={"kodo-for": "other"})
    harness.advance("30s")
    records = _records(harness)
    of = {name: [(r.event.value, r.rule) for r in records if r.identity == f"id-{name}"] for name in ("good", "no")}
    assert of == {"good": [("done", "done")], "no": [("discarded", "discarded")]}
    assert [(r.event, r.reason) for r in records if r.identity == "id-no"] == [(Event.DISCARDED, "nobody asked")]
    assert [(r.event, r.hop, r.rule) for r in records if r.identity == "id-up"] == [
        (Event.MOVED, 0, "moved"), (Event.DONE, 1, "done"),
    ]  # fmt: skip
    assert [(r.event, r.rule, r.reason) for r in records if r.identity == "id-later"] == [
        (Event.MOVED, "postponed", "postponed: closed"), (Event.DONE, "done", ""),
    ]  # fmt: skip
    assert [(r.event, r.rule) for r in records if r.identity == "id-bad"] == [
        (Event.MOVED, "retrying"), (Event.DEAD, "dead"),
    ]  # fmt: skip
    assert [r.event for r in records if r.identity in {"id-dead", "id-on"}] == [Event.DEAD, Event.TRANSFERRED]
    assert [r.event for r in records if r.rule == "not_for_me"] == [Event.SKIPPED]
    for record in records:
        if record.target:
            stored = harness.broker.messages(record.target)[int(record.target_id.split(":")[1])]
            assert stored.payload.decode() == record.identity.removeprefix("id-"), (
                "the record names the message it is about"
            )
    bad = [r for r in records if r.identity == "id-bad"]
    assert bad[1].id == bad[0].target_id, "records of one message are links of a chain"
    assert bad[1].age - bad[0].age >= 10_000
    assert {r.tenant for r in records} >= {"good", "bad", "(none)"}
    assert not harness.waiting("L1", "ready")
    harness.close()


def test_without_audit_there_is_no_recorder() -> None:
    assert Bench(policy()).engine.flow.recorder is None


def test_held_messages_show_where_they_are() -> None:
    on = bench()
    on.give(delivery(0))
    finish_all(on)
    assert [held.stage for lane in on.engine.lanes for held in lane] == [Stage.RECORDED]


def _records(harness: Harness) -> list[Record]:
    assert harness.policy.audit is not None
    return [one for stored in harness.broker.messages(harness.policy.audit.topic) for one in decode(stored.payload)]

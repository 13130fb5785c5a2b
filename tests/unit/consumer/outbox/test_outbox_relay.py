"""The relay on a broker in memory, its table in SQLite and in PostgreSQL: order, tries, claims, poison, rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from kodo_consumer.core.values.broker import Rejected, Unconfirmed
from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.outbox import Outbox
from kodo_consumer.outbox.backoff import Backoff
from kodo_consumer.outbox.outbox_row import Row, RowResult
from kodo_consumer.outbox.outbox_store import OutboxScope, OutboxStore, database_now
from kodo_consumer.outbox.row_filter import RowFilter, RowStatus
from kodo_consumer.outbox.table import HELD, TABLE
from kodo_consumer.producer import Producer
from kodo_consumer.testing import ManualClock
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from kodoctl.errors import ClusterError, UsageError, error
from tests.unit.consumer.outbox_setting import Setting, claimed


@pytest.fixture
def setting(database_url: str, tmp_path: Path) -> Iterator[Setting]:
    found = Setting(database_url, tmp_path)
    yield found
    found.engine.dispose()


def test_what_was_committed_is_sent_once_and_what_was_rolled_back_is_not(setting: Setting) -> None:
    with setting.engine.begin() as connection:
        kept = setting.outbox.add(
            connection, topic="orders", payload={"amount": 1}, key="k", properties={"uid": "u"}, biz_code="pay"
        )
    with setting.engine.connect() as connection:
        setting.outbox.add(connection, topic="orders", payload={"amount": 2}, properties={"uid": "u"})
        connection.rollback()
    relay = setting.relay()
    setting.turn(relay)
    (message,) = setting.sent("orders")
    assert (message.payload, message.key) == (b'{"amount":1}', "k")
    assert (message.properties["kodo-id"], message.properties["uid"]) == (kept, "u")
    row = setting.rows()[kept]
    assert (row["status"], row["retry_count"], row["last_error"]) == ("sent", 0, None)
    assert (row["biz_code"], row["next_push_at"]) == ("pay", setting.clock.wall())
    assert not relay.busy
    setting.turn(relay)
    assert len(setting.sent("orders")) == 1


def test_other_levels_are_named_with_their_suffix(setting: Setting) -> None:
    setting.add("orders-L2", b'{"amount": 1}', properties={"uid": "u"})
    setting.turn(setting.relay())
    assert len(setting.sent("orders-L2")) == 1


def test_a_delayed_row_is_pushed_when_it_is_due(setting: Setting) -> None:
    name = setting.add(delay="10s")
    relay = setting.relay()
    setting.turn(relay)
    assert setting.ids() == []
    setting.clock.advance(10.1)
    setting.turn(relay)
    assert setting.ids() == [name]


def test_rows_of_another_environment_or_application_are_left_alone(setting: Setting) -> None:
    from kodo_consumer.outbox import Outbox

    with setting.engine.begin() as connection:
        ids = [
            Outbox(clock=setting.clock, app=app, env=env).add(connection, topic="ledger", payload=b"x")
            for app, env in [("shop", ""), ("shop", "prod"), ("shop", "test"), ("bank", "prod")]
        ]
    setting.turn(setting.relay(OutboxScope("prod", "shop")))
    assert sorted(setting.ids()) == sorted(ids[:2]), "written by different processes in one moment: no order"
    setting.turn(setting.relay(OutboxScope("prod")))
    assert sorted(setting.ids()) == sorted([*ids[:2], ids[3]])


def test_without_a_receipt_a_row_is_tried_again_by_the_delays_of_its_business_code(setting: Setting) -> None:
    name = setting.add(biz_code="refund")
    other = setting.add()
    setting.broker.fail_sends(setting.full("ledger"), Unconfirmed("Timeout"), Unconfirmed("Timeout"))
    relay = setting.relay(backoff=Backoff({"default": (1_000,), "refund": (60_000,)}))
    setting.turn(relay)
    rows = setting.rows()
    assert [(rows[one]["status"], rows[one]["retry_count"]) for one in (name, other)] == [("to_send", 1)] * 2
    assert rows[name]["last_error"] == "Timeout"
    setting.clock.advance(2)
    setting.turn(relay)
    assert setting.rows()[other]["status"] == "sent"
    assert setting.rows()[name]["status"] == "to_send"
    setting.clock.advance(80)
    setting.turn(relay)
    assert setting.rows()[name] | {"next_push_at": 0} == rows[name] | {
        "status": "sent", "version": rows[name]["version"] + 2, "last_error": None, "next_push_at": 0,
    }  # fmt: skip
    assert setting.ids().count(name) == 2, "the same identity both times"


def test_past_the_limit_somebody_is_told_and_the_row_goes_on(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    name = setting.add()
    setting.broker.fail_sends(setting.full("ledger"), *[Unconfirmed("Timeout")] * 3)
    relay = setting.relay(backoff=Backoff({"default": (1_000,)}, attempts=3))
    for _ in range(5):
        setting.turn(relay)
        setting.clock.advance(40)
    assert f"row {name} for ledger was sent 3 times without a receipt" in caplog.text
    assert relay.counts == {"again": 3, "late": 1, "sent": 1}
    assert setting.rows()[name]["status"] == "sent"


def test_poison_fails_and_holds_up_nobody(setting: Setting) -> None:
    given = {"properties": {"uid": "u"}}
    bad_payload = setting.add("orders", b"{}", **given)
    bad_json = setting.add("orders", b"{", **given)
    bad_properties = setting.add("orders", b'{"amount": 1}')
    no_topic = setting.add("nowhere")
    reserved = setting.add("orders", b'{"amount": 1}', properties={"uid": "u"})
    with setting.engine.begin() as connection:
        connection.execute(
            update(TABLE).where(TABLE.c.id == reserved).values(properties='{"kodo-for": "x", "uid": "u"}')
        )
        no_map = setting.unchecked.add(connection, topic="ledger", payload=b"x")
        connection.execute(update(TABLE).where(TABLE.c.id == no_map).values(properties="[1]"))
    good = setting.add("orders", b'{"amount": 1}', **given)
    relay = setting.relay()
    setting.turn(relay)
    rows = setting.rows()
    assert setting.ids("orders") == [good]
    assert {name for name, row in rows.items() if row["status"] == "failed"} == {
        bad_payload, bad_json, bad_properties, no_topic, reserved, no_map,
    }  # fmt: skip
    assert "K716" in rows[bad_payload]["last_error"]
    assert "missing: uid" in rows[bad_properties]["last_error"]
    assert "K702" in rows[no_topic]["last_error"]
    assert "reserved: kodo-for" in rows[reserved]["last_error"]
    assert rows[no_map]["last_error"] == "properties is no JSON object"
    setting.broker.fail_sends(setting.full("ledger"), Rejected("too big"))
    too_big, after = setting.add(key="k"), setting.add(key="k")
    setting.turn(relay)
    assert (setting.rows()[too_big]["last_error"], setting.ids()) == ("too big", [after])


def test_a_row_whose_properties_nest_without_end_fails_by_itself(setting: Setting) -> None:
    """It ended the relay, and the next one that claimed it, and so on."""
    deep, good = setting.add(key="k"), setting.add(key="k")
    with setting.engine.begin() as connection:
        connection.execute(update(TABLE).where(TABLE.c.id == deep).values(properties='{"a":' + "[" * 100_000))
    setting.turn(setting.relay())
    row = setting.rows()[deep]
    assert (row["status"], row["last_error"]) == (RowStatus.FAILED, "properties is JSON that is nested too deeply")
    assert setting.ids() == [good]


def test_whatever_a_row_brings_about_is_its_own_failure(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def message_properties(row: Row) -> dict[str, str]:
        if row.key == "bad":
            raise LookupError("nobody thought of this")
        return {}

    monkeypatch.setattr(Row, "message_properties", message_properties)
    bad, good = setting.add(key="bad"), setting.add(key="good")
    setting.turn(setting.relay())
    assert setting.rows()[bad]["last_error"] == "LookupError: nobody thought of this"
    assert setting.ids() == [good]


def test_rows_of_a_key_go_out_one_after_the_other_where_somebody_reads_them_in_order(setting: Setting) -> None:
    ids = {key: [setting.add(key=key, payload=b"%d" % number) for number in range(5)] for key in ("a", "b")}
    setting.broker.hold_receipts = True
    relay, other = setting.relay(), setting.relay()
    setting.turn(relay, other)
    assert setting.ids() == [ids["a"][0], ids["b"][0]]
    setting.broker.hold_receipts = False
    setting.turn(relay, other)
    for key, expected in ids.items():
        assert [message.properties["kodo-id"] for message in setting.sent() if message.key == key] == expected


def test_a_key_waits_for_its_first_row_and_no_other_key_does(setting: Setting) -> None:
    first, second = setting.add(key="a"), setting.add(key="a")
    setting.broker.fail_sends(setting.full("ledger"), Unconfirmed("Timeout"))
    relay, other = setting.relay(backoff=Backoff({"default": (60_000,)})), setting.relay()
    setting.turn(relay)
    assert setting.rows()[first]["retry_count"] == 1
    held, behind_held, free = setting.add(key="b"), setting.add(key="b"), setting.add()
    setting.store().hold(RowFilter(ids=(held,)), limit=1)
    setting.clock.advance(3)
    setting.turn(relay, other)
    sent = setting.ids()
    assert second not in sent
    assert {behind_held, free} <= set(sent)
    setting.clock.advance(80)
    setting.turn(relay, other)
    assert setting.ids()[-2:] == [first, second]
    assert setting.rows()[held]["next_push_at"] == HELD


def test_a_claim_of_a_relay_that_died_ends_and_its_rows_go_out_with_their_identity(setting: Setting) -> None:
    ids = [setting.add() for _ in range(3)]
    dead = setting.relay(claim=60_000)
    dead.turn()  # claimed and sent, never settled
    assert {row["status"] for row in setting.rows().values()} == {"sending"}
    relay = setting.relay()
    setting.broker.hold_receipts = True
    setting.turn(relay)
    assert setting.ids() == ids
    setting.clock.advance(61)
    setting.broker.hold_receipts = False
    setting.turn(relay)
    assert sorted(setting.ids()) == sorted(ids * 2)
    assert {row["status"] for row in setting.rows().values()} == {"sent"}
    setting.turn(dead)
    assert dead.counts["overtaken"] == 3, "it was not dead after all, and changes nothing"
    assert {row["status"] for row in setting.rows().values()} == {"sent"}


class SkewedClock:
    """The clock of a machine that is ahead of all others, or behind."""

    def __init__(self, of: ManualClock, seconds: int) -> None:
        self._of, self._seconds = of, seconds

    def now(self) -> float:
        return self._of.now()

    def wall(self) -> int:
        return self._of.wall() + self._seconds * 1000


@pytest.mark.parametrize("seconds", [-200, 200])
def test_a_relay_whose_clock_is_wrong_decides_as_the_others_do(setting: Setting, seconds: int) -> None:
    """One that was ahead took the claims of all others: their rows were sent twice, and not in order."""
    ids = [setting.add(key=f"k{number % 2}") for number in range(6)]
    relay, wrong = setting.relay(), setting.relay(clock=SkewedClock(setting.clock, seconds))
    setting.broker.hold_receipts = True
    setting.turn(relay, wrong)
    assert len(setting.ids()) == 2, "the first of each key"
    setting.broker.hold_receipts = False
    setting.turn(relay, wrong)
    assert sorted(setting.ids()) == sorted(ids)
    later = setting.add(delay="10s", key="k0")
    setting.broker.fail_sends(setting.full("ledger"), Unconfirmed("Timeout"))
    setting.clock.advance(9)
    setting.turn(wrong)
    assert later not in setting.ids()
    setting.clock.advance(1.1)
    setting.turn(wrong)
    row = setting.rows()[later]
    assert (row["status"], row["retry_count"]) == ("to_send", 1)
    assert 0 < row["next_push_at"] - setting.clock.wall() <= 1_250


def test_identities_ascend_by_the_database_clock_whatever_process_writes(database_url: str, tmp_path: Path) -> None:
    """Machines differ; by their own clocks a later row of a key was sent before an earlier one."""
    setting = Setting(database_url, tmp_path)
    begin = setting.clock.wall()
    ids: list[str] = []
    with setting.engine.begin() as connection:
        for _ in range(3):
            outboxes = [Outbox(clock=setting.clock) for _ in range(5)]
            ids += [outbox.add(connection, topic="ledger", payload=b"x") for outbox in outboxes]
            setting.clock.advance(0.001)
        first = Outbox().add(connection, topic="ledger", payload=b"x")
        now = connection.scalar(select(database_now()))
    assert ids == sorted(ids)
    assert len(set(ids)) == 15
    assert {len(one) for one in ids} == {32}
    assert [int(one[:12], 16) - begin for one in ids[::5]] == [0, 1, 2]
    assert now is not None
    assert abs(int(first[:12], 16) - now) < 60_000
    assert set(setting.rows()) == {*ids, first}
    setting.engine.dispose()


def test_times_are_those_of_the_database(database_url: str, tmp_path: Path) -> None:
    """Also without a test's clock: of what the application writes, what a relay claims and settles, and what people push."""
    setting = Setting(database_url, tmp_path)
    store = OutboxStore(setting.engine)

    def since(name: str) -> list[int]:
        """Ms by which the row's times are off the database's."""
        with setting.engine.connect() as connection:
            now = connection.scalar(select(database_now()))
        assert now is not None
        return [abs(setting.rows()[name][column] - now) for column in ("next_push_at", "created_at")]

    outbox = Outbox()
    with setting.engine.begin() as connection:
        name = outbox.add(connection, topic="ledger", payload=b"x")
        late = outbox.add(connection, topic="ledger", payload=b"x", delay="1h")
    assert max(since(name)) < 60_000
    [row] = claimed(store, 10, 600_000)
    assert row.id == name
    assert 540_000 < since(name)[0] <= 600_000
    store.settle([RowResult(row, RowStatus.TO_SEND, 0, 0)])
    assert since(name)[0] < 60_000
    assert store.waiting()[0] == 2
    assert 0 <= store.waiting()[1] < 60_000
    assert store.push(RowFilter(ids=(late,)), limit=1) == 1
    assert since(late)[0] < 60_000
    assert store.counts()["late"] == 0
    setting.engine.dispose()


def test_several_relays_send_every_row_once(setting: Setting) -> None:
    ids = [setting.add(key=f"k{number % 7}" if number % 2 else "") for number in range(100)]
    relays = [setting.relay(batch=7, window=14) for _ in range(3)]
    setting.turn(*relays, times=60)
    assert sorted(setting.ids()) == sorted(ids)
    assert sum(relay.counts["sent"] for relay in relays) == 100
    assert all(relay.counts["sent"] for relay in relays)


def test_a_row_that_is_released_keeps_the_reason_of_its_last_failure_until_it_is_sent(setting: Setting) -> None:
    name, store = setting.add(), setting.store()
    for reason in ("no receipt", None):
        (row,) = claimed(store, 1, 60_000)
        store.settle([RowResult(row, RowStatus.TO_SEND, 0, 1, reason)])
        assert setting.rows()[name]["last_error"] == "no receipt"
    (row,) = claimed(store, 1, 60_000)
    store.settle([RowResult(row, RowStatus.SENT, 0, 1)])
    assert setting.rows()[name]["last_error"] is None


def test_a_topic_without_receipts_rests_and_others_go_on(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    setting.broker.fail_sends(setting.full("ledger"), *[Unconfirmed("Timeout")] * 4)
    relay = setting.relay(batch=3, window=4, backoff=Backoff({"default": (1_000,)}))
    for _ in range(10):
        setting.add()
    order = setting.add("orders", b'{"amount": 1}', properties={"uid": "u"})
    setting.turn(relay, times=10)
    assert setting.ids("orders") == [order]
    tried = [row["retry_count"] for row in setting.rows().values()]
    assert sum(tried) <= 4, "what waits costs no attempt"
    for _ in range(6):
        setting.clock.advance(5)
        setting.turn(relay, times=10)
    assert {row["status"] for row in setting.rows().values()} == {"sent"}
    assert "ledger gives no receipts (Timeout): it rests" in caplog.text
    assert "ledger takes messages again" in caplog.text


def test_a_topic_that_cannot_be_opened_is_tried_once_in_a_turn_and_each_try_is_a_sign_of_life(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, float]] = []
    relay = setting.relay()

    def post(row: Row, on_receipt: Any) -> None:
        tried.append((row.topic, relay.turned_at))
        relay.turned_at = 0.0
        raise ClusterError(error("K516", "no", "bookies"))

    monkeypatch.setattr(relay._senders, "post", post)
    names = [setting.add(topic) for topic in ("ledger", "orders") for _ in range(3)]
    relay.turn()
    assert sorted(topic for topic, _ in tried) == ["ledger", "orders"]
    assert all(turned_at > 0 for _, turned_at in tried)
    relay.turn(claim=False)
    rows = setting.rows()
    assert {(rows[name]["status"], rows[name]["retry_count"]) for name in names} == {("to_send", 0)}
    setting.clock.advance(1.1)
    relay.turn()
    assert len(tried) == 4


def test_a_fault_of_the_surroundings_is_not_the_rows(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token's file that was missing for a moment marked the rows of every topic as failed."""
    made = setting._producer

    def connect(send_target: SendTarget) -> Producer:
        if setting.clock.now() < 5:
            raise UsageError(error("K504", "cannot read token", "No such file or directory"))
        return made(send_target)

    monkeypatch.setattr(setting, "_producer", connect)
    name, relay = setting.add(), setting.relay()
    setting.turn(relay)
    assert (setting.rows()[name]["status"], relay.counts["failed"]) == ("to_send", 0)
    setting.clock.advance(40)
    setting.turn(relay)
    assert setting.ids() == [name]


def test_what_is_not_sent_is_given_back_at_the_end(setting: Setting) -> None:
    ids = [setting.add(key="k") for _ in range(3)]
    relay = setting.relay()
    setting.broker.hold_receipts = True
    relay.turn()
    relay.let_go()
    relay.turn(claim=False)
    assert [row["status"] for row in setting.rows().values()] == ["sending", "to_send", "to_send"]
    setting.broker.hold_receipts = False
    setting.broker.step()
    relay.turn(claim=False)
    assert [row["status"] for row in setting.rows().values()] == ["sent", "to_send", "to_send"]
    assert not relay.busy
    setting.turn(setting.relay())
    assert setting.ids() == ids


def test_a_relay_serves_until_nothing_is_left_or_it_is_asked_to_end(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    relay, asked = setting.relay(), Event()
    answers: list[Exception | bool] = [OperationalError("SELECT", {}, Exception("away")), True]

    def is_empty() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    relay.serve(asked, drain_timeout=0.0, until_empty=is_empty)
    assert answers == [], "a database that is away for a moment does not end it"
    name = setting.add()
    relay.turn()
    asked.set()
    relay.serve(asked, drain_timeout=0.01, until_empty=lambda: False)
    assert "some rows have no receipt yet" in caplog.text
    caplog.clear()
    setting.broker.step()
    relay.serve(asked, drain_timeout=10.0, until_empty=lambda: False)
    assert (relay.busy, setting.rows()[name]["status"], caplog.text) == (False, "sent", "")


def test_a_claim_that_is_half_over_is_not_used(setting: Setting) -> None:
    first, second = setting.add(key="k"), setting.add(key="k")
    relay = setting.relay(claim=60_000)
    relay.turn()
    setting.clock.advance(31)
    setting.broker.step()
    relay.turn(claim=False)
    assert setting.ids() == [first]
    assert setting.rows()[second]["status"] == "to_send"


def test_old_rows_that_were_sent_are_removed(setting: Setting) -> None:
    setting.add()
    relay = setting.relay(keep=100_000)
    setting.turn(relay)
    setting.add(delay="10m")
    failed = setting.add("nowhere")
    setting.clock.advance(61)
    setting.turn(relay)
    assert len(setting.rows()) == 3
    setting.clock.advance(61)
    setting.turn(relay)
    assert [row["status"] for row in setting.rows().values()] == ["to_send", "failed"]
    assert failed in setting.rows()


def test_rows_are_held_and_pushed(setting: Setting) -> None:
    store = setting.store()
    ids = [setting.add(biz_code="a" if number < 3 else "b") for number in range(5)]
    assert store.hold(RowFilter(biz_code="a"), limit=100) == 3
    assert store.hold(RowFilter(biz_code="a"), limit=100) == 0
    relay = setting.relay()
    setting.turn(relay)
    assert setting.ids() == ids[3:]
    assert store.counts()["held"] == 3
    assert store.push(RowFilter(), limit=2, spacing=10_000) == 2
    setting.turn(relay)
    assert setting.ids() == [*ids[3:], ids[0]]
    setting.clock.advance(10)
    setting.turn(relay)
    assert setting.ids() == [*ids[3:], *ids[:2]]
    assert store.push(RowFilter(statuses=(RowStatus.SENT,)), limit=9) == 0, "never a second time"
    assert store.next_due() is None


def test_a_failed_row_is_pushed_anew(setting: Setting) -> None:
    setting.broker.fail_sends(setting.full("ledger"), Rejected("not authorised"))
    name = setting.add()
    relay = setting.relay()
    setting.turn(relay)
    assert setting.store().push(RowFilter(statuses=(RowStatus.FAILED,), topic="ledger"), limit=9) == 1
    setting.turn(relay)
    assert setting.ids() == [name]


def _gone(*_: object) -> None:
    raise OperationalError("SELECT", {}, ConnectionError("server closed the connection"))


def test_a_row_that_was_claimed_before_the_database_went_away_is_sent_at_once(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed `sending` until its claim ended."""
    first, second = (setting.add(key="k") for _ in range(2))
    relay = setting.relay()
    with monkeypatch.context() as patch:
        patch.setattr(OutboxStore, "_with_gaps", _gone)
        assert relay.turn() == 0.5
    assert "server closed the connection" in relay.trouble
    assert setting.ids() == [first]
    setting.turn(relay, times=3)
    assert setting.ids() == [first, second]
    assert {row["status"] for row in setting.rows().values()} == {"sent"}


def test_a_relay_that_has_nothing_to_ask_for_asks_whether_the_database_is_back(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It said that the database answered again, because no statement had failed."""
    relay = setting.relay(batch=4, window=4)
    relay.turn()
    for number in range(3):
        setting.add(key=f"k{number}")
    setting.broker.hold_receipts = True
    with monkeypatch.context() as patch:
        patch.setattr(OutboxStore, "_with_gaps", _gone)
        assert relay.turn() == 0.5
        patch.setattr("sqlalchemy.Engine.begin", _gone)
        assert relay.turn() == 1.0
    assert len(setting.sent()) == 3
    assert "server closed the connection" in relay.trouble
    relay.turn()
    assert relay.trouble == ""
    assert caplog.messages.count("the database answers again") == 1


def test_a_row_that_was_claimed_before_a_trial_failed_is_sent_at_once(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = setting.add()
    setting.broker.fail_sends(setting.full("ledger"), Unconfirmed("Timeout"))
    relay = setting.relay(backoff=Backoff({"default": (1_000,)}))
    setting.turn(relay)
    setting.clock.advance(60)
    other = setting.add("orders", {"amount": 1}, properties={"uid": "u"})
    claim = OutboxStore.claim

    def only_the_first(store: OutboxStore, *given: int, only: str | None = None, **more: Any) -> object:
        return _gone() if only else claim(store, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(OutboxStore, "claim", only_the_first)
        assert relay.turn() == 0.5
    assert setting.ids("orders") == [other]
    setting.turn(relay)
    assert [setting.rows()[one]["status"] for one in (late, other)] == ["sent", "sent"]


def test_a_database_that_is_gone_for_a_while_costs_nothing(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from sqlalchemy import Engine

    name = setting.add()
    relay = setting.relay()
    relay.turn()
    setting.broker.step()

    def gone(*_: object) -> None:
        raise OperationalError("UPDATE", {}, ConnectionError("server closed the connection"))

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "begin", gone)
        assert [relay.turn() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert relay.busy
    assert relay.turn() < 1
    assert setting.rows()[name]["status"] == "sent"
    assert "server closed the connection" in caplog.text
    assert "the database answers again" in caplog.text

"""Arguments of messages: one rule and one answer for all that sends, before anything is sent or stored."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kodo_consumer import Consumer, Message, Producer, Transfer
from kodo_consumer.core.checks.message_validation import message_arguments
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.outcomes import TransferAsked
from kodo_consumer.outbox import TABLE, Outbox
from kodo_consumer.testing import Harness, MemoryBroker, message
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from kodoctl.errors import UsageError
from tests.unit.consumer.outbox_setting import Setting
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.topologies import write

TOPIC = "persistent://p/n/orders"


class Way(NamedTuple):
    """A way to send. `stored`: properties and key of what was sent; None: nothing was."""

    name: str
    call: Callable[..., Any]
    stored: Callable[[], Any]


ORDERS = """
  orders:
    message_properties: {customer: optional, vip: optional, total: optional}
    subscriptions: {billing: {states: [], in_place: [], dead_letter: false}}
"""
GOOD = {"customer": "anna"}


class Colour(str, enum.Enum):  # noqa: UP042  # whose str() is its name
    RED = "red"


class Rank(enum.IntEnum):
    HIGH = 3


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    found = Setting(f"sqlite:///{tmp_path}/app.db", tmp_path)
    yield found
    found.engine.dispose()


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    found = MemoryBroker(SystemClock())
    found.create(TOPIC)
    pump = Pump(found)
    yield found
    pump.stop()


@pytest.fixture(params=["send", "post", "send_async", "outbox", "harness", "builder"])
def send(request: pytest.FixtureRequest, setting: Setting, broker: MemoryBroker, tmp_path: Path) -> Iterator[Way]:
    consumer = Consumer.load(write(tmp_path, ORDERS), topic="orders", subscription="billing")

    @consumer.handler
    def bill(_: Message) -> None: ...

    harness = Harness(consumer)
    made: list[Any] = []

    def add(payload: Any, **more: Any) -> None:
        with setting.engine.begin() as connection:
            setting.unchecked.add(connection, **{"topic": "ledger", "payload": payload, **more})

    def stored() -> Any:
        match request.param:
            case "builder":
                sent = made
            case "outbox":
                setting.turn(setting.relay())
                sent = setting.sent()
            case "harness":
                sent = [one.message for one in harness.broker.messages(harness.policy.every_lane[0].topic)]
            case _:
                producer.flush()
                sent = [one.message for one in broker.messages(TOPIC)]
        for one in sent:
            return {name: value for name, value in one.properties.items() if not name.startswith("kodo-")}, one.key
        return None

    with Producer(TOPIC, broker) as producer:
        calls: dict[str, Callable[..., Any]] = {
            "send": producer.send,
            "post": producer.post,
            "send_async": lambda *given, **more: asyncio.run(producer.send_async(*given, **more)),
            "outbox": add,
            "harness": harness.send,
            "builder": lambda *given, **more: made.append(message(*given, **more)),
        }
        yield Way(request.param, calls[request.param], stored)
    harness.close()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("anna", "anna"), ("", ""), ("caf\xe9 \U0001f600", "caf\xe9 \U0001f600"), (True, "true"), (False, "false"), (17, "17"),
        (-(10**20), "-100000000000000000000"), (0.5, "0.5"), (1e22, "1e+22"), (Colour.RED, "red"), (Rank.HIGH, "3"),
    ],
)  # fmt: skip
def test_values_of_properties_become_texts_by_one_rule(send: Way, value: Any, text: str) -> None:
    _, call, stored = send
    call(b"x", properties={"customer": value}, key=None)
    assert stored() == ({"customer": text}, "")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "customer is None, not text"), (b"anna", "customer is bytes, not text"),
        ({"id": 7}, "customer is a mapping, not text"), (["anna"], "customer is a list, not text"),
        (Decimal(1), "customer is of type Decimal, not text"), (UUID(int=1), "customer is of type UUID, not text"),
        (float("nan"), "customer is a number, not text"), (float("inf"), "customer is a number, not text"),
        pytest.param(10**5_000, "customer is a number with too many digits", id="5,000 digits"), ("a\ud83d", "customer is no Unicode text"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused_with_the_propertys_name(send: Way, value: Any, said: str) -> None:
    _, call, stored = send
    with pytest.raises(UsageError, match=f"K717 .*{said}"):
        call(b"x", properties={"customer": value})
    assert stored() is None or stored()[0] == {}


def _refused(way: Way, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        way.call(b"x", **given)
    assert way.stored() is None or way.stored()[0] == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": 5}, "K730 .*key is a number, not text"),
        ({"key": b"a"}, "K730 .*key is bytes, not text"),
        ({"key": "\ud800"}, "K730 .*key is no Unicode text"),
        ({"properties": {5: "v"}}, "K717 .*the name '5' is a number, not text"),
        ({"properties": {"a\ud83d": "v"}}, "K717 .*the name 'a.*' is no Unicode text"),
        ({"properties": ["customer"]}, "K717 .*a list, not a mapping"),
        ({"properties": []}, "K717 .*a list, not a mapping"),
        ({"properties": "customer"}, "K717 .*of type str, not a mapping"),
    ],
)
def test_an_argument_of_another_type_is_an_error_of_usage(send: Way, given: dict[str, Any], said: str) -> None:
    _refused(send, given, said)


@pytest.mark.parametrize("send", ["send", "post", "send_async", "outbox"], indirect=True)
@pytest.mark.parametrize(("id", "said"), [(5, "a number"), (0, "a number"), (b"a", "bytes"), ("\ud800", "no Unicode")])
def test_an_identity_of_another_type_is_an_error_of_usage(send: Way, id: Any, said: str) -> None:  # noqa: A002
    _refused(send, {"id": id}, f"K730 .*id is {said}")


@pytest.mark.parametrize("send", ["send", "post", "send_async", "harness"], indirect=True)
@pytest.mark.parametrize("time", ["now", -1, 0.5, 1 << 64, None, True, timedelta(1)])
def test_an_event_time_that_is_none_is_an_error_of_usage(send: Way, time: Any) -> None:
    _refused(send, {"event_time": time}, "K730 .*event_time is .*, not ms since the epoch")


@pytest.mark.parametrize("send", ["post"], indirect=True)
def test_a_callback_that_cannot_be_called_is_an_error_of_usage(send: Way) -> None:
    _refused(send, {"on_receipt": 5}, "K730 .*on_receipt cannot be called")


@pytest.mark.parametrize("send", ["outbox"], indirect=True)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": 5}, "K730 .*topic is a number, not text"),
        ({"topic": ["ledger"]}, "K730 .*topic is a list, not text"),
        ({"biz_code": 5}, "K730 .*biz_code is a number, not text"),
        ({"delay": None}, "K724 .*delay: "),
        ({"delay": timedelta(1)}, "K724 .*delay: .*; write `10s`, or ms"),
        ({"delay": float("inf")}, "K724 .*delay: "),
        ({"delay": float("nan")}, "K724 .*delay: "),
        ({"delay": 1 << 62}, "K724 .*delay: .* is more than 1,000 years"),
    ],
)
def test_what_no_row_can_hold_is_an_error_of_usage(send: Way, given: dict[str, Any], said: str) -> None:
    _refused(send, given, said)


def test_a_property_that_is_required_and_none_is_missing(setting: Setting, tmp_path: Path) -> None:
    outbox = Outbox(send_targets=setting.send_targets)
    with setting.engine.begin() as connection, pytest.raises(UsageError, match="missing: uid"):
        outbox.add(connection, topic="orders", payload={"amount": 1}, properties={"uid": None})  # type: ignore[dict-item]


def test_a_transfer_keeps_the_same_rule() -> None:
    found = Transfer("x", key=None, properties={"vip": True, "total": 5, "customer": Colour.RED}).outcome
    assert found == TransferAsked("x", None, {"vip": "true", "total": "5", "customer": "red"}, None)
    named = Transfer(Colour.RED, key=Colour.RED).outcome
    assert isinstance(named, TransferAsked)
    assert (type(named.topic), type(named.key)) == (str, str), "of a subclass of str nothing crosses to another process"


def test_an_async_session_is_refused_where_its_row_would_not_be_written(tmp_path: Path) -> None:
    """Its `execute` answers something to await: the row was never there, and nobody heard of it."""
    url = f"sqlite:///{tmp_path}/a.db"
    engine = create_engine(url)
    TABLE.create(engine)

    async def work() -> None:
        there = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
        async with AsyncSession(there) as session, session.begin():
            with pytest.raises(UsageError, match=r"K730 .*session is async: .*run_sync"):
                Outbox().add(session, topic="ledger", payload=b"x")  # type: ignore[arg-type]
            await session.run_sync(lambda session: Outbox().add(session, topic="ledger", payload=b"x"))
        await there.dispose()

    asyncio.run(work())
    with engine.connect() as connection:
        assert len(connection.execute(TABLE.select()).all()) == 1
    engine.dispose()


def test_a_time_that_is_no_milliseconds_is_refused_with_everything_else() -> None:
    with pytest.raises(UsageError) as raised:
        message_arguments(key=b"k", event_time="noon")
    assert [one.detail for one in raised.value.diagnostics] == [
        "key is bytes, not text", "event_time is 'noon', not ms since the epoch",
    ]  # fmt: skip

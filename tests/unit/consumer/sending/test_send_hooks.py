"""Interceptors of producers and outboxes: their order, what they may change, vetoes, and news of receipts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kodo_consumer import CheckedMessage, Draft, SendManyError, SentMessage, Veto
from kodo_consumer.core.checks.message_validation import MessageValidator
from kodo_consumer.core.values.broker import Confirmed, Rejected
from kodo_consumer.outbox.outbox import Outbox
from kodo_consumer.outbox.table import TABLE
from kodo_consumer.producer import Producer
from kodo_consumer.testing import MemoryBroker
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from kodoctl.errors import ClusterError, KodoctlError, UsageError
from tests.unit.consumer.pump import pumped

TOPIC = "persistent://p/n/orders"


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with pumped(TOPIC) as broker:
        yield broker


@pytest.fixture
def producer(broker: MemoryBroker) -> Iterator[Producer]:
    with Producer(TOPIC, broker, numbered=False) as producer:
        yield producer


def test_hooks_change_a_message_in_their_order(producer: Producer, broker: MemoryBroker) -> None:
    @producer.interceptor("send")
    def stamp(draft: Draft) -> None:
        draft.options["properties"] = {**(draft.options.get("properties") or {}), "by": "shop"}

    @producer.interceptor("send")
    def wrap(draft: Draft) -> Draft:
        draft.options["key"] = "k"
        return Draft({"wrapped": draft.payload}, **draft.options)

    producer.send(1, properties={"a": "b"})
    producer.post(2)
    producer.flush()
    producer.send_many([3])
    asyncio.run(producer.send_async(4))
    stored = broker.messages(TOPIC)
    assert [one.payload for one in stored] == [b'{"wrapped":%d}' % number for number in (1, 2, 3, 4)]
    assert {one.properties["by"] for one in stored} == {"shop"}
    assert stored[0].properties["a"] == "b"
    assert {one.message.key for one in stored} == {"k"}


def test_what_a_hook_sees_of_a_message_never_has_the_platforms_properties(broker: MemoryBroker) -> None:
    seen: list[dict[str, str]] = []
    with Producer(TOPIC, broker) as producer:

        @producer.interceptor("publish")
        def watch(message: CheckedMessage) -> Callable[..., None]:
            return lambda *_: seen.append(dict(message.properties))

        producer.send(b"x", properties={"a": "b"})
    assert seen == [{"a": "b"}]
    assert {"kodo-id", "kodo-seq", "a"} <= broker.messages(TOPIC)[0].properties.keys()


def test_a_veto_sends_nothing_and_says_why(producer: Producer, broker: MemoryBroker) -> None:
    @producer.interceptor("send")
    def forbid(draft: Draft) -> None:
        raise Veto("not on Sundays")

    for act in (
        lambda: producer.send(b"x"),
        lambda: asyncio.run(producer.send_async(b"x")),
        lambda: producer.post(b"x"),
    ):
        with pytest.raises(UsageError, match=r"K734.*forbid: not on Sundays"):
            act()
    assert broker.messages(TOPIC) == []


def test_a_veto_of_one_message_does_not_stop_the_others_of_a_call(producer: Producer, broker: MemoryBroker) -> None:
    @producer.interceptor("send")
    def forbid(draft: Draft) -> None:
        if draft.payload == 2:
            raise Veto("not the second")

    with pytest.raises(SendManyError, match=r"K733.*1 of 3 messages.*\[1\] K734") as caught:
        producer.send_many([1, 2, 3])
    assert "ended there" not in str(caught.value)
    assert [one.payload for one in broker.messages(TOPIC)] == [b"1", b"3"]


def test_another_exception_of_a_hook_reaches_the_caller_and_nothing_is_sent(
    producer: Producer, broker: MemoryBroker
) -> None:
    producer.interceptor("send")(lambda draft: int("missing"))  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"missing"):
        producer.send(b"x")
    assert broker.messages(TOPIC) == []


def test_async_hooks_are_awaited_by_send_async_alone(producer: Producer, broker: MemoryBroker) -> None:
    @producer.interceptor("send")
    async def sign(draft: Draft) -> Draft:
        await asyncio.sleep(0)
        return Draft(draft.payload + b" signed", **draft.options)

    asyncio.run(producer.send_async(b"x"))
    assert [one.payload for one in broker.messages(TOPIC)] == [b"x signed"]
    with pytest.raises(UsageError, match=r"K735.*sign is async: only send_async awaits it"):
        producer.send(b"x")


def test_receipts_are_told_with_identity_topic_and_draft(
    producer: Producer, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[SentMessage] = []
    failed: list[tuple[SentMessage, KodoctlError]] = []

    @producer.interceptor("sent")
    def broken(_: SentMessage) -> None:
        raise ValueError("hook")

    producer.interceptor("sent")(sent.append)
    producer.interceptor("failed")(lambda message, problem: failed.append((message, problem)))
    name = producer.send(b"x", key="k")
    producer.send(b"y")
    first = sent[0]
    assert (first.id, first.topic, first.draft.options) == (name, TOPIC, {"key": "k"})
    assert caplog.text.count("interceptor") == 1, "once in 10 s"
    broker.fail_sends(TOPIC, Rejected("no"))
    with pytest.raises(ClusterError) as raised:
        producer.send(b"z", id="mine")
    ((message, problem),) = failed
    assert (message.id, str(problem)) == ("mine", str(raised.value))
    assert len(sent) == 2


def _two(one: object, other: object) -> None: ...


async def _later(message: object) -> None: ...


def _coroutine(message: object) -> object:
    return _later(message)


def test_a_hook_before_publishing_knows_the_message_and_hears_its_outcome_once(
    producer: Producer, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: list[tuple[str, object]] = []
    checked: list[CheckedMessage] = []

    @producer.interceptor("publish")
    def follow(message: CheckedMessage) -> Callable[[object], None]:
        checked.append(message)
        message.add_properties({"by": f"{message.key}:{(message.payload or b'').decode()}", "n": 3})
        return lambda outcome: outcomes.append((message.id, outcome))

    @producer.interceptor("publish")
    def broken(message: CheckedMessage) -> Callable[[object], int]:
        return lambda _: int("broken")

    producer.interceptor("publish")(lambda message: None)
    name = producer.send("x", key="k", properties={"by": "me", "a": "b"})
    asyncio.run(producer.send_async(b"y"))
    stored = broker.messages(TOPIC)[0].properties
    assert (stored["by"], stored["n"], stored["a"]) == ('k:"x"', "3", "b")
    assert (repr(checked[0]), checked[0].properties["a"]) == (f"CheckedMessage({name!r}, {TOPIC!r})", "b")
    assert outcomes[0][0] == name
    assert isinstance(outcomes[0][1], Confirmed)
    assert caplog.text.count("interceptor") == 1, "once in 10 s, though each message has a function of its own"
    broker.fail_sends(TOPIC, Rejected("no"))
    with pytest.raises(ClusterError):
        producer.send(b"z")
    with pytest.raises(UsageError, match="K716"):
        producer.send({1, 2})
    assert outcomes[2:] == [(checked[2].id, Rejected("no"))], "what the check refuses is not published"


@pytest.mark.parametrize(
    ("stop", "refusal"),
    [
        (lambda message: message.add_properties({"kodo-id": "x"}), "K717.*reserved: kodo-id"),
        (lambda message: message.add_properties({"customer": None, "more": "x"}), r"K717.*not declared: more[\s\S]*customer is None"),
        (lambda message: message.add_properties([("customer", "x")]), "K717.*list, not a mapping of names to texts"),
        (lambda message: message.properties.update(a="b"), "no attribute 'update'"),
        (lambda message: True, "K735.*returned bool: return None or a function"),
        (_coroutine, "K735.*returned coroutine"),
    ],
)  # fmt: skip
def test_a_hook_before_publishing_that_fails_keeps_the_message_and_ends_what_others_began(
    broker: MemoryBroker, stop: Callable[[CheckedMessage], Any], refusal: str
) -> None:
    form, outcomes = MessageValidator(properties={"customer": "optional"}), list[object]()
    with Producer(TOPIC, broker, form=form, numbered=False) as producer:
        producer.interceptor("publish")(lambda message: outcomes.append)
        producer.interceptor("publish")(stop)
        with pytest.raises((UsageError, AttributeError), match=refusal) as raised:
            producer.post(b"x")
    assert outcomes == [raised.value]
    assert broker.messages(TOPIC) == []


def test_hooks_that_nobody_awaits_are_logged(producer: Producer, caplog: pytest.LogCaptureFixture) -> None:
    """An async function for the outcome never ran, and nothing named it."""
    producer.interceptor("publish")(lambda message: _later)
    producer.interceptor("sent")(_coroutine)
    producer.send(b"x")
    for name in ("_later", "_coroutine"):
        assert f"{name} is async, and receipts come on a thread: it would never run" in caplog.text


def test_a_hook_that_exits_keeps_no_receipt_from_its_caller(
    producer: Producer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.producer.RECEIPT_TIMEOUT", 5.0)
    heard: list[str] = []
    producer.interceptor("publish")(lambda message: lambda outcome: sys.exit(1))
    producer.interceptor("sent")(lambda message: sys.exit(2))
    producer.interceptor("sent")(lambda message: heard.append(message.id))
    assert heard == [producer.send(b"x")]
    assert len(caplog.records) == 2


def test_a_veto_before_publishing_is_one(producer: Producer, broker: MemoryBroker) -> None:
    @producer.interceptor("publish")
    def forbid(message: CheckedMessage) -> None:
        raise Veto("not there")

    with pytest.raises(UsageError, match=r"K734.*forbid: not there"):
        producer.send(b"x")
    assert broker.messages(TOPIC) == []


def test_numbers_follow_the_order_of_sending_whatever_hooks_do() -> None:
    """A number that a hook gave could be missing or come late, which readers take for a loss."""
    with pumped(TOPIC) as broker, Producer(TOPIC, broker) as producer:

        @producer.interceptor("publish")
        def some(message: CheckedMessage) -> None:
            if message.payload == b"1":
                raise Veto("this one")
            if message.payload == b"2":
                producer.post(b"inner")

        for number in range(4):
            with suppress(UsageError):
                producer.post(b"%d" % number)
        producer.flush()
        sent = [(one.payload, one.properties["kodo-seq"].rpartition(":")[2]) for one in broker.messages(TOPIC)]
    assert sent[:4] == [(b"0", "1"), (b"inner", "2"), (b"2", "3"), (b"3", "4")]


@pytest.mark.parametrize(
    ("moment", "hook", "refusal"),
    [
        ("before", print, "'before': there is send, publish, sent, failed"),
        ("sent", _two, "_two is called with the message: missing a required argument: 'other'"),
        ("failed", lambda message: None, "is called with the message and the error: too many positional arguments"),
        ("sent", _later, "_later is async, and receipts come on a thread: it would never run"),
        ("publish", _later, "_later is async, and nothing is awaited between check and send: it would never run"),
    ],
)
def test_hooks_that_cannot_be_called_are_refused(producer: Producer, moment: Any, hook: Any, refusal: str) -> None:
    with pytest.raises(UsageError, match="K735") as raised:
        producer.interceptor(moment)(hook)
    assert refusal in str(raised.value)
    producer.interceptor("send")(min)  # type: ignore[type-var]  # without a signature


def test_what_a_hook_returns_is_nothing_or_a_draft(producer: Producer) -> None:
    producer.interceptor("send")(lambda draft: True)  # type: ignore[type-var]
    with pytest.raises(UsageError, match=r"K735.*returned bool: return None or a Draft"):
        producer.send(b"x")


def test_hooks_of_an_outbox_change_the_row_before_it_is_written() -> None:
    engine = create_engine("sqlite://")
    TABLE.metadata.create_all(engine)
    outbox = Outbox()

    @outbox.interceptor("send")
    def stamp(draft: Draft) -> Draft:
        return Draft(b"stamped", key="k", id="mine", properties={"by": "shop"})

    with Session(engine) as session, session.begin():
        assert outbox.add(session, topic="orders", payload=b"x") == "mine"
        row = session.execute(TABLE.select()).one()
    assert (bytes(row.body), row.key, row.properties) == (b"stamped", "k", '{"by": "shop"}')
    outbox.interceptor("send")(lambda draft: Draft(b"", event_time=5))
    with Session(engine) as session, session.begin(), pytest.raises(UsageError, match=r"K735.*no option event_time"):
        outbox.add(session, topic="orders", payload=b"x")
    with pytest.raises(UsageError, match=r"K735.*'sent': there is send, publish"):
        outbox.interceptor("sent")(print)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match=r"K735.*_later is async: only send_async awaits it"):
        outbox.interceptor("send")(_later)


def test_a_hook_of_an_outbox_before_a_row_is_written_adds_properties_and_hears_nothing() -> None:
    engine = create_engine("sqlite://")
    TABLE.metadata.create_all(engine)
    outbox = Outbox()

    @outbox.interceptor("publish")
    def stamp(message: CheckedMessage) -> None:
        message.add_properties({"by": f"{message.topic}{message.id}"})

    with Session(engine) as session, session.begin():
        outbox.add(session, topic="orders", payload=b"x")
        outbox.add(session, topic="orders", payload=b"y", id="mine")
        rows = [row.properties for row in session.execute(TABLE.select().order_by(TABLE.c.body))]
        assert rows == ['{"by": "orders"}', '{"by": "ordersmine"}']
        outbox.interceptor("publish")(lambda message: print)  # type: ignore[type-var]
        with pytest.raises(UsageError, match=r"K735.*would never be called: receipts come to the relay"):
            outbox.add(session, topic="orders", payload=b"z")


@pytest.mark.parametrize("waits", [False, True])
def test_a_message_that_is_given_up_is_told_as_failed(
    producer: Producer, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    """Its caller got an error, and no hook heard of it."""
    monkeypatch.setattr("kodo_consumer.producer.RECEIPT_TIMEOUT", 0.05)
    failed: list[tuple[str, str]] = []
    producer.interceptor("failed")(lambda message, problem: failed.append((message.id, str(problem))))
    broker.hold_receipts = True
    with pytest.raises(ClusterError, match=r"K715 .*no receipt in time") as raised:
        asyncio.run(producer.send_async(b"x", id="mine")) if waits else producer.send(b"x", id="mine")
    broker.hold_receipts = False
    assert failed == [("mine", str(raised.value))]

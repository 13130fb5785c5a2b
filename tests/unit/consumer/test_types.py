"""Types of the decorators: mypy, which `make check` runs strictly, and pyright (test_pyright) accept what works and
refuse what would not.

A `type: ignore` that they do not need is an error itself: each one here is a signature that the types have to refuse.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from kodo_consumer import (
    AsyncHandle,
    CheckedMessage,
    Consumer,
    Depends,
    Draft,
    Handle,
    Message,
    Producer,
    SentMessage,
)
from kodo_consumer.errors import UsageError
from kodo_consumer.outbox import Outbox

from tests.unit.consumer.pump import pumped
from tests.unit.consumer.topologies import write

TOPIC = "persistent://p/n/orders"


@dataclass
class Order:
    amount: int


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return Consumer.load(write(tmp_path, "  J: {subscriptions: {s: {}}}\n"), environ={})


@pytest.fixture
def producer() -> Iterator[Producer]:
    with pumped(TOPIC) as broker, Producer(TOPIC, broker, numbered=False) as producer:
        yield producer


def number() -> int:
    return 3


def test_what_works_is_accepted(consumer: Consumer) -> None:
    @consumer.handler
    def plain(message: Message) -> None: ...

    @consumer.handler
    async def typed(message: Message[Order]) -> None:
        assert message.value.amount

    @consumer.handler
    def with_value(message: Message, n: Annotated[int, Depends(number)]) -> None: ...

    @consumer.batch_handler(max=3)
    def batch(messages: list[Message[Order]]) -> None: ...

    @consumer.middleware
    def around(message: Message, handle: Handle) -> None:
        handle(message)

    @consumer.middleware("handle")
    async def around_later(message: Message, handle: AsyncHandle) -> None:
        await handle(message)

    @consumer.middleware
    def around_all(messages: list[Message[Order]], handle: Handle) -> None:
        handle(messages)

    @consumer.middleware("decide")
    def decide(message: Message, raised: BaseException | None) -> BaseException | None:
        return raised

    @consumer.middleware("receive")
    def receive(message: Message) -> None: ...

    @consumer.middleware("redact")
    def redact(text: str) -> str:
        return text

    @consumer.middleware("acknowledged")
    async def note(message: Message, rule: str) -> None: ...

    @consumer.lifespan
    def pool() -> Iterator[int]:
        yield 1

    @consumer.lifespan
    async def later() -> AsyncIterator[int]:
        yield 1

    assert plain.__name__ == "plain", "a decorated function stays what it is"


def test_interceptors_that_work_are_accepted(producer: Producer) -> None:
    @producer.interceptor("send")
    def change(draft: Draft) -> None: ...

    @producer.interceptor("send")
    async def replace(draft: Draft) -> Draft:
        return draft

    @producer.interceptor("publish")
    def measure(message: CheckedMessage) -> Callable[[object], None]:
        return print

    @producer.interceptor("publish")
    def stamp(message: CheckedMessage) -> None:
        message.add_properties({"source": "shop", "attempt": 1})

    @producer.interceptor("sent")
    def sent(message: SentMessage) -> None: ...

    @producer.interceptor("failed")
    def failed(message: SentMessage, problem: Exception) -> None: ...

    @Outbox().interceptor("publish")
    def of_row(message: CheckedMessage) -> None: ...

    assert (change.__name__, of_row.__name__) == ("change", "of_row")


def test_interceptors_that_would_not_work_are_refused(producer: Producer) -> None:
    def of_message(message: Message) -> None: ...

    def number_of(draft: Draft) -> int:
        return 1

    async def later(message: CheckedMessage) -> None: ...

    def alone(message: SentMessage) -> None: ...

    for add in (
        lambda: producer.interceptor("send")(number_of),  # type: ignore[type-var]
        lambda: producer.interceptor("publish")(later),  # type: ignore[type-var]
        lambda: producer.interceptor("failed")(alone),  # type: ignore[type-var]
        lambda: producer.interceptor("sent")(of_message),  # type: ignore[type-var]
        lambda: producer.interceptor("before"),  # type: ignore[call-overload]
    ):
        with suppress(UsageError):
            add()


def test_what_would_not_work_is_refused(consumer: Consumer) -> None:
    def of_text(message: str) -> None: ...

    def of_number(messages: int) -> None: ...

    def alone(message: Message) -> None: ...

    def around_text(message: str, handle: Handle) -> None: ...

    def of_bytes(text: bytes) -> bytes:
        return text

    consumer.handler(of_text)  # type: ignore[type-var]
    consumer.batch_handler(of_number)  # type: ignore[type-var]
    consumer.middleware(alone)  # type: ignore[type-var]
    consumer.middleware("redact")(of_bytes)  # type: ignore[type-var]
    consumer.middleware(around_text)  # type: ignore[type-var]
    consumer.middleware("decide")(around_text)  # type: ignore[type-var]

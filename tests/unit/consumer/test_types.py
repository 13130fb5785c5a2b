"""Types of the decorators: mypy, which `make check` runs strictly, accepts what works and refuses what would not.

A `type: ignore` that mypy does not need is an error itself: each one here is a signature that the types have to refuse.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from kodo_consumer import AsyncHandle, Consumer, Depends, Handle, Message

from tests.unit.consumer.topologies import write


@dataclass
class Order:
    amount: int


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return Consumer.load(write(tmp_path, "  J: {subscriptions: {s: {}}}\n"), environ={})


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

    @consumer.middleware("decide")
    def decide(message: Message, raised: BaseException | None) -> BaseException | None:
        return raised

    @consumer.middleware("receive")
    def receive(message: Message) -> None: ...

    @consumer.middleware("redact")
    def redact(text: str) -> str:
        return text

    @consumer.lifespan
    def pool() -> Iterator[int]:
        yield 1

    @consumer.lifespan
    async def later() -> AsyncIterator[int]:
        yield 1

    assert plain.__name__ == "plain", "a decorated function stays what it is"


def test_what_would_not_work_is_refused(consumer: Consumer) -> None:
    def of_text(message: str) -> None: ...

    def of_number(messages: int) -> None: ...

    def alone(message: Message) -> None: ...

    def of_bytes(text: bytes) -> bytes:
        return text

    consumer.handler(of_text)  # type: ignore[type-var]
    consumer.batch_handler(of_number)  # type: ignore[type-var]
    consumer.middleware(alone)  # type: ignore[type-var]
    consumer.middleware("redact")(of_bytes)  # type: ignore[type-var]

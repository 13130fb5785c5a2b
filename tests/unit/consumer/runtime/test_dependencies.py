"""Dependencies of handlers: which values they get, when providers run and end, and what is refused at the declaration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any

import pytest
from kodo_consumer import Depends, Message
from kodo_consumer.runtime.dependencies import has_dependencies, inject

from kodoctl.errors import UsageError

log: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    log.clear()


def pool() -> Iterator[str]:
    """A lifespan."""
    raise AssertionError("a lifespan is not called for a message")


def number() -> int:
    log.append("number")
    return 7


def session(pool: Annotated[str, Depends(pool)], number: Annotated[int, Depends(number)]) -> Iterator[str]:
    log.append("begin")
    try:
        yield f"{pool}-{number}"
    except ValueError:
        log.append("rollback")
        raise
    log.append("commit")


def name_of(message: Message[Any], *more: object, limit: int = 3, **others: object) -> str:
    return str(message)[:limit]


async def later(name: Annotated[str, Depends(name_of)]) -> str:
    await asyncio.sleep(0)
    return name.upper()


async def connection() -> AsyncIterator[str]:
    log.append("open")
    yield "connection"
    log.append("close")


class Clock:
    def __call__(self) -> str:
        return "noon"


def test_a_function_without_dependencies_stays_as_it_is() -> None:
    def handle(message: Message, note: Annotated[str, "no dependency"] = "") -> None: ...

    assert inject(handle, {}) is handle
    assert not has_dependencies(print)


def test_values_are_made_for_each_message_and_once_for_all_who_ask() -> None:
    lasting: dict[Callable[..., Any], Any] = {pool: None}

    def handle(
        message: str,
        s: Annotated[str, Depends(session)],
        n: Annotated[int, Depends(number)],
        *,
        at: Annotated[str, Depends(Clock())],
    ) -> tuple[str, str, int, str]:
        log.append("handle")
        return message, s, n, at

    run = inject(handle, lasting)
    lasting[pool] = "pool"  # entered after the declaration
    assert run("m1") == ("m1", "pool-7", 7, "noon")
    assert log == ["number", "begin", "handle", "commit"]
    run("m2")
    assert log.count("number") == 2
    assert getattr(run, "__name__", "") == "handle"


def test_a_generator_gets_the_exception_of_the_handler() -> None:
    def handle(message: str, s: Annotated[str, Depends(session)]) -> None:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        inject(handle, {pool: "pool"})("m")
    assert log == ["number", "begin", "rollback"]


def test_async_handlers_await_providers_and_leave_generators_of_both_kinds() -> None:
    async def handle(
        message: str,
        name: Annotated[str, Depends(later)],
        c: Annotated[str, Depends(connection)],
        s: Annotated[str, Depends(session)],
    ) -> list[str]:
        return [message, name, c, s]

    async def quick(message: str, p: Annotated[str, Depends(pool)], n: Annotated[int, Depends(number)]) -> list[object]:
        return [message, p, n]

    run: Callable[[Any], Awaitable[list[object]]] = inject(handle, {pool: "pool"})
    assert asyncio.run(_awaited(run("message"))) == ["message", "MES", "connection", "pool-7"]
    assert log == ["open", "number", "begin", "commit", "close"]
    assert asyncio.run(_awaited(inject(quick, {pool: "pool"})("m"))) == ["m", "pool", 7]


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _unannotated(value) -> None: ...


def _loop(value: Annotated[int, Depends(number)]) -> int:
    return value


_loop.__annotations__["value"] = Annotated[int, Depends(_loop)]


@pytest.mark.parametrize(
    ("provider", "batches", "refusal"),
    [
        (
            _unannotated,
            False,
            "_unannotated has the parameter value: it can only be a Message, or Annotated[…, Depends(…)]",
        ),
        (name_of, True, "name_of has the parameter message: it can only be Annotated[…, Depends(…)]"),
        (later, False, "later is async, and the handler"),
        (connection, False, "connection is async, and the handler"),
        (_loop, False, "_loop depends on itself"),
    ],
)
def test_providers_that_cannot_be_called_are_refused(provider: Any, batches: bool, refusal: str) -> None:
    def handle(message: Any, value: Any) -> None: ...

    handle.__annotations__["value"] = Annotated[Any, Depends(provider)]
    with pytest.raises(UsageError) as raised:
        inject(handle, {}, batches=batches)
    assert any(refusal in one.detail and one.code == "K768" for one in raised.value.diagnostics)


def test_a_provider_that_the_module_does_not_know_is_named() -> None:
    def local() -> int:
        return 3

    def handle(message: Any, value: Annotated[int, Depends(local)]) -> None: ...

    with pytest.raises(UsageError, match=r"K753.*handle: name 'local' is not defined; define in the module"):
        inject(handle, {})

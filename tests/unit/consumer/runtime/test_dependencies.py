"""Dependencies of handlers: which values they get, when providers run and end, and what is refused at the declaration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest
from kodo_consumer import Depends, Message
from kodo_consumer.runtime.dependencies import LIFESPANS, inject
from kodo_consumer.runtime.handler_results import NotAwaitedError

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
    assert inject(print, {}) is print


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


def test_a_provider_whose_annotation_cannot_be_read_hides_no_other_finding() -> None:
    def local() -> int:
        return 3

    def price(value: Annotated[int, Depends(local)]) -> int:
        return value

    def handle(message: Any, value: Any, other: Any) -> None: ...

    handle.__annotations__ |= {"value": Annotated[Any, Depends(price)], "other": Annotated[Any, Depends(later)]}
    with pytest.raises(UsageError) as caught:
        inject(handle, {})
    unread, is_async = caught.value.diagnostics
    assert (unread.code, is_async.code) == ("K753", "K768")
    assert "price: name 'local' is not defined" in unread.detail


def _swallowing() -> Iterator[int]:
    try:
        yield 1
    except ValueError:
        log.append("swallowed")


@contextmanager
def _opened() -> Iterator[str]:
    yield "opened"
    log.append("closed")


async def _never_awaited() -> int:
    return 1


def _forgets_to_await() -> Any:
    return _never_awaited()


class Price:
    def __init__(self, message: Message) -> None:
        self.of = message


def test_an_exception_that_a_provider_swallows_is_the_handlers_all_the_same() -> None:
    def fail(message: Any, value: Annotated[int, Depends(_swallowing)]) -> None:
        raise ValueError("handler")

    async def fail_later(message: Any, value: Annotated[int, Depends(_swallowing)]) -> None:
        raise ValueError("handler")

    with pytest.raises(ValueError, match="handler"):
        inject(fail, {})("m")
    with pytest.raises(ValueError, match="handler"):
        asyncio.run(_awaited(inject(fail_later, {})("m")))
    assert log == ["swallowed", "swallowed"]


def _failing(value: Annotated[int, Depends(_swallowing)]) -> int:
    raise ValueError("provider")


def test_an_exception_of_a_provider_that_another_one_swallows_fails_the_message_too() -> None:
    def handle(message: Any, value: Annotated[int, Depends(_failing)]) -> None: ...

    async def handle_later(message: Any, value: Annotated[int, Depends(_failing)]) -> None: ...

    with pytest.raises(ValueError, match="provider"):
        inject(handle, {})("m")
    with pytest.raises(ValueError, match="provider"):
        asyncio.run(_awaited(inject(handle_later, {})("m")))
    assert log == ["swallowed", "swallowed"]


def test_a_provider_is_left_with_the_exception_that_a_later_one_swallows() -> None:
    def handle(message: Any, s: Annotated[str, Depends(session)], value: Annotated[int, Depends(_swallowing)]) -> None:
        raise ValueError("handler")

    with pytest.raises(ValueError, match="handler"):
        inject(handle, {pool: "pool"})("m")
    assert log == ["number", "begin", "swallowed", "rollback"]


def test_providers_may_be_decorated_as_context_managers_and_may_be_classes() -> None:
    def handle(message: Any, text: Annotated[str, Depends(_opened)], price: Annotated[Price, Depends(Price)]) -> Any:
        log.append(text)
        return price.of

    assert inject(handle, {})("m") == "m"
    assert log == ["opened", "closed"]


def test_what_the_handler_returns_counts_before_its_providers_are_left() -> None:
    def handle(message: Any, s: Annotated[str, Depends(session)]) -> Exception:
        return ValueError("returned")

    def judge(message: Any, **values: Any) -> None:
        raise handle(message, **values)

    with pytest.raises(ValueError, match="returned"):
        inject(handle, {pool: "pool"}, call=judge)("m")
    assert log == ["number", "begin", "rollback"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_provider_whose_work_nobody_awaits_fails_the_message(is_async: bool) -> None:
    def handle(message: Any, value: Annotated[int, Depends(_forgets_to_await)]) -> None: ...

    async def later(message: Any, value: Annotated[int, Depends(_forgets_to_await)]) -> None: ...

    with pytest.raises(NotAwaitedError, match="nobody awaits"):
        asyncio.run(_awaited(inject(later, {})("m"))) if is_async else inject(handle, {})("m")


def _as_default(message: Any, value: Any = Depends(number)) -> None: ...  # noqa: B008


def _in_a_union(message: Any, value: Annotated[int, Depends(number)] | None = None) -> None: ...


def _by_position(message: Any, value: Annotated[int, Depends(number)], /) -> None: ...


def _of_another(message: Any, value: Annotated[int, Depends(pool)]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "refusal"),
    [
        (_as_default, "_as_default: write `value: Annotated[…, Depends(…)]`, without a default"),
        (_in_a_union, "_in_a_union: write `value: Annotated[…, Depends(…)]`, without a default"),
        (_by_position, "_by_position has the parameter value before `/`: values go by name"),
        (_of_another, "pool is a lifespan, and not of this consumer"),
    ],
)
def test_dependencies_that_nobody_would_provide_are_refused(handler: Any, refusal: str) -> None:
    LIFESPANS.add(pool)
    with pytest.raises(UsageError) as raised:
        inject(handler, {})
    LIFESPANS.discard(pool)
    assert refusal in [one.detail for one in raised.value.diagnostics]


@pytest.mark.parametrize("provider", [None, 3, []])
def test_a_provider_is_a_function(provider: Any) -> None:
    with pytest.raises(UsageError, match=r"K768.*is no provider: Depends takes a function, without calling it"):
        Depends(provider)

"""What a handler's dependencies and middleware cost for each message, dependencies beside fast-depends, in one run.

    python -m benchmarks.consumer.injection [--calls 200]

Prints microseconds a call: the best of 200 rounds, in which the arms take turns. Needs `pip install fast-depends` for
its arms; without it they are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import time
import timeit
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from kodo_consumer import Depends
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.message import parts_of
from kodo_consumer.runtime.dependencies import inject
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.testing import message

ROUNDS = 200


def value() -> int:
    """A provider that costs next to nothing."""
    return 1


def session() -> Iterator[int]:
    """A provider with an end."""
    yield 1


def no_dependency(message: Any) -> None:
    """A handler without dependencies."""


def one_value(message: Any, n: Annotated[int, Depends(value)]) -> None:
    """A handler with one value."""


def one_session(message: Any, n: Annotated[int, Depends(session)]) -> None:
    """A handler with one context."""


async def no_dependency_async(message: Any) -> None:
    """An async handler without dependencies."""


async def one_value_async(message: Any, n: Annotated[int, Depends(value)]) -> None:
    """An async handler with one value."""


async def one_session_async(message: Any, n: Annotated[int, Depends(session)]) -> None:
    """An async handler with one context."""


def around(_: Any, handle: Callable[[Any], Any]) -> Any:
    """A hook around the handler, plain or async, that only calls it."""
    return handle(None)


def decided(message: Any, raised: Any) -> None:
    """A hook that leaves the decision as it is."""


def _with_hooks(function: Callable[[Any], Any], *, is_async: bool = False, **hooks: Callable[..., Any]) -> Any:
    found = Hooks()
    for name, hook in hooks.items():
        found.add(name, hook)  # type: ignore[arg-type]
    return found.around(function, is_async=is_async)


def _received() -> Callable[[Any], Any]:
    """One message that is shown to a hook around `receive`."""
    delivery, lane = parts_of(message(b"x"))[:2]
    policy = Policy(ground="t", subscription="s", lanes=(lane,), targets={}, dead_letter=None, waits={})
    hooks = Hooks()
    hooks.add("receive", no_dependency)
    return lambda _: hooks.on_messages(policy, lane, (delivery,), None)


def _others() -> dict[str, Callable[[Any], Any]]:
    if importlib.util.find_spec("fast_depends") is None:
        return {}
    from fast_depends import Depends as Other
    from fast_depends import inject as other_inject

    def with_value(message: Any, n: Any) -> None: ...

    def with_session(message: Any, n: Any) -> None: ...

    with_value.__annotations__["n"] = Annotated[Any, Other(value)]
    with_session.__annotations__["n"] = Annotated[Any, Other(session)]
    return {
        "one value, fast-depends": other_inject(with_value),
        "one context, fast-depends": other_inject(with_session),
    }


def _per_call(function: Callable[[Any], Any], calls: int) -> float:
    return timeit.timeit(lambda: function(0), number=calls) / calls * 1e6


def _per_await(function: Callable[[Any], Any], calls: int) -> float:
    async def run() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            await function(0)
        return time.perf_counter() - began

    return asyncio.run(run()) / calls * 1e6


def main() -> None:
    """Measures every arm and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    calls = parser.parse_args().calls
    plain: dict[str, Callable[[Any], Any]] = {
        "no dependency": inject(no_dependency, {}), "one value": inject(one_value, {}),
        "one value that lasts": inject(one_value, {value: 1}), "one context": inject(one_session, {}), **_others(),
        "no middleware": _with_hooks(no_dependency), "a hook on receipt": _received(),
        "one around the handler": _with_hooks(no_dependency, handle=around),
        "one on the decision": _with_hooks(no_dependency, decide=decided),
    }  # fmt: skip
    later = {
        "no dependency, async": inject(no_dependency_async, {}), "one value, async": inject(one_value_async, {}),
        "one context, async": inject(one_session_async, {}),
        "no middleware, async": _with_hooks(no_dependency_async, is_async=True),
        "one around the handler, async": _with_hooks(no_dependency_async, is_async=True, handle=around),
        "one on the decision, async": _with_hooks(no_dependency_async, is_async=True, decide=decided),
    }  # fmt: skip
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for arms, measure in ((plain, _per_call), (later, _per_await)):
            for name, function in arms.items():
                best[name] = min(best.get(name, float("inf")), measure(function, calls))
    for name, microseconds in best.items():
        print(f"{name:30} {microseconds:6.2f} µs")


if __name__ == "__main__":
    main()

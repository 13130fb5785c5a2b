"""The reference consumer and producer of a kodoctl topology.

    from kodo_consumer import Consumer, Message, Dead

    consumer = Consumer.load("topologies/trade.yaml", topic="orders", subscription="billing")

    @consumer.handler
    async def bill(message: Message) -> None: ...

    consumer.run()

Everything is imported when first used: `import kodo_consumer` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kodo_consumer.consumer import Consumer
    from kodo_consumer.core.exceptions import (
        Blocking,
        Dead,
        Discard,
        HandlerFailedError,
        MoveTo,
        Pending,
        Repeat,
        Retry,
        Transfer,
        Unavailable,
    )
    from kodo_consumer.message import Message
    from kodo_consumer.multi_run import run_all
    from kodo_consumer.producer import Producer

_HOMES = {
    "Consumer": "consumer", "Message": "message", "Producer": "producer",
    "Retry": "core.exceptions", "Pending": "core.exceptions", "Blocking": "core.exceptions", "Dead": "core.exceptions", "Discard": "core.exceptions",
    "MoveTo": "core.exceptions", "Transfer": "core.exceptions", "Unavailable": "core.exceptions", "Repeat": "core.exceptions",
    "HandlerFailedError": "core.exceptions", "run_all": "multi_run",
}  # fmt: skip
__all__ = [
    "Blocking", "Consumer", "Dead", "Discard", "HandlerFailedError", "Message", "MoveTo", "Pending", "Producer",
    "Repeat", "Retry", "Transfer", "Unavailable", "run_all",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

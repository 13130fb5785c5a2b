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
    from kodo_consumer.core.checks.message_validation import CheckedMessage
    from kodo_consumer.core.values.broker import Confirmed, Rejected, Unconfirmed
    from kodo_consumer.core.values.deferral import Deferral
    from kodo_consumer.core.values.exceptions import (
        Blocking,
        Dead,
        Discard,
        HandlerFailedError,
        MoveTo,
        Pending,
        Postpone,
        Repeat,
        Retry,
        Transfer,
        Unavailable,
    )
    from kodo_consumer.message import Message
    from kodo_consumer.producer import Producer
    from kodo_consumer.running.multi_run import run_all
    from kodo_consumer.runtime.dependencies import Depends
    from kodo_consumer.runtime.middleware import AsyncHandle, Handle
    from kodo_consumer.sending.many_sends import SendManyError
    from kodo_consumer.sending.send_hooks import Draft, SentMessage, Veto

_HOMES = {
    "Consumer": "consumer", "Deferral": "core.values.deferral", "Message": "message", "Producer": "producer",
    "Retry": "core.values.exceptions", "Pending": "core.values.exceptions", "Blocking": "core.values.exceptions", "Dead": "core.values.exceptions", "Discard": "core.values.exceptions",
    "MoveTo": "core.values.exceptions", "Postpone": "core.values.exceptions", "Transfer": "core.values.exceptions", "Unavailable": "core.values.exceptions", "Repeat": "core.values.exceptions",
    "HandlerFailedError": "core.values.exceptions", "run_all": "running.multi_run", "Depends": "runtime.dependencies",
    "Handle": "runtime.middleware", "AsyncHandle": "runtime.middleware", "Draft": "sending.send_hooks", "SentMessage": "sending.send_hooks", "Veto": "sending.send_hooks", "SendManyError": "sending.many_sends",
    "CheckedMessage": "core.checks.message_validation", "Confirmed": "core.values.broker", "Rejected": "core.values.broker", "Unconfirmed": "core.values.broker",
}  # fmt: skip
__all__ = [
    "AsyncHandle", "Blocking", "CheckedMessage", "Confirmed", "Consumer", "Dead", "Deferral", "Depends", "Discard", "Draft", "Handle", "HandlerFailedError", "Message",
    "MoveTo", "Pending", "Postpone", "Producer", "Rejected", "Repeat", "Retry", "SendManyError", "SentMessage", "Transfer", "Unavailable", "Unconfirmed", "Veto", "run_all",
]  # fmt: skip
_MODULES = ("dedup", "errors", "inbox", "outbox", "testing")


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

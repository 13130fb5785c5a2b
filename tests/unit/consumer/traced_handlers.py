"""A handler that processes of the pool import, as an application that traces would write it."""

from __future__ import annotations

import os
from pathlib import Path

from kodo_consumer.core.values.exceptions import Discard
from kodo_consumer.message import Message
from opentelemetry import trace


def handle(message: Message) -> None:
    """`where`: discards with the span it finds itself in; `once:FILE`: ends its process the first time; `fail`."""
    word, _, argument = message.text().partition(":")
    if word == "where":
        raise Discard(f"{trace.get_current_span().get_span_context().span_id:016x}")
    if word == "fail":
        raise ValueError(argument)
    if word == "once" and not Path(argument).exists():
        Path(argument).touch()
        os._exit(3)

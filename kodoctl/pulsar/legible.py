"""What is text of a message whose properties or keys are not: clients in other languages send any bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def legible(message: Any) -> tuple[dict[str, str], str, str, str]:
    """Properties, key and ordering key as far as they are text, and what is lost, in words; for a message of the client's that
    raises UnicodeDecodeError. The client gives all properties or none.
    """
    lost: list[str] = []

    def read(what: str, ask: Callable[[], Any], nothing: Any) -> Any:
        try:
            return ask()
        except UnicodeDecodeError:
            lost.append(what)
            return nothing

    properties = read("properties", message.properties, {})
    key = read("key", message.partition_key, "")
    ordering_key = read("ordering key", message.ordering_key, "")
    return properties, key, ordering_key, f"not UTF-8 text, and lost: {', '.join(lost)}"

"""The trace context that a message carries in its properties, as the process's propagator writes it: `traceparent`, mostly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import extract, get_global_textmap, inject


def read(properties: Mapping[str, str]) -> Context:
    """The context that a message carries, and nothing of the caller's; an empty one where it carries none."""
    return extract(properties, Context())


def written(context: Context | None = None) -> dict[str, str]:
    """The properties that carry a context; None: the caller's own."""
    carrier: dict[str, str] = {}
    inject(carrier, context)
    return carrier


def present(properties: Mapping[str, str]) -> bool:
    """Whether a message carries a context."""
    return not get_global_textmap().fields.isdisjoint(properties)


@contextmanager
def within(carrier: Mapping[str, str]) -> Iterator[None]:
    """What runs in it runs in the context that is carried."""
    token = attach(read(carrier))
    try:
        yield
    finally:
        detach(token)

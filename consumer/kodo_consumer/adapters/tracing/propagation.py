"""Trace context in the properties of a message, as the process's propagator writes it: mostly the property
`traceparent`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import extract, get_global_textmap, inject
from opentelemetry.propagators.textmap import TextMapPropagator

log = logging.getLogger("kodo.consumer")
_QUIET: Final = 60.0  # seconds between two tracebacks


class _Harmless:
    """Context manager that suppresses every Exception of its body and logs one a minute at most: samplers and
    processors are the application's code, and tracing must not cost a message.
    """

    def __init__(self) -> None:
        self.last_log = float("-inf")

    def __enter__(self) -> None:
        """Does nothing, so that several threads may be within it at once."""

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _trace: object) -> bool:
        if not isinstance(problem, Exception):
            return False
        if time.monotonic() - self.last_log >= _QUIET:
            self.last_log = time.monotonic()
            log.warning("a span could not be made or ended; messages go their way", exc_info=problem)
        return True


HARMLESS: Final = _Harmless()


def read_context(properties: Mapping[str, str]) -> Context:
    """Context that a message carries, without the caller's current context; empty if the message carries none that is
    valid. Raises exceptions of the propagator.
    """
    return extract(properties, Context())


def context_properties(context: Context | None = None) -> dict[str, str]:
    """New dict of the properties that carry a context (None: the caller's current one); empty if it has nothing that
    the propagator writes. Raises exceptions of the propagator.
    """
    carrier: dict[str, str] = {}
    inject(carrier, context)
    return carrier


def present(properties: Mapping[str, str]) -> bool:
    """True if a message has a property that the propagator may write, such as `baggage`; it may carry no valid span."""
    return not _fields(get_global_textmap()).isdisjoint(properties)


@lru_cache(maxsize=4)
def _fields(propagator: TextMapPropagator) -> frozenset[str]:
    return frozenset(propagator.fields)  # which OpenTelemetry gathers anew at each call


@contextmanager
def within(carrier: Mapping[str, str]) -> Iterator[None]:
    """Context manager: its body runs in the context that the properties `carrier` carry, an empty one if they carry
    none, in place of the current context. Raises exceptions of the propagator before the body.
    """
    token = attach(read_context(carrier))
    try:
        yield
    finally:
        detach(token)

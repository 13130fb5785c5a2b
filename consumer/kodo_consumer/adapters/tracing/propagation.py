"""The trace context that a message carries in its properties, as the process's propagator writes it: `traceparent`,
mostly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import extract, get_global_textmap, inject

log = logging.getLogger("kodo.consumer")
_QUIET: Final = 60.0  # seconds between two tracebacks


class _Harmless:
    """Context manager whose failures are logged, once in a while, and not raised: samplers and processors are the
    application's own, and no span is worth a message.
    """

    def __init__(self) -> None:
        self.last_log = float("-inf")

    def __enter__(self) -> None:
        """Nothing is kept: it may be entered by many at once."""

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _trace: object) -> bool:
        if not isinstance(problem, Exception):
            return False
        if time.monotonic() - self.last_log >= _QUIET:
            self.last_log = time.monotonic()
            log.warning("a span could not be made or ended; messages go their way", exc_info=problem)
        return True


HARMLESS: Final = _Harmless()


def read_context(properties: Mapping[str, str]) -> Context:
    """The context that a message carries, and nothing of the caller's; an empty one where it carries none."""
    return extract(properties, Context())


def context_properties(context: Context | None = None) -> dict[str, str]:
    """The properties that carry a context; None: the caller's own."""
    carrier: dict[str, str] = {}
    inject(carrier, context)
    return carrier


def present(properties: Mapping[str, str]) -> bool:
    """True if a message carries a context."""
    return not get_global_textmap().fields.isdisjoint(properties)


@contextmanager
def within(carrier: Mapping[str, str]) -> Iterator[None]:
    """Context manager whose body runs in the context that `carrier` carries."""
    token = attach(read_context(carrier))
    try:
        yield
    finally:
        detach(token)

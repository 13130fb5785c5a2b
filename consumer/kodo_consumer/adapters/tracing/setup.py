"""Setup of tracing: decides whether spans are made, and finds the tracer. It imports OpenTelemetry only in that case."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

from kodoctl import __version__
from kodoctl.errors import UsageError, error
from kodoctl.host.extras import install_command
from kodoctl.protocol.properties import TRACE_NAMES

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from kodo_consumer.adapters.tracing.handler_spans import HandlerSpans
    from kodo_consumer.core.checks.message_validation import CheckedMessage
    from kodo_consumer.core.values.broker import OnSent
    from kodo_consumer.core.values.policy import Policy

Wanted = Literal["auto", "on", "off"]
CHOICES: Final[tuple[Wanted, ...]] = ("auto", "on", "off")
_API: Final = "opentelemetry.trace"


def runs_of(policy: Policy, wanted: Wanted, *, tenant: bool) -> HandlerSpans | None:
    """Maker of the spans of a subscription's handlers; None: no traces are made. `tenant`: the spans name the tenant of
    their message. Raises UsageError (K762) if traces are wanted (`on`) and cannot be made: see tracer_of.
    """
    if (tracer := tracer_of(wanted)) is None:
        return None
    from kodo_consumer.adapters.tracing.handler_spans import HandlerSpans

    return HandlerSpans(tracer, policy, tenant=tenant)


def sends_of(wanted: Wanted) -> Callable[[CheckedMessage], OnSent | None] | None:
    """Interceptor of a producer, for "publish", that makes a span for each message; None without traces. Raises
    UsageError (K762) if traces are wanted (`on`) and cannot be made: see tracer_of.
    """
    if (tracer := tracer_of(wanted)) is None:
        return None
    from kodo_consumer.adapters.tracing.producer_spans import begin_span

    return partial(begin_span, tracer)


def carry_span(wanted: Wanted, message: CheckedMessage) -> None:
    """Interceptor of an outbox, for "publish": adds properties that carry the caller's current context to a message
    that becomes a row, unless it has a property of a W3C context (`TRACE_NAMES`) or of the propagator, or there are no
    traces (tracer_of). Another process may send the row, much later. Raises UsageError (K762) as tracer_of. If the
    propagator fails, or the topology does not allow its properties, the message goes without them, and that is logged.
    """
    if TRACE_NAMES.isdisjoint(message.properties) and tracer_of(wanted) is not None:
        from kodo_consumer.adapters.tracing.propagation import HARMLESS, context_properties, present

        with HARMLESS:
            if not present(message.properties):
                message.add_properties(context_properties())


def tracer_of(wanted: Wanted) -> Tracer | None:
    """Tracer that makes spans; None: there are no traces, always so with `off`. With `auto` there are traces if the
    process has imported OpenTelemetry and has a tracer provider at this call; the no-op provider counts as none.

    Raises UsageError (K762) if `on` is wanted, and OpenTelemetry or a tracer provider is missing.
    """
    if wanted == "off" or (wanted == "auto" and _API not in sys.modules):  # who sets a provider has imported it
        return None
    if find_spec("opentelemetry") is None:
        raise _none(f"OpenTelemetry is not installed: {install_command('otel')}")
    from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        if wanted == "auto":
            return None
        raise _none("no tracer provider is set in this process")
    return provider.get_tracer("kodo.consumer", __version__)


def _none(detail: str) -> UsageError:
    return UsageError(error("K762", "no traces can be made", detail))

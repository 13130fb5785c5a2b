"""Refusals of a broker, with advice for each, because the client library's exception is only the kind of the error."""

from __future__ import annotations

from typing import Final

import pulsar

from kodoctl.errors import ClusterError, error

_NEEDS_SCHEMA: Final = (
    "it has a schema, of other clients, and a producer needs one that fits: declare `payload`, or set"
    " `schema_validation: false` on the topic or its namespace"
)
FULL: Final = (pulsar.ProducerBlockedQuotaExceededError, pulsar.ProducerBlockedQuotaExceededException)
"""Exceptions of a topic whose backlog quota is used up: they end when its subscriptions are read."""
_QUOTA: Final = "its backlog quota is used up: let it be read, or raise the quota"
_PRODUCER: Final[dict[type[Exception], str]] = {
    pulsar.AuthorizationError: "this role may not produce there: add it to `producers` of the topic or `workers` of the"
    " subscription, and apply",
    pulsar.BrokerMetadataError: "the broker cannot read its metadata, or the namespace requires encrypted messages, which"
    " workers and producers do not send",
    pulsar.IncompatibleSchema: _NEEDS_SCHEMA,
    **dict.fromkeys(FULL, _QUOTA),
    pulsar.ProducerBusy: "as many producers are connected as `max_producers` allows, or another one has it alone: each"
    " worker and each producer needs its own",
    pulsar.TopicTerminated: "it was terminated, and takes no message any more: delete it, and `kodoctl apply FILE` creates it anew",
}
_CONSUMER: Final[dict[type[Exception], str]] = {
    pulsar.AuthorizationError: "this role may not consume there: add it to `workers` of the subscription, and apply",
    pulsar.ConsumerBusy: "another consumer has it alone, or as many are connected as `max_consumers` allows",
    pulsar.IncompatibleSchema: _NEEDS_SCHEMA.replace("a producer", "a consumer"),
    pulsar.NotAllowedError: "the topic does not allow this type of subscription (`subscriptionTypesEnabled` of the topic, its"
    " namespace or the broker)",
}


def producer_refusal(problem: Exception) -> str:
    """Text for people: why a producer cannot be opened, with advice where the kind of the error is known."""
    return _problem_text(problem, _PRODUCER)


def cannot_publish(topic: str, problem: Exception) -> ClusterError:
    """Error K714 for a topic whose partitions cannot be read or whose producer cannot be opened: the cause, with advice
    where the kind of the error is known. The caller raises it.
    """
    missing = isinstance(problem, pulsar.TopicNotFound)
    why = (
        f"no such topic: {topic}; `kodoctl apply FILE` creates it"
        if missing
        else f"{topic}: {producer_refusal(problem)}"
    )
    return ClusterError(error("K714", "cannot publish", why))


def consumer_refusal(problem: Exception) -> str:
    """Text for people: why a subscription cannot be read, with advice where the kind of the error is known."""
    return _problem_text(problem, _CONSUMER)


def _problem_text(problem: Exception, advice: dict[type[Exception], str]) -> str:
    known = next((text for kind, text in advice.items() if isinstance(problem, kind)), "")
    return f"{problem}: {known}" if known else f"{problem}"

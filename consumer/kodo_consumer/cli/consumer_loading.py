"""Loading of the consumers that a command line names. One error lists the faults of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kodo_consumer.runtime.handler_import import load_handler, load_object
from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.consumer import Consumer
    from kodo_consumer.sending.environment import ConnectionOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HandlerChoice:
    """A handler, as MODULE:FUNCTION, and the ground topic and the subscription that it is for. None for either: the
    only one that the topology file leaves.
    """

    handler: str
    topic: str | None = None
    subscription: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerChoice:
    """The consumers that a command line names: either `consumers` of a program, each as MODULE:NAME, or `handlers` for
    subscriptions of the file `topology`. `lanes`: selections of lanes: none, one for all consumers, or one for each.
    """

    consumers: tuple[str, ...] = ()
    topology: str = ""
    handlers: tuple[HandlerChoice, ...] = ()
    lanes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        targets: Sequence[str],
        topics: Sequence[str],
        subscriptions: Sequence[str],
        handlers: Sequence[str],
        lanes: Sequence[str],
    ) -> ConsumerChoice:
        """Choice by the arguments of a command line: with `handlers`, `targets` is the topology file, and handlers,
        topics and subscriptions belong together by their order (one topic counts for all; without topics the file has
        to leave no choice; a single handler needs no subscription either); without, `targets` are consumers. Raises
        UsageError if the arguments do not fit together.
        """
        count = len(handlers) or len(targets)
        if len(lanes) not in (0, 1, count):
            what = f"{count} --handler" if handlers else many(count, "consumer")
            detail = f"{len(lanes)} --lanes, {what}: one --lanes for all, or one for each"
            raise UsageError(error("K759", "options do not match", detail))
        if handlers:
            if len(targets) != 1:
                detail = f"{' '.join(targets)}: --handler needs one topology file"
                raise UsageError(error("K759", "options do not match", detail))
            return cls((), targets[0], _match_handlers(topics, subscriptions, handlers), tuple(lanes))
        if files := [target for target in targets if ":" not in target]:
            detail = (
                f"{files[0]}: write MODULE:NAME of a consumer, such as app:consumer;"
                " with a topology file also --handler MODULE:FUNCTION"
            )
            raise UsageError(error("K718", "handler not found", detail))
        if topics or subscriptions:
            detail = f"--topic and --subscription go with --handler: {' '.join(targets)} names them itself"
            raise UsageError(error("K759", "options do not match", detail))
        if repeated := [name for name, times in Counter(targets).items() if times > 1]:
            raise UsageError(error("K759", "options do not match", f"{', '.join(repeated)} is named twice"))
        return cls(tuple(targets), lanes=tuple(lanes))

    @property
    def size(self) -> int:
        """Number of consumers."""
        return len(self.consumers) or len(self.handlers)

    def loaders(self, place: ConnectionOptions) -> list[Callable[[], Consumer]]:
        """Functions that load the consumers, in their order, and raise KodoctlError; `lanes` are not applied. `place`:
        for `handlers` only, because a program's consumers have their own connection.
        """
        if self.consumers:
            return [partial(_load_named, name) for name in self.consumers]
        return [partial(_load_for_handler, self.topology, choice, place) for choice in self.handlers]


def _match_handlers(
    topics: Sequence[str], subscriptions: Sequence[str], handlers: Sequence[str]
) -> tuple[HandlerChoice, ...]:
    """Handlers with topic and subscription, by their order on the command line. One topic counts for all handlers, and
    topics may be left out; a single handler needs no subscription either. Raises UsageError if the numbers differ, or a
    subscription is named twice.
    """
    count = len(handlers)
    named_topics: Sequence[str | None] = [*topics] * count if len(topics) == 1 else topics or [None] * count
    named: Sequence[str | None] = subscriptions or [None]
    if not len(named_topics) == len(named) == count:
        detail = f"{len(topics)} --topic, {len(subscriptions)} --subscription, {count} --handler: as many of each, or one --topic"
        raise UsageError(error("K759", "options do not match", detail))
    pairs = Counter(zip(named_topics, named, strict=True))
    if repeated := sorted(f"{ground or ''} {name}".strip() for (ground, name), times in pairs.items() if times > 1):
        detail = ", ".join(f"{text} is named twice" for text in repeated)
        raise UsageError(error("K759", "options do not match", detail))
    return tuple(map(HandlerChoice, handlers, named_topics, named))


def ready_consumers(
    choice: ConsumerChoice, place: ConnectionOptions, port: int | None, *, worker: int = 0, workers: int = 1
) -> list[Consumer]:
    """Returns the loaded consumers of one worker process of a group, each with a port of its own in its settings: the
    ports of a process follow those of the process before. `worker`: number of the process, from 0; `workers`: size of
    the group. `port`: the first port; None: that of the settings, 0: any free one. Raises KodoctlError.
    """
    consumers = load_consumers(choice, place)
    for number, consumer in enumerate(consumers, worker * len(consumers)):
        first = consumer.settings.port if port is None else port
        consumer.settings = replace(consumer.settings, port=first + number if first else first, workers=workers)
    return consumers


def load_consumers(choice: ConsumerChoice, place: ConnectionOptions) -> list[Consumer]:
    """Returns the chosen consumers, each with its handler. Raises one KodoctlError with all findings about all
    consumers.
    """
    selections: Sequence[str | None] = choice.lanes * choice.size if len(choice.lanes) == 1 else choice.lanes
    consumers: list[Consumer] = []
    problems: list[KodoctlError] = []
    for load, selection in zip(choice.loaders(place), selections or [None] * choice.size, strict=True):
        consumer = attempt(problems, load)
        if consumer is not None:
            if selection is not None:
                attempt(problems, partial(consumer.take_lanes, selection))
            consumers.append(consumer)
    raise_all(problems)
    policies = [consumer.policy for consumer in consumers]
    pairs = Counter((one.ground_lane.topic, one.ground, one.subscription) for one in policies)
    if repeated := sorted(f"{ground} {name}" for (_, ground, name), times in pairs.items() if times > 1):
        detail = f"{', '.join(repeated)}: one consumer for each subscription; --workers runs several"
        raise UsageError(error("K759", "options do not match", detail))
    return consumers


def _load_named(name: str) -> Consumer:
    from kodo_consumer.consumer import Consumer

    consumer = load_object(name, Consumer, "app:consumer")
    try:
        consumer.check_handler()
    except UsageError as problem:
        raise UsageError(*(replace(one, detail=f"{name}: {one.detail}") for one in problem.diagnostics)) from None
    return consumer


def _load_for_handler(topology: str, choice: HandlerChoice, place: ConnectionOptions) -> Consumer:
    from kodo_consumer.consumer import Consumer

    problems: list[KodoctlError] = []
    load = partial(Consumer.load, topology, topic=choice.topic, subscription=choice.subscription, **place)
    consumer = attempt(problems, load)
    function = attempt(problems, partial(load_handler, choice.handler))
    raise_all(problems)
    assert consumer is not None  # else there is a problem
    assert function is not None
    consumer.take_handler(function)
    return consumer


def raise_all(problems: Sequence[KodoctlError]) -> None:
    """Raises one error with all findings of `problems`, if there are any: the only problem itself, else a UsageError."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise UsageError(*dict.fromkeys(finding for problem in problems for finding in problem.diagnostics))


def attempt(problems: list[KodoctlError], act: Callable[[], T]) -> T | None:
    """Result of `act`; None if `act` raises KodoctlError, which is appended to `problems`."""
    try:
        return act()
    except KodoctlError as problem:
        problems.append(problem)
        return None

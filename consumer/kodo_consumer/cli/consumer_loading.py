"""Loading of the consumers that a command line names, with their handlers. One error lists the faults of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kodo_consumer.runtime.handler_import import load_handler
from kodoctl.errors import KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.consumer import Consumer
    from kodo_consumer.sending.environment import ConnectionOptions

T = TypeVar("T")


def ready_consumers(
    topology: str,
    wanted: list[tuple[str, str, str]],
    place: ConnectionOptions,
    lanes: Sequence[str],
    port: int | None,
    *,
    worker: int = 0,
    workers: int = 1,
) -> list[Consumer]:
    """Returns the loaded consumers of one worker process of a group, each with a port of its own; the ports of a
    process follow those of the one before. `worker`: number of the process, from 0; `workers`: size of the group.
    `port`: the first port; None: that of the settings, 0: any free one. Raises KodoctlError.
    """
    consumers = load_consumers(topology, wanted, place, lanes)
    for number, consumer in enumerate(consumers, worker * len(consumers)):
        first = consumer.settings.port if port is None else port
        consumer.settings = replace(consumer.settings, port=first + number if first else first, workers=workers)
    return consumers


def load_consumers(
    topology: str, wanted: list[tuple[str, str, str]], place: ConnectionOptions, lanes: Sequence[str] = ()
) -> list[Consumer]:
    """Returns a consumer with its handler for each of `wanted` (topic, subscription, handler). `lanes`: none, one
    selection for all consumers, or one for each. Raises one KodoctlError with all findings about all consumers.
    """
    from kodo_consumer.consumer import Consumer

    if len(lanes) not in (0, 1, len(wanted)):
        detail = f"{len(lanes)} --lanes, {len(wanted)} --handler: one --lanes for all, or one for each handler"
        raise UsageError(error("K759", "options do not match", detail))
    given: list[str | None] = [*lanes] or [None]
    selections = given if len(given) == len(wanted) else given * len(wanted)
    found: list[Consumer] = []
    problems: list[KodoctlError] = []
    for (ground, name, handler), selection in zip(wanted, selections, strict=True):
        load = partial(Consumer.load, topology, topic=ground, subscription=name, lanes=selection, **place)
        consumer = attempt(problems, load)
        function = attempt(problems, partial(load_handler, handler))
        if consumer is not None and function is not None:
            attempt(problems, partial(consumer.take_handler, function))
            found.append(consumer)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise UsageError(*dict.fromkeys(finding for problem in problems for finding in problem.diagnostics))
    return found


def attempt(problems: list[KodoctlError], act: Callable[[], T]) -> T | None:
    """Result of `act`; None if `act` raises KodoctlError, which is appended to `problems`."""
    try:
        return act()
    except KodoctlError as problem:
        problems.append(problem)
        return None

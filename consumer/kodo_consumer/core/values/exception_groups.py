# pure: every branch is tested
"""Exception groups, as asyncio.TaskGroup and anyio raise them: a request that a handler raises in one of its tasks
counts as raised by the handler.
"""

from __future__ import annotations

from collections.abc import Iterator

from kodo_consumer.core.values.exceptions import HandlerSignal, outcome_of
from kodo_consumer.core.values.infrastructure_faults import FaultKind, fault_of
from kodo_consumer.core.values.outcomes import DependencyUnavailable


def spokesman(problem: BaseException) -> BaseException:
    """Exception that speaks for an exception group: the first one in it, if all in it mean the same; else the group
    itself, which requests nothing. An exception that is no group is returned as it is.

    Groups in the group are opened as well. Its exceptions mean the same if all request equal outcomes (the reason
    included), all report an unavailable dependency (of any name, or as a fault of the infrastructure that is not merely
    busy), or all are other exceptions of exactly one class. If they disagree, none may end the message, because the
    work of the others has failed.
    """
    if not isinstance(problem, BaseExceptionGroup):
        return problem
    first, *others = _leaves(problem)
    meaning = _meaning(first)
    return first if all(_meaning(one) == meaning for one in others) else problem


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    open_ones: list[BaseException] = [group]
    while open_ones:
        one = open_ones.pop()
        if isinstance(one, BaseExceptionGroup):
            open_ones += reversed(one.exceptions)
        else:
            yield one


def _meaning(problem: BaseException) -> object:
    if isinstance(problem, HandlerSignal):
        try:
            outcome = outcome_of(problem)
        except Exception as nested:  # noqa: BLE001  # a verdict of the user's own making
            return type(nested)
        return DependencyUnavailable if isinstance(outcome, DependencyUnavailable) else outcome
    fault = fault_of(problem)
    return type(problem) if fault is None or fault.kind is FaultKind.BUSY else DependencyUnavailable

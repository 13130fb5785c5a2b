"""Limits as a law, from outside: in any window w at most burst + rate * w start, never more than so many at once."""

from __future__ import annotations

from collections import deque
from typing import Any

from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.core.values.limit_policy import Concurrency, Quota, Rate
from kodo_consumer.core.values.policy import Policy

from kodoctl.protocol import properties as names

_SLACK = 1e-6


class Paces:
    """What one process may start. `workers`: among how many a subscription's limits are shared."""

    def __init__(self, policy: Policy) -> None:
        self._limits = policy.limits
        self.workers = policy.expected_workers
        self._books: list[dict[str, Any]] = [{} for _ in policy.limits]

    def started(self, now: float, message: Outgoing, *, again: bool) -> str:
        """Why this start breaks a limit; empty when none is broken."""
        problems = [
            self._one(limit, book, _value(limit.by, message), now, again or names.QUOTA in message.properties)
            for limit, book in zip(self._limits, self._books, strict=True)
        ]
        return "; ".join(filter(None, problems))

    def ended(self, message: Outgoing) -> None:
        for limit, book in zip(self._limits, self._books, strict=True):
            if isinstance(limit, Concurrency):
                book[_value(limit.by, message)] -= 1

    def _one(self, limit: Any, book: dict[str, Any], value: str, now: float, counted: bool) -> str:
        workers = self.workers if limit.shared else 1
        match limit:
            case Rate():
                interval = limit.pace.period / 1000 / limit.pace.amount * workers
                burst = max(1, limit.pace.burst // workers)
                empty = book.get(value, float("-inf"))
                book[value] = max(empty, now) + interval
                early = empty - (burst - 1) * interval - now
                return f"{early:.4f} s too early for a rate of {value}" if early > _SLACK else ""
            case Concurrency():
                book[value] = book.get(value, 0) + 1
                most = max(1, limit.limit // workers)
                return f"{book[value]} at once of {value}, {most} may be" if book[value] > most else ""
            case Quota():
                starts: deque[float] = book.setdefault(value, deque())
                while starts and starts[0] <= now - limit.period / 1000:
                    starts.popleft()
                if counted:
                    return ""
                starts.append(now)
                most = max(1, limit.amount // workers)
                return f"{len(starts)} in a window of {value}, {most} may be" if len(starts) > most else ""
            case _:
                raise AssertionError(limit)


def _value(by: str | None, message: Outgoing) -> str:
    if by is None:
        return ""
    return message.key if by == "key" else message.properties.get(by, "")

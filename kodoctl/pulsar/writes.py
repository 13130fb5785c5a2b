"""A write that survives the broker: sent once, sent again only after reading showed that it did not happen."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final

from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin import NOT_SENT, Admin, LostReplyError, Reply

BUSY: Final = frozenset({409, 429, 500, 502, 503, 504})
TRIES: Final = 6
PATIENCE_S: Final = 10.0
_Done = Callable[[], bool]


class WriteFailedError(Exception):
    """The broker refused for good; the message is for people."""


def write(  # noqa: PLR0913  # a request has these parts
    admin: Admin,
    method: str,
    path: str,
    body: Any = NOT_SENT,
    *,
    done: _Done,
    query: dict[str, str] | None = None,
    content_type: str = "application/json",
    final: frozenset[int] = frozenset(),
    pause: Callable[[float], None] = time.sleep,
) -> Reply | None:
    """Sends one write and makes sure of it. Returns the last reply, None when the effect was seen without one.

    `done` reads back whether the effect is there; it is asked after a lost reply or a busy broker, before anything is sent
    again. Statuses in `final` are answers that trying again would not change; one to a request that was sent again may be
    about what the first of them did, which a broker may show late. Raises WriteFailedError.
    """
    problem = "no answer"
    for attempt in range(1, TRIES + 1):
        try:
            reply = admin.call(method, path, body, query=query, content_type=content_type)
        except LostReplyError as lost:
            problem = str(lost)
        else:
            if reply.ok:
                return reply
            if reply.status in final:
                return None if attempt > 1 and wait_until(lambda: _seen(done), pause=pause) else reply
            if reply.status not in BUSY:
                raise WriteFailedError(f"{reply}")
            problem = str(reply)
        if attempt < TRIES:
            pause(min(0.1 * 2**attempt, 3.0) * (0.5 + random.random()))  # noqa: S311  # spreads retries, no secret
        if _seen(done):
            return None
    raise WriteFailedError(f"{problem}; given up after {TRIES} tries")


def _seen(done: _Done) -> bool:
    try:
        return done()
    except ClusterError:
        return False  # cannot read either: the next try decides


def wait_until(done: _Done, *, seconds: float | None = None, pause: Callable[[float], None] = time.sleep) -> bool:
    """Whether `done` came true in time (PATIENCE_S unless said): brokers other than the writer's may show a value late."""
    deadline = time.monotonic() + (PATIENCE_S if seconds is None else seconds)
    wait = 0.02
    while not done():
        if time.monotonic() >= deadline:
            return False
        pause(wait)
        wait = min(wait * 1.6, 0.5)
    return True

"""Writes that are repeated if a broker fails. Before a write is sent again, a read checks whether the first one took
effect.

A repeated DELETE, or a repeated PUT of a whole value with parts of others, can do harm if the object changed between
two tries. Therefore `delete` and `read_modify_write` send these, and read the object before each try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin import NOT_SENT, Admin, LostReplyError, Reply

CONFLICT: Final = 409
CONFLICT_S: Final = 8.0  # of two changes at the same time one is over soon; what is in the way for longer stays there
PATIENCE_S: Final = 10.0
_Done = Callable[[], bool]
Look = Callable[[], Mapping[str, Any] | None]
"""Reads the object before a request. Returns the query parameters of the DELETE or the body of the PUT, or None if
nothing is left to do. Raises WriteFailedError if the request must not be sent.
"""


class WriteFailedError(Exception):
    """A write failed: the broker or a `Look` refused it, or no effect of any try was seen. The text is for people."""


def write_confirmed(  # noqa: PLR0913  # a request has these parts
    admin: Admin,
    method: Literal["PUT", "POST"],
    path: str,
    body: Any = NOT_SENT,
    *,
    done: _Done,
    query: dict[str, str] | None = None,
    content_type: str = "application/json",
    final: frozenset[int] = frozenset(),
) -> Reply | None:
    """Sends one write, repeats it if necessary until it has taken effect, and blocks meanwhile. Returns the last reply
    (2xx, or a status in `final`), or None if `done` saw the effect. Tries as long as `admin.waits` allows; after a 409
    for CONFLICT_S seconds (8) at most in all, or only once more if they are over already.

    Raises WriteFailedError for any other refusal, at once, and if the time is over; ClusterError of `Admin.call` other
    than LostReplyError.

    Args:
        done: reads whether the write has taken effect. It is called after a lost or transient reply or a 409, before
            the write is sent again, and when the time is over; not after a 2xx reply. A ClusterError of `done` counts
            as "not yet".
        final: statuses that another try would not change, unless the reply is transient. Such a status in reply to a
            repeated request may be caused by the first request, whose effect a broker may show late: `done` is then
            polled for 10 s (PATIENCE_S).
    """
    with admin.waits.during(f"{method} {path}: no answer yet") as wait:
        sent = 0
        while True:
            sent += 1
            try:
                reply = admin.call(method, path, body, query=query, content_type=content_type)
            except LostReplyError as lost:
                problem, limit = str(lost), None
            else:
                if reply.ok:
                    return reply
                if reply.status in final and not reply.transient:
                    pause = admin.waits.pause
                    return None if sent > 1 and poll_until(lambda: is_done(done), pause=pause) else reply
                problem, limit = str(reply), limit_of(reply)
            goes_on = wait.again(problem, limit)
            if is_done(done):
                return None
            if not goes_on:
                raise WriteFailedError(f"{problem}; given up after {sent} tries in {wait.seconds:.0f} s")


def limit_of(reply: Reply) -> float | None:
    """Number of seconds for which a write is tried again after this reply, which is no success; None: the usual limit
    of writes. Raises WriteFailedError if the reply is neither a 409 nor transient: another try would get it again.
    """
    if reply.status == CONFLICT:
        return CONFLICT_S
    if not reply.transient:
        raise WriteFailedError(f"{reply}")
    return None


def delete(
    admin: Admin,
    path: str,
    look: Look,
    *,
    final: frozenset[int] = frozenset(),
) -> Reply | None:
    """Calls `look`, then sends one DELETE; repeats both after a transient or lost reply, or a 409, as long as
    `write_confirmed` does. Returns the last reply (2xx, or a status in `final`); None if `look` found that the object
    is gone. Raises WriteFailedError, also that of `look`, for any other reply and if the time is over; ClusterError of
    `Admin.call` other than LostReplyError, and of `look` while no DELETE was sent (later it counts as a failed try).

    Seconds to minutes lie between two tries, and clients and messages may come back when a broker restarts. So the
    object is read before each of them.

    Args:
        look: reads the object and decides whether to delete it, and with which query; if it raises, no request is sent.
        final: statuses that another try would not change, unless the reply is transient or `foreign`.
    """
    return _send_after_look(
        admin, f"DELETE {path}", look, lambda query: admin.call("DELETE", path, query=query or None), final
    )


def read_modify_write(admin: Admin, path: str, look: Look) -> Reply | None:
    """Calls `look`, then sends one PUT of the value that it returns, and repeats both, as `delete` does and with its
    errors. Returns the last reply; None if `look` found that nothing is left to write.
    """
    return _send_after_look(admin, f"PUT {path}", look, lambda body: admin.call("PUT", path, body))


def _send_after_look(
    admin: Admin,
    request: str,
    look: Look,
    send: Callable[[dict[str, Any]], Reply],
    final: frozenset[int] = frozenset(),
) -> Reply | None:
    """Calls `look`, and `send` with its result, as `delete` and `read_modify_write` describe. `request`: text about it."""
    problem, limit, sent = "", cast("float | None", None), 0
    with admin.waits.during(f"{request}: no answer yet") as wait:
        while True:
            try:
                found = _call_look(look, problem)
            except ClusterError:  # cannot be looked at, so that nothing is sent
                if not problem:
                    raise
            else:
                if found is None:
                    return None
                sent += 1
                try:
                    reply = send(dict(found))
                except LostReplyError as lost:
                    problem, limit = str(lost), None
                else:
                    if reply.ok or (reply.status in final and not reply.transient and not reply.foreign):
                        return reply
                    problem, limit = str(reply), limit_of(reply)
            if not wait.again(problem, limit):
                break
    if is_done(lambda: _call_look(look, problem) is None):
        return None
    raise WriteFailedError(f"{problem}; given up after {sent} tries in {wait.seconds:.0f} s")


def _call_look(look: Look, problem: str) -> Mapping[str, Any] | None:
    """Calls `look`. If it refuses, the error also names the earlier requests. `problem`: the result of the
    earlier request; "": none was sent.
    """
    try:
        return look()
    except WriteFailedError as refusal:
        sent = f"{problem}, and none was sent again" if problem else "no request was sent"
        raise WriteFailedError(f"{refusal}; {sent}") from None


def is_done(done: _Done) -> bool:
    """True if `done` returns true; False also if it raises ClusterError, which says nothing yet."""
    try:
        return done()
    except ClusterError:
        return False  # cannot read either: the next try decides


def poll_until(done: _Done, *, seconds: float | None = None, pause: Callable[[float], None] = time.sleep) -> bool:
    """Calls `done`, first at once, then after pauses, until it returns true, and returns True; False if it does not
    within `seconds` (None: PATIENCE_S, 10 s). Errors of `done` pass through. Needed because a broker that did not take
    the write may show the effect late.
    """
    deadline = time.monotonic() + (PATIENCE_S if seconds is None else seconds)
    wait = 0.02
    while not done():
        if time.monotonic() >= deadline:
            return False
        pause(wait)
        wait = min(wait * 1.6, 0.5)
    return True

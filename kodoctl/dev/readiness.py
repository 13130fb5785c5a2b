"""Readiness of a broker, by requests to the broker itself: it answers HTTP long before it can serve clients."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Final

from kodoctl.dev.node_config import MARK
from kodoctl.dev.progress import Tell, WaitProgress

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.secret import Secret

DEADLINE: Final = 120.0
"""Seconds until a broker must be ready: 8 were needed on an idle machine of 2 cores, up to 75 on a busy one."""
_BETWEEN: Final = 0.2
_PATIENCE: Final = 5.0
_LONGEST: Final = 1_000_000
_NO_PROXY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # 127.0.0.1 is never behind one


@dataclass(frozen=True, slots=True)
class ReadinessTarget:
    """A broker whose readiness is checked. `token`: a token of a super-user, None without authentication; `mark`:
    identity of the broker (see `BrokerEngine.marks`).
    """

    admin_url: str
    token: Secret | None
    mark: str


def not_ready(targets: Sequence[ReadinessTarget], patience: float = _PATIENCE) -> str | None:
    """Checks whether clients can work with each of these brokers. Returns None if so, else a text about the condition
    that is not met. A broker is sent up to three requests, each of which fails after `patience` seconds without an
    answer.

    First, whether the right broker answers, because another one may have taken the port; then the broker's health
    check, which produces and reads a message; last, whether the namespace `public/default` exists, because Pulsar
    creates it last.
    """
    for target in targets:
        if problem := _missing(target, patience):
            return problem if len(targets) == 1 else f"{target.admin_url}: {problem}"
    return None


def _missing(target: ReadinessTarget, patience: float) -> str | None:
    questions: tuple[tuple[str, Callable[[str], bool], str], ...] = (
        ("brokers/configuration/runtime", lambda body: _has_mark(body, target.mark), "another Pulsar answers there"),
        ("brokers/health", lambda body: body.strip() == "ok", "not healthy yet"),
        ("namespaces/public/default", lambda _: True, ""),
    )
    for path, is_right, otherwise in questions:
        problem, body = _get(f"{target.admin_url}/admin/v2/{path}", target.token, patience)
        if problem or not is_right(body):
            return f"{path}: {problem or otherwise}"
    return None


def _has_mark(body: str, mark: str) -> bool:
    try:
        return bool(json.loads(body).get(MARK) == mark)
    except (ValueError, AttributeError):
        return False


def wait(
    ask: Callable[[float], str | None],
    *,
    alive: Callable[[], bool],
    limit: float,
    tell: Tell,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Calls `ask` with pauses until it returns None (ready), then returns None. Returns the last text of `ask` after
    `limit` seconds, or when `alive` returns False. Blocks meanwhile.

    `ask` is passed the seconds for which it waits for one answer, from 0.1 to 5. If it sends several requests, its last
    call may end after `limit`.
    """
    start = clock()
    while True:
        left = start + limit - clock()
        problem = ask(max(0.1, min(_PATIENCE, left)))
        waited = clock() - start
        if problem is None or waited >= limit or not alive():
            return problem
        tell(WaitProgress(waited, limit))
        sleep(_BETWEEN)


def _get(url: str, token: Secret | None, patience: float) -> tuple[str | None, str]:
    """(problem, body) of a GET; problem None: the request succeeded."""
    request = urllib.request.Request(url)  # noqa: S310 - always http://127.0.0.1
    if token:
        request.add_header("Authorization", f"Bearer {token.reveal()}")
    try:
        with _NO_PROXY.open(request, timeout=patience) as answer:
            return None, answer.read(_LONGEST).decode("utf-8", "replace")
    except urllib.error.HTTPError as refused:
        refused.close()
        return f"HTTP {refused.code}", ""
    except (OSError, ValueError, HTTPException) as problem:
        reason = getattr(problem, "reason", problem)
        return str(getattr(reason, "strerror", None) or reason or type(problem).__name__).lower(), ""

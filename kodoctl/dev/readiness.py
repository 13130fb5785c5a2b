"""Readiness of a broker, asked of the broker itself: it answers HTTP long before it can serve clients."""

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
    """A broker to check, with a token that may do everything (None without authentication). `mark` distinguishes this
    broker from others (see `BrokerEngine.marks`).
    """

    admin_url: str
    token: Secret | None
    mark: str


def not_ready(targets: Sequence[ReadinessTarget], patience: float = _PATIENCE) -> str | None:
    """Returns None if clients can work through each of these brokers, otherwise a text of the missing condition. Each
    of the three requests to a broker takes at most `patience` seconds.

    The first check is whether the right broker answers: another one may have taken the port first. The health check
    produces and reads a message; the namespace `public/default` is made last of all.
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
    """Calls `ask` again and again until it returns None, then returns None. Returns the last missing condition after
    `limit` seconds, or when `alive` returns False. Blocks meanwhile.

    `ask` gets the seconds that it may take.
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

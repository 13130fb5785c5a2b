"""The admin port over HTTP: kept-alive connections, as many as the broker has time for, redirects within the cluster only,
retries of reads.
"""

from __future__ import annotations

import json
import random
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, SSLError

from kodoctl import __version__
from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.access import Secret, trust
from kodoctl.pulsar.admin import NOT_SENT, LostReplyError, Reply, RequestCount, no_condition
from kodoctl.pulsar.connection import Connection
from kodoctl.pulsar.peer import Protocol, peer_at
from kodoctl.pulsar.room import Room
from kodoctl.pulsar.tokens import Presented

CONNECTIONS: Final = 12  # 8 to 16 saturate a broker, more gains nothing (pulsar-measured §9)
TIMEOUT: Final = (5.0, 60.0)  # seconds to connect, seconds to answer
READ_TRIES: Final = 6
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_NO_TIME: Final = frozenset({429, 503})
_MAX_REDIRECTS: Final = 5
_ASK_S: Final = 1.0  # for what answers instead of a broker; it has been waited for already
_HEADERS: Final = {"User-Agent": f"kodoctl/{__version__}", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}


def _only_reads(method: str, path: str) -> bool:
    """Whether a call changes nothing, so that it may be sent again: analyzeBacklog is a POST that only counts."""
    return method == "GET" or (method == "POST" and path.split("/")[4::2] == ["subscription", "analyzeBacklog"])


@dataclass(frozen=True, slots=True)
class _Request:
    """What stays the same when a request goes to another broker, or with another token. `condition`: see Admin.call."""

    method: str
    path: str
    data: bytes | None = None
    content_type: str = "application/json"
    condition: Callable[[], None] = no_condition


class HttpAdmin:
    """One cluster's admin API. Safe to call from several threads."""

    def __init__(
        self,
        connection: Connection,
        *,
        pause: Callable[[float], None] = time.sleep,
        tries: int = READ_TRIES,
        timeout: tuple[float, float] | None = None,
    ) -> None:
        """`tries` of a read that finds a busy broker or a broken connection; `timeout`: seconds to connect, seconds to answer,
        TIMEOUT where nothing is said.
        """
        self._connection, self._tries = connection, tries
        self._pause = pause
        self._lock = threading.Lock()
        self._traffic = RequestCount()
        self._allowed: set[str] = {urlsplit(connection.admin_url).netloc}
        self._brokers_known = False
        self._presented = Presented(connection)
        self._room = Room(CONNECTIONS)
        over_tls = urlsplit(connection.admin_url).scheme == "https"
        self._pool = (
            urllib3.PoolManager(  # knows no proxy and no .netrc of the shell: they must not see or change admin calls
                num_pools=4,
                maxsize=CONNECTIONS + 4,
                retries=False,
                timeout=urllib3.Timeout(*(timeout or TIMEOUT)),
                ssl_context=trust(connection.tls) if over_tls else None,
            )
        )

    @property
    def traffic(self) -> RequestCount:
        """Requests sent so far."""
        return self._traffic

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()

    def call(
        self,
        method: str,
        path: str,
        body: Any = NOT_SENT,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        condition: Callable[[], None] = no_condition,
    ) -> Reply:
        """See Admin.call."""
        data = None if body is NOT_SENT else json.dumps(body).encode()
        request = _Request(method, path, data, content_type, condition)
        tries = self._tries if _only_reads(method, path) else 1
        for attempt in range(1, tries + 1):
            try:
                with self._room:
                    reply = self._send(request, query)
            except HTTPError as problem:
                if attempt == tries or isinstance(problem, SSLError):
                    raise self._unreachable(method, path, problem) from None
            else:
                (self._room.busy if reply.status in _NO_TIME else self._room.fine)()
                if reply.status not in _BUSY or attempt == tries:
                    return reply
            self._pause(min(0.1 * 2**attempt, 3.0) * (0.5 + random.random()))  # noqa: S311  # spreads retries, no secret
        raise AssertionError("unreachable")

    def _send(self, request: _Request, query: dict[str, str] | None) -> Reply:
        url = f"{self._connection.admin_url}/admin/v2/{request.path}"
        if query:
            url = f"{url}?{urlencode(query)}"
        for _ in range(_MAX_REDIRECTS + 1):
            token, asked = self._presented.token(), time.monotonic()
            answer = self._once(request, url, token)
            if _token_refused(answer) and (other := self._presented.after_refusal(token)) is not None:
                # the first one ended early, or was withdrawn: nothing was done with it
                token, asked = other, time.monotonic()
                answer = self._once(request, url, token)
            if answer.status not in (307, 308):
                took = time.monotonic() - asked
                reply = self._read(request.method, request.path, answer, token)
                return replace(reply, told_at=_told_at(answer), took=took)
            url = self._redirected(url, answer.headers.get("Location", ""))
        said = f"{request.method} {request.path}: more than {_MAX_REDIRECTS} redirects"
        raise ClusterError(error("K512", "redirected in circles", said))

    def _once(self, request: _Request, url: str, token: Secret | None) -> urllib3.BaseHTTPResponse:
        """One exchange, its body read. By urllib3 itself: half the CPU of `requests`, whose other half serves sessions."""
        request.condition()
        self._count(request.method, request.path)
        headers = {**_HEADERS, "Content-Type": request.content_type, **_bearer(token)}
        return self._pool.request(request.method, url, body=request.data, headers=headers, redirect=False)

    def _count(self, method: str, path: str) -> None:
        with self._lock:
            if _only_reads(method, path):
                self._traffic.reads += 1
            else:
                self._traffic.writes += 1
            kind = f"{method} {path.rsplit('/', 1)[-1]}"
            self._traffic.by_path[kind] = self._traffic.by_path.get(kind, 0) + 1

    def _read(self, method: str, path: str, answer: urllib3.BaseHTTPResponse, token: Secret | None) -> Reply:
        html, ok = "text/html" in answer.headers.get("Content-Type", ""), answer.status < 400
        if _token_refused(answer):
            raise self._bad_token()
        data, reason, foreign = None, "", html
        if html and ok:
            detail = f"{self._connection.admin_url} answered {method} {path} with a web page: is it another server, or a login?"
            raise ClusterError(error("K523", "this is not Pulsar's admin API", detail))
        if answer.data and not html:
            text = answer.data.decode("utf-8", "replace")
            text = text.replace(token.reveal(), "***") if token else text  # it may repeat our headers
            try:
                data = json.loads(text)
            except (ValueError, RecursionError):
                data, foreign = text.strip(), True
        if not ok:
            said = data.get("reason") if isinstance(data, dict) else data
            reason = next(iter(str(said or answer.reason or "").strip().splitlines()), "")[:500]
        return Reply(method, path, answer.status, data, reason, foreign=foreign)

    def _redirected(self, url: str, location: str) -> str:
        """Another broker owns the bundle. The token goes along, so only brokers of this cluster are followed."""
        here, there = urlsplit(url), urlsplit(location)
        if there.scheme == here.scheme and there.netloc not in self._allowed and not self._brokers_known:
            self._learn_brokers()
        if there.scheme != here.scheme or there.netloc not in self._allowed:
            target = f"{there.scheme}://{there.netloc}"
            detail = f"{here.netloc} redirects to {target}, which is not a broker of this cluster: the token was not sent there"
            raise ClusterError(error("K513", "redirected to a foreign host", detail))
        return location

    def _learn_brokers(self) -> None:
        self._brokers_known = True
        url, token = f"{self._connection.admin_url}/admin/v2/brokers", self._presented.token()
        answer = self._once(_Request("GET", "brokers"), url, token)
        if answer.status == 200:
            self._allowed |= {str(broker) for broker in answer.json()}

    def _bad_token(self) -> ClusterError:
        if self._connection.oauth2 is not None:
            detail = f"{self._connection.host} takes no token of {self._connection.oauth2.issuer}, not even a new one: audience, or another key?"
        elif self._connection.token is None:
            detail = f"{self._connection.host} asks for a token: KODOCTL_TOKEN_FILE, --token-file or the context's token_file"
            if self._connection.withheld:
                detail = f"{detail}\n{self._connection.withheld}"
        else:
            detail = f"{self._connection.host} does not accept the token: expired, of another cluster, or damaged"
        return ClusterError(error("K511", "not authenticated", detail))

    def _unreachable(self, method: str, path: str, problem: HTTPError) -> ClusterError:
        reason = _why(problem)
        where = self._connection.admin_url
        if (method == "GET" or isinstance(problem, SSLError)) and (advice := self._other_protocol(problem)):
            return ClusterError(error("K514", "no broker answers", f"{where}: {advice}"))
        if isinstance(problem, SSLError):
            advice = "name whom to trust with --tls-ca, and who you are with --tls-cert and --tls-key"
            if "mismatch" in reason:
                advice = "use a name that its certificate has"
            return ClusterError(error("K527", "no TLS connection", f"{where}: {reason}; {advice}"))
        if method != "GET" and not isinstance(problem, ConnectTimeoutError):
            return LostReplyError(error("K515", "no answer to a write", f"{method} {path} at {where}: {reason}"))
        context = f" (context {self._connection.context.name})" if self._connection.context else ""
        advice = "is the broker running? `kodoctl dev status` tells for a development one"
        return ClusterError(error("K514", "no broker answers", f"{where}{context}: {reason}; {advice}"))

    def _other_protocol(self, problem: HTTPError) -> str:
        """What is wrong with an address where something answers, and not as expected; "" where that is not the reason."""
        if isinstance(problem, urllib3.exceptions.TimeoutError | urllib3.exceptions.NewConnectionError):
            return ""
        parts = urlsplit(self._connection.admin_url)
        over_tls = parts.scheme == "https"
        try:
            port, context = parts.port or (443 if over_tls else 80), trust(None) if over_tls else None
            found = peer_at(parts.hostname or "", port, context, within=_ASK_S)
        except OSError:  # a certificate that is not trusted among them, which is told as that
            return ""
        if found.protocol is Protocol.PULSAR:
            return "Pulsar's binary protocol is spoken there, which is for --broker-url; the admin API has another port, 8080 as a rule (8443 with TLS)"
        if found.tls != over_tls and (found.tls or found.protocol is Protocol.HTTP):
            spoken, write = ("TLS", "https") if found.tls else ("no TLS", "http")
            return f"{spoken} is spoken there: write {write}://{parts.netloc}"
        return ""


def _bearer(token: Secret | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.reveal()}"} if token else {}


def _told_at(answer: urllib3.BaseHTTPResponse) -> int | None:
    try:
        return round(parsedate_to_datetime(answer.headers.get("Date", "")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _token_refused(answer: urllib3.BaseHTTPResponse) -> bool:
    """A 401 of the server itself; one about a right comes as JSON."""
    return answer.status == 401 and ("text/html" in answer.headers.get("Content-Type", "") or not answer.data)


def _why(problem: HTTPError) -> str:
    """The innermost cause, in the words of the system: `Connection refused`, not a chain of wrappers."""
    cause: BaseException = problem
    seen = set()
    while id(cause) not in seen:
        seen.add(id(cause))
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__
        if not isinstance(inner, BaseException):
            break
        cause = inner
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return "no answer in time" if isinstance(problem, urllib3.exceptions.TimeoutError) else type(cause).__name__

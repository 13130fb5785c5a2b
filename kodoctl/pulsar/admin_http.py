"""The admin port over HTTP: kept-alive connections, redirects within the cluster only, retries of reads."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from kodoctl import __version__
from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.access import Secret
from kodoctl.pulsar.admin import NOT_SENT, LostReplyError, Reply, RequestCount
from kodoctl.pulsar.connection import Connection
from kodoctl.pulsar.tokens import Presented

CONNECTIONS: Final = 12  # 8 to 16 saturate a broker, more gains nothing (pulsar-measured §9)
TIMEOUT: Final = (5.0, 60.0)  # seconds to connect, seconds to answer
READ_TRIES: Final = 6
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_MAX_REDIRECTS: Final = 5


def _only_reads(method: str, path: str) -> bool:
    """Whether a call changes nothing, so that it may be sent again: analyzeBacklog is a POST that only counts."""
    return method == "GET" or (method == "POST" and path.split("/")[4::2] == ["subscription", "analyzeBacklog"])


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
        self._connection, self._tries, self._timeout = connection, tries, timeout or TIMEOUT
        self._pause = pause
        self._lock = threading.Lock()
        self._traffic = RequestCount()
        self._allowed: set[str] = {urlsplit(connection.admin_url).netloc}
        self._brokers_known = False
        self._session = requests.Session()
        adapter = HTTPAdapter(pool_connections=4, pool_maxsize=CONNECTIONS + 4, max_retries=0)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        self._session.trust_env = False  # a proxy or .netrc of the shell must not see or change admin calls
        self._session.headers["User-Agent"] = f"kodoctl/{__version__}"
        self._presented = Presented(connection)
        if connection.tls:
            self._session.verify = str(connection.tls.ca) if connection.tls.ca else True
            self._session.cert = (str(connection.tls.cert), str(connection.tls.key)) if connection.tls.cert else None

    @property
    def traffic(self) -> RequestCount:
        """Requests sent so far."""
        return self._traffic

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = NOT_SENT,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Reply:
        """See Admin.call."""
        data = None if body is NOT_SENT else json.dumps(body).encode()
        tries = self._tries if _only_reads(method, path) else 1
        for attempt in range(1, tries + 1):
            try:
                reply = self._send(method, path, data, query, content_type)
            except requests.RequestException as problem:
                if attempt == tries or isinstance(problem, requests.exceptions.SSLError):
                    raise self._unreachable(method, path, problem) from None
            else:
                if reply.status not in _BUSY or attempt == tries:
                    return reply
            self._pause(min(0.1 * 2**attempt, 3.0) * (0.5 + random.random()))  # noqa: S311  # spreads retries, no secret
        raise AssertionError("unreachable")

    def _send(
        self, method: str, path: str, data: bytes | None, query: dict[str, str] | None, content_type: str
    ) -> Reply:
        url = f"{self._connection.admin_url}/admin/v2/{path}"
        for _ in range(_MAX_REDIRECTS + 1):
            token = self._presented.token()
            answer = self._once(method, path, url, data, query, content_type, token)
            if _token_refused(answer) and (other := self._presented.after_refusal(token)) is not None:
                token = other  # the first one ended early, or was withdrawn: nothing was done with it
                answer = self._once(method, path, url, data, query, content_type, token)
            if answer.status_code not in (307, 308):
                return self._read(method, path, answer, token)
            url, query = self._redirected(url, answer.headers.get("Location", "")), None
        raise ClusterError(
            error("K512", "redirected in circles", f"{method} {path}: more than {_MAX_REDIRECTS} redirects")
        )

    def _once(  # a request is what it is
        self,
        method: str,
        path: str,
        url: str,
        data: bytes | None,
        query: dict[str, str] | None,
        content_type: str,
        token: Secret | None,
    ) -> requests.Response:
        self._count(method, path)
        headers = {"Content-Type": content_type, **_bearer(token)}
        return self._session.request(
            method, url, params=query, data=data, headers=headers, timeout=self._timeout, allow_redirects=False
        )

    def _count(self, method: str, path: str) -> None:
        with self._lock:
            if _only_reads(method, path):
                self._traffic.reads += 1
            else:
                self._traffic.writes += 1
            kind = f"{method} {path.rsplit('/', 1)[-1]}"
            self._traffic.by_path[kind] = self._traffic.by_path.get(kind, 0) + 1

    def _read(self, method: str, path: str, answer: requests.Response, token: Secret | None) -> Reply:
        html = "text/html" in answer.headers.get("Content-Type", "")
        if _token_refused(answer):
            raise self._bad_token()
        data, reason = None, ""
        if html and answer.ok:
            detail = f"{self._connection.admin_url} answered {method} {path} with a web page: is it another server, or a login?"
            raise ClusterError(error("K523", "this is not Pulsar's admin API", detail))
        if answer.content and not html:
            text = answer.text.replace(token.reveal(), "***") if token else answer.text  # it may repeat our headers
            try:
                data = json.loads(text)
            except ValueError:
                data = text.strip()
        if not answer.ok:
            said = data.get("reason") if isinstance(data, dict) else data
            reason = next(iter(str(said or answer.reason or "").strip().splitlines()), "")[:500]
        return Reply(method, path, answer.status_code, data, reason)

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
        base = f"{self._connection.admin_url}/admin/v2/brokers"
        headers = {"Content-Type": "application/json", **_bearer(self._presented.token())}
        self._count("GET", "brokers")
        answer = self._session.get(base, headers=headers, timeout=self._timeout, allow_redirects=False)
        if answer.ok:
            self._allowed |= {str(broker) for broker in answer.json()}

    def _bad_token(self) -> ClusterError:
        if self._connection.oauth2 is not None:
            detail = f"{self._connection.host} takes no token of {self._connection.oauth2.issuer}, not even a new one: audience, or another key?"
        elif self._connection.token is None:
            detail = f"{self._connection.host} asks for a token: KODOCTL_TOKEN_FILE, --token-file or the context's token_file"
        else:
            detail = f"{self._connection.host} does not accept the token: expired, of another cluster, or damaged"
        return ClusterError(error("K511", "not authenticated", detail))

    def _unreachable(self, method: str, path: str, problem: requests.RequestException) -> ClusterError:
        reason = _why(problem)
        where = self._connection.admin_url
        if isinstance(problem, requests.exceptions.SSLError):
            advice = "name whom to trust with --tls-ca, and who you are with --tls-cert and --tls-key"
            return ClusterError(error("K527", "no TLS connection", f"{where}: {reason}; {advice}"))
        if method != "GET" and not isinstance(problem, requests.ConnectTimeout):
            return LostReplyError(error("K515", "no answer to a write", f"{method} {path} at {where}: {reason}"))
        context = f" (context {self._connection.context.name})" if self._connection.context else ""
        advice = "is the broker running? `kodoctl dev status` tells for a development one"
        return ClusterError(error("K514", "no broker answers", f"{where}{context}: {reason}; {advice}"))


def _bearer(token: Secret | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.reveal()}"} if token else {}


def _token_refused(answer: requests.Response) -> bool:
    """A 401 of the server itself; one about a right comes as JSON."""
    return answer.status_code == 401 and ("text/html" in answer.headers.get("Content-Type", "") or not answer.content)


def _why(problem: requests.RequestException) -> str:
    """The innermost cause, in the words of the system: `Connection refused`, not a chain of wrappers."""
    cause: BaseException = problem
    seen = set()
    while id(cause) not in seen:
        seen.add(id(cause))
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__
        if not isinstance(inner, BaseException):
            break
        cause = inner
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return "no answer in time" if isinstance(problem, requests.Timeout) else type(cause).__name__

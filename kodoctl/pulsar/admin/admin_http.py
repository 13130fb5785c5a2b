"""The admin port over HTTP: keeps connections alive, adapts the number of concurrent requests to the load of the
broker, follows redirects within the cluster only, tries several addresses of one cluster, and repeats requests if a
broker is busy or does not answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, SSLError
from urllib3.fields import RequestField
from urllib3.filepost import encode_multipart_formdata

from kodoctl import __version__
from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.adaptive_limit import AdaptiveConcurrencyLimit
from kodoctl.pulsar.admin.admin import (
    FUNCTION_API,
    NOT_SENT,
    VERSION_3,
    WITHOUT_WORKERS,
    Reply,
    RequestCount,
    no_condition,
)
from kodoctl.pulsar.admin.admin_errors import CircularRedirectError, NoAnswerError, Silence, bad_token, unreachable
from kodoctl.pulsar.admin.trusted_brokers import Answer, Brokers, Course, NotNowError, topics_of
from kodoctl.pulsar.connection.addresses import NO_WORKERS
from kodoctl.pulsar.connection.credentials import trust
from kodoctl.pulsar.connection.oauth2 import BearerToken
from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S, Wait, WaitMonitor

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.connection.secret import Secret

CONNECTIONS: Final = 12  # 8 to 16 saturate a broker, more gains nothing (docs/explanation/pulsar.md)
TIMEOUT: Final = 5.0  # seconds for an exchange, from the connection to the beginning of the answer
_WORKING: Final = 60.0  # the same for what brokers and workers work on: counts of a backlog, uploads of code
FIRST_S: Final = 8.0  # a cluster of which no address ever answered is not in a fail-over
_NO_TIME: Final = frozenset({429, 503})
_MAX_REDIRECTS: Final = 5
_HEADERS: Final = {"User-Agent": f"kodoctl/{__version__}", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}


def _only_reads(method: str, path: str) -> bool:
    """True if a call changes nothing, so that it may be sent again: analyzeBacklog is a POST that only counts."""
    return method == "GET" or (method == "POST" and path.split("/")[4::2] == ["subscription", "analyzeBacklog"])


@dataclass(frozen=True, slots=True)
class _Request:
    """Request, independent of the broker that it goes to and of its token. `condition`, `patient`: see Admin.call."""

    method: str
    path: str
    data: bytes | None = None
    content_type: str = "application/json"
    condition: Callable[[], None] = no_condition
    patient: bool = True

    @property
    def reads(self) -> bool:
        return _only_reads(self.method, self.path)

    @property
    def timeout(self) -> urllib3.Timeout | None:
        """Time-out of a request that takes longer than others; None for these."""
        is_long = self.content_type.startswith("multipart/") or self.path.endswith("/analyzeBacklog")
        return urllib3.Timeout(connect=TIMEOUT, read=_WORKING) if is_long else None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class HttpAdmin:
    """The admin API of one cluster over HTTP (implements `Admin`). Several threads may call it."""

    def __init__(
        self,
        connection: Connection,
        *,
        waits: WaitMonitor | None = None,
        pause: Callable[[float], None] = time.sleep,
        limit: float = FAIL_OVER_S,
        timeout: float | None = None,
        traffic: RequestCount | None = None,
        at_once: int = CONNECTIONS,
    ) -> None:
        """Sends nothing yet. `waits`: monitor that limits and reports waits; None: a new one without reports, which
        allows `limit` seconds per call (0, no wait, for callers that call again soon anyway) and sleeps by `pause`.
        `timeout`: seconds for an exchange, from the connection to the beginning of the answer; None: TIMEOUT; counts of
        a backlog and uploads have 60 s. `traffic`: counts of requests to add to; None:
        new ones. `at_once`: most requests that are under way at the same time; fewer are while a broker is busy.
        """
        self._connection = connection
        self._waits = waits or WaitMonitor(limit=limit, pause=pause)
        self._traffic = RequestCount() if traffic is None else traffic
        self._brokers = Brokers(connection.admin_urls)
        self._answered = False
        self._bearer_token = BearerToken(connection)
        self._concurrency = AdaptiveConcurrencyLimit(at_once)
        self._timeout = urllib3.Timeout(total=timeout or TIMEOUT)
        over_tls = urlsplit(connection.admin_urls[0]).scheme == "https"
        self._pool = (
            urllib3.PoolManager(  # knows no proxy and no .netrc of the shell: they must not see or change admin calls
                num_pools=16,
                maxsize=at_once + 4,
                retries=False,
                ssl_context=trust(connection.tls) if over_tls else None,
            )
        )
        self._worker: HttpAdmin | None = None
        if connection.worker_url is not None:
            apart = replace(connection, admin_url=connection.worker_url, function_worker=None)
            self._worker = HttpAdmin(apart, waits=self._waits, timeout=timeout, traffic=self._traffic, at_once=at_once)

    @property
    def traffic(self) -> RequestCount:
        """Counts of the requests so far, with redirects, retries and lookups, and with those that others added to the
        `traffic` that was passed. Later requests change the same object.
        """
        return self._traffic

    @property
    def waits(self) -> WaitMonitor:
        """Monitor that limits and reports waits for this cluster."""
        return self._waits

    def close(self) -> None:
        """Closes the connections and the monitor of waits, also one that was passed."""
        self._pool.clear()
        if self._worker is not None:
            self._worker.close()
        self._waits.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = NOT_SENT,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        condition: Callable[[], None] = no_condition,
        patient: bool = True,
    ) -> Reply:
        """Sends one call, as `Admin.call` does. If an address does not answer and the request may be sent again, tries
        the next configured one. A call about functions or connectors goes to the workers that run apart from the
        brokers, if the connection names some; if it says that there are none, the reply (409, WITHOUT_WORKERS) is made
        here.
        """
        if path.startswith(FUNCTION_API):
            if self._connection.function_worker == NO_WORKERS:
                return Reply(method, path, 409, reason=WITHOUT_WORKERS)
            if self._worker is not None:
                return self._worker.call(
                    method, path, body, query=query, content_type=content_type, condition=condition, patient=patient
                )
        data = None if body is NOT_SENT else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = _Request(method, path, data, content_type, condition, patient)
        with self._waits.during(f"{request}: no answer yet") as wait:
            return self._until_answered(request, query, wait)

    def _until_answered(self, request: _Request, query: dict[str, str] | None, wait: Wait) -> Reply:
        """Sends a request until its answer is not transient or the limit is reached: first at other configured
        addresses, then after pauses. Also returns a transient answer if the request must not be sent again. Raises
        ClusterError.
        """
        address, failed = self._brokers.address, dict[str, Silence]()
        while True:
            try:
                with self._concurrency:
                    reply = self._send(request, query, address)
            except NoAnswerError as problem:
                silence = problem.silence
                if silence.via is None:
                    self._brokers.failed(address)
                    failed[address] = silence
                if not self._goes_on(request, silence, failed, wait):
                    raise unreachable(
                        self._connection, str(request), silence, failed, wait.seconds, reads=request.reads
                    ) from None
            except CircularRedirectError as problem:
                if not wait.again(str(problem)):
                    raise ClusterError(error("K512", "redirected in circles", str(problem))) from None
            else:
                (self._concurrency.throttled if reply.status in _NO_TIME else self._concurrency.succeeded)()
                if not reply.transient:
                    return reply
                if reply.status in (502, 503, 504):
                    self._brokers.failed(address)
                if not request.reads or not request.patient or not wait.again(str(reply)):
                    return reply
            address = self._brokers.after(address)

    def _goes_on(self, request: _Request, silence: Silence, failed: dict[str, Silence], wait: Wait) -> bool:
        """True if a request without an answer is sent again. Sleeps first if no other configured address is left."""
        if not (silence.not_sent or request.reads):
            return False
        others = set(self._connection.admin_urls) - failed.keys()
        if silence.via is None and others and (silence.not_sent or wait.limit > 0):
            return True
        if isinstance(silence.problem, SSLError):
            return False
        limit = None if self._answered else FIRST_S
        return wait.again(f"{request}: no answer of {silence}", limit)

    def _send(self, request: _Request, query: dict[str, str] | None, address: str) -> Reply:
        first = f"{address}/admin/{'' if request.path.startswith(VERSION_3) else 'v2/'}{request.path}"
        if query:
            first = f"{first}?{urlencode(query)}"
        url, via, asked_again = first, None, False
        for _ in range(_MAX_REDIRECTS + 1):
            reply, location = self._ask_host(request, url, via)
            if reply.status not in (307, 308):
                return reply
            try:
                topics = topics_of(request.path)
                course = self._brokers.course(url, location, topics, self._ask, asked_again=asked_again)
            except NotNowError as problem:
                reason = f"whether {urlsplit(location).netloc} is a broker cannot be known now: {problem}"
                return replace(reply, status=503, reason=reason)
            asked_again = asked_again or course is Course.ASK_AGAIN
            url, via = (location, _origin(url)) if course is Course.FOLLOW else (first, None)
        raise CircularRedirectError(
            f"{request}: more than {_MAX_REDIRECTS} redirects, the last one to {_origin(location)}"
        )

    def _ask_host(self, request: _Request, url: str, via: str | None) -> tuple[Reply, str]:
        """Sends a request to one host, with a second token if the host refuses the first. Returns the reply and the URL
        of a redirect ("": none). Raises NoAnswerError, ClusterError for a refused token.
        """
        token, asked = self._bearer_token.token(), time.monotonic()
        answer = self._once(request, url, via, token)
        if _token_refused(answer) and (other := self._bearer_token.after_refusal(token)) is not None:
            # the first one ended early, or was withdrawn: nothing was done with it
            token, asked = other, time.monotonic()
            answer = self._once(request, url, via, token)
        took = time.monotonic() - asked
        self._answered = True
        if answer.status in (307, 308):
            return Reply(request.method, request.path, answer.status), answer.headers.get("Location", "")
        reply = self._read_reply(request, _origin(url), answer, token)
        return replace(reply, server_time=_server_time(answer), took=took), ""

    def _ask(self, url: str) -> Answer:
        """Sends a GET of `Brokers` to a URL of a host that it trusts."""
        return Answer(*self._ask_host(_Request("GET", urlsplit(url).path.lstrip("/")), url, None))

    def _once(self, request: _Request, url: str, via: str | None, token: Secret | None) -> urllib3.BaseHTTPResponse:
        """Makes one HTTP exchange and reads the body, after the request's `condition`. Raises NoAnswerError. Uses
        urllib3 without `requests`, which needs twice the CPU time for its sessions.
        """
        request.condition()
        self._traffic.add(request.method, request.path, reads=request.reads)
        headers = {**_HEADERS, "Content-Type": request.content_type, **_bearer(token)}
        try:
            return self._pool.request(
                request.method,
                url,
                body=request.data,
                headers=headers,
                redirect=False,
                timeout=request.timeout or self._timeout,
            )
        except HTTPError as problem:
            raise NoAnswerError(Silence(_origin(url), via, problem)) from None

    def _read_reply(
        self, request: _Request, host: str, answer: urllib3.BaseHTTPResponse, token: Secret | None
    ) -> Reply:
        html, ok = "text/html" in answer.headers.get("Content-Type", ""), answer.status < 400
        if _token_refused(answer):
            raise bad_token(self._connection, host)
        data, reason, foreign = None, "", html
        if html and ok:
            detail = f"{host} answered {request} with a web page: is it another server, or a login?"
            raise ClusterError(error("K523", "this is not Pulsar's admin API", detail))
        if answer.data and not html:
            text = answer.data.decode("utf-8", "replace")
            text = text.replace(token.reveal(), "***") if token else text  # it may repeat our headers
            try:
                data = json.loads(text)
            except (ValueError, RecursionError):
                data, foreign = text.strip(), True
        if not ok:
            message = data.get("reason") if isinstance(data, dict) else data
            reason = _reason(str(message or answer.reason or ""))
        return Reply(
            request.method,
            request.path,
            answer.status,
            data,
            reason,
            foreign=foreign,
            body=answer.data,
            headers=answer.headers,
            host=host,
        )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _reason(text: str) -> str:
    """The line of an error text that gives the reason. For a failure within the broker that is the line of its
    message: the first line is the same for all failures.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    first = next(iter(lines), "")
    if first.startswith("--- An unexpected error occurred"):
        first = next((line for line in lines if line.startswith("Message: ")), first).removeprefix("Message: ")
    return first[:500]


def _bearer(token: Secret | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.reveal()}"} if token else {}


def _server_time(answer: urllib3.BaseHTTPResponse) -> int | None:
    try:
        return round(parsedate_to_datetime(answer.headers.get("Date", "")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _token_refused(answer: urllib3.BaseHTTPResponse) -> bool:
    """True for a 401 about the token, whose body is empty or HTML; a 401 about a missing right has a JSON body."""
    return answer.status == 401 and ("text/html" in answer.headers.get("Content-Type", "") or not answer.data)


def multipart(parts: Mapping[str, str | bytes]) -> tuple[bytes, str]:
    """Body and content type of a form with these texts and files (bytes) by name, in the form that worker and broker
    read: a text whose name ends in `Config` or `metadata` is marked as JSON, and has to be JSON.
    """
    fields = []
    for name, content in parts.items():
        if isinstance(content, bytes):
            fields.append(field := RequestField(name, content, filename=name))
            field.make_multipart(content_type="application/octet-stream")
            continue
        fields.append(field := RequestField(name, content))
        kind = "application/json" if name.endswith(("Config", "metadata")) else "text/plain"
        field.make_multipart(content_type=f"{kind}; charset=utf-8")
    return encode_multipart_formdata(fields)

"""Errors for an admin address that does not answer or accepts no token. They name the host, the cause and a remedy."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from traceback import walk_tb
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, ReadTimeoutError, SSLError

from kodoctl.errors import ClusterError, Diagnostic, error
from kodoctl.pulsar.admin.admin import LostReplyError
from kodoctl.pulsar.connection.credentials import trust
from kodoctl.pulsar.connection.peer import Protocol, peer_at
from kodoctl.text.formatting import time_text

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.connection import Connection

_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})  # where development brokers are
_ASK_S: Final = 1.0  # for what answers instead of a broker; it has been waited for already


@dataclass(frozen=True, slots=True)
class Silence:
    """A request that got no answer. `host`: `http://HOST:PORT` that it was sent to; `via`: the host (in the same form)
    that redirected the request there, None without a redirect; `problem`: exception of the HTTP library.
    """

    host: str
    via: str | None
    problem: HTTPError

    @property
    def not_sent(self) -> bool:
        """True if the request counts as not received by the broker, so that even a write is sent again: no connection
        was made, or no TLS connection. False if the broker may have got it.
        """
        # a refused connection is a ConnectTimeoutError, too
        return isinstance(self.problem, ConnectTimeoutError) or _handshake_failed(self.problem)

    def __str__(self) -> str:
        return f"{self.host}: {why(self.problem)}"


def _handshake_failed(problem: HTTPError) -> bool:
    """True if TLS failed before a request could be sent. The HTTP library has one SSLError for that and for a
    connection that breaks later; only the frames of its cause tell them apart.
    """
    cause = problem.args[0] if isinstance(problem, SSLError) and problem.args else None
    frames = walk_tb(cause.__traceback__) if isinstance(cause, ssl.SSLError) else ()
    return any(frame.f_code is ssl.SSLSocket.do_handshake.__code__ for frame, _ in frames)


class NoAnswerError(Exception):
    """A request got no answer from one address. `silence`: the address and the cause. HttpAdmin catches this error, and
    tries again if the request may be sent again; its callers see ClusterError.
    """

    def __init__(self, silence: Silence) -> None:
        super().__init__(str(silence))
        self.silence = silence


class CircularRedirectError(Exception):
    """A request was redirected more than 5 times. This happens while a topic moves: for a moment each of two brokers
    may take the other for the owner. No broker has carried the request out, so even a write may be sent again.
    """


def unreachable(
    connection: Connection, request: str, last: Silence, failed: Mapping[str, Silence], seconds: float, *, reads: bool
) -> ClusterError:
    """Makes the error for a request without an answer: LostReplyError if the request may have arrived and may have
    changed something, else ClusterError. `request`: its method and path; `reads`: it changes nothing; `last`: the last
    try; `failed`: last try at each configured address that did not answer; `seconds`: duration of all tries. Connects
    to hosts that broke off a request that reads, and to hosts where TLS failed, to find out their protocol (about 1 s
    each at most).
    """
    if not last.not_sent and not reads:
        return LostReplyError(error("K515", "no answer to a write", f"{request} at {last}{_redirect_text(last)}"))
    silent = [failed[address] for address in connection.admin_urls if address in failed] or [last]
    if last.via is not None:
        silent = [last]
    findings = [_finding(connection, silence, look=reads) for silence in silent]
    if len(findings) == 1 or any(code == "K527" for code, _ in findings):
        code, detail = findings[0]
        return ClusterError(_silence_finding(code, detail, last, seconds))
    rows = "\n".join(detail for _, detail in findings)
    return ClusterError(error("K514", "no broker answers", f"none of {len(findings)} addresses answers:\n{rows}"))


def _silence_finding(code: str, detail: str, last: Silence, seconds: float) -> Diagnostic:
    if code == "K527":
        return error(code, "no TLS connection", detail)
    waited = f" (tried for {seconds:.0f} s)" if last.via is not None and seconds >= 1 else ""
    text = f"{detail}{_redirect_text(last)}{waited}"
    if last.via is not None:
        return error("K514", "a broker does not answer", text)
    return error(code, "no broker answers", text)


def _redirect_text(silence: Silence) -> str:
    if silence.via is None:
        return ""
    there = f"; {silence.via} answers, and redirected there"
    if isinstance(silence.problem, ReadTimeoutError):
        return (
            f"{there}. That broker takes connections and gives no answer about this object: it may hang while it loads the"
            " topic; its log says so, and if it stays so, restart it"
        )
    return (
        f"{there}. After a broker's failure the others name a new owner once its session"
        " with ZooKeeper has ended, 30 s by default"
    )


def _finding(connection: Connection, silence: Silence, *, look: bool) -> tuple[str, str]:
    """Returns code and detail of the error about one address. `look`: connect to the host for advice about its
    protocol, as is always done after a TLS failure.
    """
    reason, problem = why(silence.problem), silence.problem
    if (look or isinstance(problem, SSLError)) and (advice := _other_protocol(silence)):
        return "K514", f"{silence.host}: {advice}"
    if isinstance(problem, SSLError):
        advice = "name whom to trust with --tls-ca, and who you are with --tls-cert and --tls-key"
        if "mismatch" in reason:
            advice = "use a name that its certificate has"
        return "K527", f"{silence.host}: {reason}; {advice}"
    if silence.via is not None:
        return "K514", f"{silence.host}: {reason}"
    context = f" (context {connection.context.name})" if connection.context else ""
    advice = "is the broker running?"
    if (urlsplit(silence.host).hostname or "") in _THIS_MACHINE:
        advice += " `kodoctl dev status` tells for a development one"
    return "K514", f"{silence.host}{context}: {reason}; {advice}"


def bad_token(connection: Connection, host: str) -> ClusterError:
    """Makes the error (K511) for status 401 from `host`: the token is not accepted, or one is required."""
    if connection.oauth2 is not None:
        detail = f"{host} takes no token of {connection.oauth2.issuer}, not even a new one: audience, or another key?"
    elif connection.token is None:
        detail = f"{host} asks for a token: KODOCTL_TOKEN_FILE, --token-file or the context's token_file"
        if connection.withheld:
            detail = f"{detail}\n{connection.withheld}"
    else:
        expired = _expiry_of(connection.token.reveal())
        why = ": expired, of another cluster, or damaged"
        if expired is not None and expired < time.time():
            why = f", which expired on {time_text(expired * 1000)}: get a new one"
        detail = f"{host} does not accept the token{why}"
    return ClusterError(error("K511", "not authenticated", detail))


def _expiry_of(token: str) -> int | None:
    """Expiry of a JSON Web Token, in seconds since the epoch, not verified; None: the token names no expiry."""
    payload = token.split(".")[1:2]
    try:
        claims = json.loads(base64.urlsafe_b64decode(f"{payload[0]}=="))
        return int(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _other_protocol(silence: Silence) -> str:
    """Connects to an address. Returns advice if another protocol than expected is spoken there, else ""."""
    if isinstance(silence.problem, urllib3.exceptions.TimeoutError | urllib3.exceptions.NewConnectionError):
        return ""
    parts = urlsplit(silence.host)
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


def why(problem: HTTPError) -> str:
    """Text of the innermost cause of an error, in the system's words if it has some, such as `Connection refused`; else
    words of ours, or the name of its class.
    """
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

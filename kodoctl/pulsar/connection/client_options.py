"""Options of a `pulsar.Client`, the same for every client of a connection, in every package; and a probe of its
address.

The probe comes before the first client, because the client library waits silently and for long if no broker answers.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.connection.credentials import trust, trusted_file
from kodoctl.pulsar.connection.discarded_messages import client_log
from kodoctl.pulsar.connection.oauth2 import token_cache
from kodoctl.pulsar.connection.peer import WITHIN_S, Peer, PortError, Protocol, peer_at

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.connection import Connection

OPERATION_TIMEOUT_S: Final = 15
_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}
_TLS: Final = "pulsar+ssl"


def knock(connection: Connection) -> None:
    """Checks that a broker answers at one of the addresses of the binary port, tried in turn for at most WITHIN_S
    seconds each. Raises PortError, which describes what answers at each address and where the address was set. Does
    nothing if the connection has no address of the binary port.
    """
    if connection.broker_url is None:
        return  # create_client says so
    scheme, _, hosts = connection.broker_url.partition("://")
    problems = []
    for host in hosts.partition("/")[0].split(","):
        try:
            _knock_at(connection, scheme, host)
        except PortError as problem:
            problems.append(problem)
        else:
            return
    raise PortError(*(finding for problem in problems for finding in problem.diagnostics))


def _knock_at(connection: Connection, scheme: str, host: str) -> None:
    parts = urlsplit(f"//{host}")
    shown = f"{scheme}://{host} ({connection.broker_from})"
    try:
        context = trust(connection.tls) if scheme == _TLS else None
        found = peer_at(parts.hostname or "", parts.port or _PORTS[scheme], context, within=WITHIN_S)
    except ssl.SSLCertVerificationError as problem:
        advice = (
            "use a name that its certificate has"
            if "mismatch" in problem.verify_message
            else "name whom to trust with --tls-ca"
        )
        detail = f"{shown}: its certificate is not trusted: {problem.verify_message}; {advice}"
        raise PortError(error("K527", "no TLS connection", detail)) from None
    except TimeoutError:
        raise _no_answer_error(
            shown, f"silent for {WITHIN_S:.0f} s; is this the address, and does the broker run?"
        ) from None
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise _no_answer_error(shown, f"{reason}; is this the address, and does the broker run?") from None
    if advice := _advice(scheme, host, found):
        raise _no_answer_error(shown, advice)


def _no_answer_error(shown: str, why: str) -> PortError:
    return PortError(error("K518", "the broker's binary port does not answer", f"{shown}: {why}"))


def _advice(scheme: str, host: str, found: Peer) -> str:
    """Advice for an address where this peer answers; "" if nothing is wrong with it."""
    if found.protocol is Protocol.HTTP:
        own = _PORTS[scheme]
        return f"HTTP is spoken there, as at the port of the admin API; the binary port is another one, {own} as a rule"
    if found.tls and scheme != _TLS:
        return f"TLS is spoken there: write {_TLS}://{host}"
    if not found.tls and scheme == _TLS and found.protocol is Protocol.PULSAR:
        return f"the broker speaks no TLS there: write pulsar://{host}, or the port where it does, {_PORTS[_TLS]} as a rule"
    if found.protocol is Protocol.UNKNOWN and not found.tls:
        return "something answers there that is no broker"
    return ""


def create_client(connection: Connection, operation_timeout: int = OPERATION_TIMEOUT_S) -> Any:
    """Makes a `pulsar.Client`. `operation_timeout`: seconds after which the client stops trying to open a producer or a
    consumer.

    The client library writes its own log to a file in memory, where `ClientLog.news` finds the messages that it
    discarded. Nothing else of that log is shown, because kodoctl reports errors itself. Raises ClusterError if there is
    no address of the binary port, or the issuer gives no token.
    """
    import pulsar

    if connection.broker_url is None:
        detail = "name it with --broker-url, KODOCTL_BROKER_URL or the context's broker_url"
        raise ClusterError(error("K516", "no address of the broker's binary port", detail))
    tls = connection.tls
    files = {
        "tls_trust_certs_file_path": trusted_file(tls) if connection.broker_url.startswith(_TLS) else None,
        "tls_certificate_file_path": tls.cert if tls else None,
        "tls_private_key_file_path": tls.key if tls else None,
    }
    return pulsar.Client(
        connection.broker_url,
        authentication=_authentication(connection),
        operation_timeout_seconds=operation_timeout,
        tls_validate_hostname=True,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, client_log().path),
        **{name: str(path) for name, path in files.items() if path is not None},
    )


def _authentication(connection: Connection) -> Any:
    """Authentication of the client library; None: no credentials. A token is preferred to a certificate, which TLS
    still presents. Raises ClusterError if the issuer gives no token.
    """
    import pulsar

    if connection.oauth2 is not None:
        source = token_cache(connection.oauth2)
        # A process's first token is requested here, so that a failure is raised in the caller's thread. Later clients,
        # which a worker makes while it runs, wait for nothing.
        last = [(source.latest or source.token()).reveal()]

        def current() -> str:
            """Called by the library's threads whenever the broker asks again."""
            with contextlib.suppress(ClusterError):
                last[0] = source.token().reveal()
            return last[0]

        return pulsar.AuthenticationToken(current)
    if connection.token is not None:
        return pulsar.AuthenticationToken(connection.token.reveal())
    if connection.tls is not None and connection.tls.cert is not None:
        return pulsar.AuthenticationTLS(str(connection.tls.cert), str(connection.tls.key))
    return None

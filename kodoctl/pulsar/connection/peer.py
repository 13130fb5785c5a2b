"""Protocol probe of an address: which protocol answers there, and whether over TLS.

The probe is one message of the binary protocol of Pulsar, `PING`, which a broker or proxy answers before
authentication; a web server answers it as well, in HTTP. Nothing is logged or counted for it on the other side.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kodoctl.errors import ClusterError

WITHIN_S: Final = 5.0  # longest silence before an address is said not to answer
_PING: Final = bytes.fromhex("00000009 00000005 0812 920100")  # frame size, command size, type = 18, ping = {}
_FRAME: Final = bytes.fromhex(
    "000000"
)  # how every answer to it begins: no frame of a broker's first words reaches 16 MiB


class PortError(ClusterError):
    """No address of the binary port leads to a broker, or none to one whose TLS certificate is trusted."""


class Protocol(Enum):
    """Protocol in which an address answered the probe; UNKNOWN: in another one, or it ended the connection without an
    answer. The value is the name of the protocol in error messages.
    """

    PULSAR = "Pulsar's binary protocol"
    HTTP = "HTTP"
    UNKNOWN = "another protocol"


@dataclass(frozen=True, slots=True)
class Peer:
    """Service that answered the probe of an address: its protocol, and whether it speaks TLS there."""

    protocol: Protocol
    tls: bool


def peer_at(host: str, port: int, trust: ssl.SSLContext | None, *, within: float = WITHIN_S) -> Peer:
    """Connects to an address, sends the probe, and returns the service that answers. With `trust` (the trusted
    authorities), TLS is tried first, else plain text; if the service does not understand that, then the other of the
    two, in which no certificate is checked. The protocol is UNKNOWN if the service understands neither. `within`:
    seconds for both together; looking up the name, and further IP addresses of the host, may take more.

    Raises errors of the first try only: SSLCertVerificationError for a certificate that `trust` does not accept,
    TimeoutError if there is no answer in time, another OSError if no connection can be made.
    """
    deadline = time.monotonic() + within
    expected = _ask_peer(host, port, trust, deadline)
    if expected is not None and expected.protocol is not Protocol.UNKNOWN:
        return expected
    with contextlib.suppress(OSError):  # the first one answered in its way: that this one is refused says nothing new
        other = _ask_peer(host, port, None if trust else _anybody(), deadline)
        if other is not None and (expected is None or other.protocol is not Protocol.UNKNOWN):
            return other
    return expected or Peer(Protocol.UNKNOWN, tls=False)


def _ask_peer(host: str, port: int, trust: ssl.SSLContext | None, deadline: float) -> Peer | None:
    """Sends one message over a new connection. Returns the service that answers; None: it does not understand."""
    with socket.create_connection((host, port), timeout=_seconds_left(deadline)) as plain:
        plain.settimeout(_seconds_left(deadline))
        if trust is None:
            answer = _answer(plain, deadline)
            return Peer(_protocol(answer), tls=False) if answer else None
        try:
            connection = trust.wrap_socket(plain, server_hostname=host)
        except (ssl.SSLCertVerificationError, TimeoutError):
            raise
        except OSError as problem:  # an alert is TLS all the same: it may ask for a certificate of ours
            alert = isinstance(problem, ssl.SSLError) and "ALERT" in (problem.reason or "")
            return Peer(Protocol.UNKNOWN, tls=True) if alert else None
        with connection:
            return Peer(_protocol(_answer(connection, deadline)), tls=True)


def _answer(connection: socket.socket, deadline: float) -> bytes:
    """Sends the message and returns the first bytes of the answer; empty if the other side closes the connection.
    Raises TimeoutError.
    """
    try:
        connection.sendall(_PING)
        connection.settimeout(_seconds_left(deadline))
        return connection.recv(64)
    except TimeoutError:
        raise
    except OSError:
        return b""


def _seconds_left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _protocol(answer: bytes) -> Protocol:
    if answer.startswith(b"HTTP/"):
        return Protocol.HTTP
    return Protocol.PULSAR if answer.startswith(_FRAME) else Protocol.UNKNOWN


def _anybody() -> ssl.SSLContext:
    """TLS context that trusts every certificate: only to learn whether TLS is spoken. No secret is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

"""What a client of the binary port is made with: the same for every client of a connection, in every room."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.connection import Connection
from kodoctl.pulsar.tokens import issued

OPERATION_TIMEOUT_S = 15


def new_client(connection: Connection) -> Any:
    """A `pulsar.Client`. Its library's own log goes nowhere: what matters is told by errors of ours.

    Raises ClusterError without an address of the binary port, or when the issuer gives no token.
    """
    import pulsar

    if connection.broker_url is None:
        detail = "name it with --broker-url, KODOCTL_BROKER_URL or the context's broker_url"
        raise ClusterError(error("K516", "no address of the broker's binary port", detail))
    tls = connection.tls
    files = {
        "tls_trust_certs_file_path": tls.ca if tls else None,
        "tls_certificate_file_path": tls.cert if tls else None,
        "tls_private_key_file_path": tls.key if tls else None,
    }
    return pulsar.Client(
        connection.broker_url,
        authentication=_authentication(connection),
        operation_timeout_seconds=OPERATION_TIMEOUT_S,
        tls_validate_hostname=True,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        **{name: str(path) for name, path in files.items() if path is not None},
    )


def _authentication(connection: Connection) -> Any:
    """A token goes before a certificate, as in the admin API's header; the certificate is then shown all the same."""
    import pulsar

    if connection.oauth2 is not None:
        source = issued(connection.oauth2)
        last = [source.token().reveal()]  # a failure is told here, where somebody hears it

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

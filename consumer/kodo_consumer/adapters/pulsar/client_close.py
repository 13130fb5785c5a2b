"""Closing a client of the binary port for good: nothing of it is sent afterwards, and nobody waits in it any more.

A thread that waits in the client library takes Python's lock every 100 ms. One that does so while the interpreter
ends is ended in the midst of C++, and that ends the process by SIGABRT, whatever its exit code was to be.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import pulsar

from kodo_consumer.runtime.threads import leave

log = logging.getLogger("kodo.consumer")
_ORDERLY_WITHIN: Final = 2.0  # seconds
_AT_ONCE_WITHIN: Final = 3.0  # seconds


def close_client(client: Any, name: str) -> None:
    """Closes a client in order, or at once where a broker does not answer. The client gives every send that has no
    receipt up before it asks the broker to close its producers: neither is it sent again, nor waited for (a flush may
    wait for ever).
    """

    def close() -> None:
        try:
            client.close()
        except pulsar.PulsarException as problem:
            log.debug("closing %s: %s", name, problem)

    if leave({name: close}, _ORDERLY_WITHIN) and leave({f"{name}, at once": client.shutdown}, _AT_ONCE_WITHIN):
        log.error("%s does not close within %.0f s and is left behind", name, _ORDERLY_WITHIN + _AT_ONCE_WITHIN)

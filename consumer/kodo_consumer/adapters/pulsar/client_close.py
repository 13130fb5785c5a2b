"""Final close of a client of the binary port: afterwards it sends nothing, and no thread waits in the library.

A thread that waits in the client library takes Python's lock every 100 ms. If it does so while the interpreter ends,
the thread is terminated within C++ code, and this ends the process by SIGABRT, whatever its exit code was to be.
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
    """Closes a client in order within 2 s; if that takes longer, shuts it down at once, within another 3 s. If this
    takes longer, too, the client is left open and an error is logged. Errors of the client library are logged, not
    raised. `name`: for the log. The close gives up every send without a receipt: the client does not send such a
    message again, and a flush that waits for its receipt may never return.
    """

    def close() -> None:
        try:
            client.close()
        except pulsar.PulsarException as problem:
            log.debug("closing %s: %s", name, problem)

    if leave({name: close}, _ORDERLY_WITHIN) and leave({f"{name}, at once": client.shutdown}, _AT_ONCE_WITHIN):
        log.error("%s does not close within %.0f s and is left behind", name, _ORDERLY_WITHIN + _AT_ONCE_WITHIN)

"""Drain: the orderly end of a worker, such as at SIGTERM."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from threading import Thread
from typing import TYPE_CHECKING, Final

from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.runtime.worker import Worker

log = logging.getLogger("kodo.consumer")
_LEAVE: Final = 2.0  # seconds for threads that wait for an answer from outside, such as an admin API: then without them


def drain(worker: Worker, seconds: float) -> None:
    """Starts no more messages, and waits at most `seconds` for running handlers, deferred messages, receipts and
    confirmations, or until the worker breaks. Logs what is left then; does not close the worker.
    """
    deadline = time.monotonic() + seconds
    worker.drain()
    while worker.busy and time.monotonic() < deadline and worker.problem is None:
        time.sleep(0.01)
    if worker.problem is not None:
        log.warning("the worker is broken and leaves: what is not acknowledged will be delivered again")
    elif worker.busy and worker.engine.context.confirmations is not None and not worker.engine.works:
        log.warning("drain time-out: not all acknowledgements are confirmed, or their hooks were not called")
    elif worker.busy:
        deferred = many(len(worker.engine.runs.deferred), "deferred message")
        log.warning("drain time-out: what still runs, and %s, is released and will be delivered again", deferred)


def join(threads: Sequence[Thread]) -> None:
    """Waits at most 2 s for all threads together. A thread that still waits for an answer from elsewhere is left
    behind, because it does nothing any more; its name is logged.
    """
    latest = time.monotonic() + _LEAVE
    for thread in threads:
        thread.join(max(0.0, latest - time.monotonic()))
    if late := [thread.name for thread in threads if thread.is_alive()]:
        log.warning("left behind, still waiting for an answer: %s", ", ".join(late))

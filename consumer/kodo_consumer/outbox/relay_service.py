"""A relay at work: its turns, and its orderly end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kodo_consumer.outbox.outbox_store import OutboxStore
    from kodo_consumer.outbox.producers import Senders
    from kodo_consumer.outbox.relay import Relay

log = logging.getLogger("kodo.outbox")


def serve(
    relay: Relay, asked_to_end: threading.Event, *, drain_timeout: float, until_empty: Callable[[], bool]
) -> None:
    """Turns until it is asked to end, or nothing is left where that was asked for; then gives back what was not sent and
    waits for receipts, `drain_timeout` seconds at most. What has none by then is sent again by the next relay.
    """
    while not asked_to_end.is_set():
        pause = relay.turn()
        if pause and not relay.busy and until_empty():
            break
        (asked_to_end if pause > 1.0 else relay).wait(pause)  # the database is gone: receipts can wait
    relay.let_go()
    deadline = time.monotonic() + drain_timeout
    while relay.busy and time.monotonic() < deadline:
        relay.wait(min(relay.turn(claim=False), 0.5))
    if relay.busy:
        log.warning(
            "some rows have no receipt yet: they are sent again, with the same identity, when their claim has ended"
        )


def leave(senders: Senders, store: OutboxStore) -> None:
    """Closes the senders, which wait for receipts, and then the store, even if closing the senders raises."""
    try:
        senders.close()
    finally:
        store.close()

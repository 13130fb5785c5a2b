"""Admin API that fences writes: it checks the lease before each request that writes, because a process that lost its
lease must not write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kodoctl.pulsar.admin.admin import NOT_SENT, Admin, Reply, RequestCount, no_condition

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor


class FencedAdmin:
    """Wrapper of an Admin that checks the lease immediately before each request but a GET: after any waiting, and
    before every redirect and retry. Every method but GET counts as writing, also a POST that changes nothing.

    `check` raises LockedError if the lease is lost. `Lease.check` asks the broker only if its last confirmation is some
    seconds old, so that requests may still be sent for these seconds after another process took the lease.
    """

    def __init__(self, admin: Admin, check: Callable[[], None]) -> None:
        self._admin, self._check = admin, check
        self._sent = threading.local()

    @property
    def traffic(self) -> RequestCount:
        """Counts of the requests that all users of the wrapped Admin sent. Later requests change the same object."""
        return self._admin.traffic

    @property
    def sent_here(self) -> int:
        """Number of writing requests that this thread has begun to send by this object; redirects and retries count."""
        found: int = getattr(self._sent, "count", 0)
        return found

    @property
    def waits(self) -> WaitMonitor:
        """Monitor that limits and reports waits for this cluster, that of the wrapped Admin."""
        return self._admin.waits

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
        """Sends a call as `Admin.call` does. If the call writes, the lease is checked before each of its requests,
        after `condition`, and LockedError is raised in place of the request if the lease is lost.
        """

        def check_fence() -> None:
            condition()
            if method != "GET":
                self._check()
                self._sent.count = self.sent_here + 1

        return self._admin.call(
            method, path, body, query=query, content_type=content_type, condition=check_fence, patient=patient
        )

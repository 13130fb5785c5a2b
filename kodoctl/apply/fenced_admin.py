"""Fence around the admin API: checks the lease before each request, because a process that lost its lease must
not write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kodoctl.pulsar.admin.admin import NOT_SENT, Admin, Reply, RequestCount, no_condition

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor


class FencedAdmin:
    """Asks for the lease where the request goes out: after whatever it waited for, before every redirect and every
    retry.

    `check` raises LockedError when the lease is lost; it asks the broker at most every few seconds
    (kodoctl.pulsar.control.lease).
    """

    def __init__(self, admin: Admin, check: Callable[[], None]) -> None:
        self._admin, self._check = admin, check
        self._sent = threading.local()

    @property
    def traffic(self) -> RequestCount:
        """See Admin.traffic."""
        return self._admin.traffic

    @property
    def sent_here(self) -> int:
        """Requests that change something which this thread has sent so far, or was about to send."""
        found: int = getattr(self._sent, "count", 0)
        return found

    @property
    def waits(self) -> WaitMonitor:
        """See Admin.waits."""
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
        """See Admin.call. Raises LockedError, and then nothing was sent; a read needs no lease."""

        def check_fence() -> None:
            condition()
            if method != "GET":
                self._check()
                self._sent.count = self.sent_here + 1

        return self._admin.call(
            method, path, body, query=query, content_type=content_type, condition=check_fence, patient=patient
        )

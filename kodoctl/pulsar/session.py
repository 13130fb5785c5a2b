"""Session: one command's clients of one cluster (admin API and binary port), opened when first needed,
closed together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.client import BrokerClient
from kodoctl.pulsar.connection.wait_monitor import OnWait, WaitMonitor

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.connection.connection import Connection


class Session:
    """Clients of one connection, for the admin API and the binary port; the end of the `with` block closes both.
    `on_wait`: receives reports of long waits (None: no reports); `waits`: the monitor that both clients use;
    `variables`: environment variables, for the URLs of databases (None: none).
    """

    def __init__(
        self, connection: Connection, on_wait: OnWait | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        self.connection, self.variables = connection, variables or {}
        self.waits = WaitMonitor(on_wait)
        self._http = HttpAdmin(connection, waits=self.waits)
        self.admin: Admin = self._http
        self.client = BrokerClient(connection, self.waits)
        self._opened = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the session was made, from a clock that never goes back."""
        return time.monotonic() - self._opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self._http.close()

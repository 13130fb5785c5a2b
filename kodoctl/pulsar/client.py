"""A connection to the broker's binary port, made when first needed: for bulk reads and the lease."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.connection import Connection
from kodoctl.pulsar.dial import PortError, knock, new_client


class BrokerClient:
    """Holds at most one client; closing twice is fine. The client library's own log goes nowhere: errors are ours to tell."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: Any = None
        self._lock = threading.Lock()
        self.problem: PortError | None = (
            None  # why nobody answered when a client was first needed: nobody is asked again
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def available(self) -> bool:
        """Whether an address of the binary port is known."""
        return self._connection.broker_url is not None

    def get(self) -> Any:
        """The `pulsar.Client`. Raises ClusterError without an address, PortError where that leads to no broker."""
        with self._lock:
            if self.problem is not None:
                raise self.problem
            if self._client is None:
                try:
                    knock(self._connection)
                except PortError as problem:
                    self.problem = problem
                    raise
                self._client = new_client(self._connection)
            return self._client

    def probe(self) -> None:
        """Asks the broker for something that does not exist: an answer is an answer. Raises ClusterError."""
        import pulsar

        try:
            self.get().get_topic_partitions("persistent://public/default/kodoctl-probe")
        except (pulsar.TopicNotFound, pulsar.AuthorizationError):  # of somebody who may not look there, but is known
            pass
        except pulsar.PulsarException as problem:
            detail = f"{self._connection.broker_url}: {problem}; a wrong token or certificate shows here as a time-out"
            raise ClusterError(error("K518", "the broker's binary port does not answer", detail)) from None

    def close(self) -> None:
        """Closes the connection, if there is one."""
        if self._client is not None:
            client, self._client = self._client, None
            client.close()

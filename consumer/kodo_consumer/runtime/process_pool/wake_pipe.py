"""Wake pipe: wakes one thread from the selector that it sleeps in."""

from __future__ import annotations

import socket


class WakePipe:
    """`asleep`: whether the thread has to be woken, as it says itself. `wake` is for any thread."""

    def __init__(self) -> None:
        self.asleep = False
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)

    def fileno(self) -> int:
        """Descriptor for the selector."""
        return self._bell.fileno()

    def wake(self) -> None:
        """Wakes it, if it sleeps and nobody has."""
        if self.asleep:
            self.asleep = False
            try:
                self._ring.send(b"!")
            except (BlockingIOError, OSError):  # rung enough, or over
                return

    def drain(self) -> None:
        """It is awake."""
        try:
            self._bell.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Nobody sleeps any more."""
        self._bell.close()
        self._ring.close()

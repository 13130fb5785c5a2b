"""Frame pipe: the worker's end of the socket to one process of a pool. It never blocks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from kodo_consumer.runtime.process_pool.wire_format import Frames, framed

_READ: Final = 1 << 18


class FramePipe:
    """Values go out as far as the socket takes their bytes; the others wait for `flush`."""

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._line = line
        self._frames = Frames()
        self._out = bytearray()

    def fileno(self) -> int:
        """File descriptor of the socket, for selectors."""
        return self._line.fileno()

    @property
    def unsent(self) -> bool:
        """True if bytes wait."""
        return bool(self._out)

    def send(self, value: tuple[Any, ...]) -> None:
        """One more value."""
        self._out += framed(value)
        self.flush()

    def flush(self) -> None:
        """Writes as many bytes as the socket takes now."""
        try:
            while self._out:
                del self._out[: self._line.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:  # it died: its sentinel shows it
            self._out.clear()

    def received(self) -> Iterator[Any]:
        """Values that came since the last time."""
        while True:
            try:
                data = self._line.recv(_READ)
            except (BlockingIOError, OSError):
                return
            if not data:
                return
            yield from self._frames.feed(data)

    def shut(self) -> None:
        """The other end reads that nothing more comes."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()

    def close(self) -> None:
        """Closes the socket, after the other end has died."""
        self._line.close()

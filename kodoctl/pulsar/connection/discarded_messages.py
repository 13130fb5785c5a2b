"""Messages that Pulsar's client library discards: it acknowledges a message that it cannot decompress, and only writes
a line to its own log. This module keeps that log in memory and searches it for such lines.

Every client that may produce can send such messages. The library delivers them to no handler, so kodoctl can report but
not keep them. A process has one such log, and its first client with a logger decides the destination: if an application
opens one of its own before, nothing is reported but that (`is_ignored`).
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_LINE: Final = re.compile(rb"\[([^\s,\]]+), ([^,\]]+), \d+\] Discarding corrupted message at (\d+:\d+)")
_DESCRIPTORS: Final = Path("/proc/self/fd")
_MOST: Final = 1 << 20  # bytes of log that are kept
_REMEMBERED: Final = 10_000  # messages that nobody has asked for yet


class ThrownAway(NamedTuple):
    """A message that the client library discarded: its topic (of a partitioned one, the partition), the subscription
    that lost it, and its position `ledger:entry`.
    """

    topic: str
    subscription: str
    place: str


class ClientLog:
    """Log of the client library's errors. Thread-safe. `path`: file that the library appends to; the null device, so
    that nothing is ever found, if the system has no files in memory.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("pulsar-client-log") if hasattr(os, "memfd_create") else None
        self.path = os.devnull if self._file is None else f"/proc/self/fd/{self._file}"
        self._lock = threading.Lock()
        self._read = 0
        self._found: deque[ThrownAway] = deque(maxlen=_REMEMBERED)
        self._count = 0

    @property
    def is_ignored(self) -> bool:
        """True if the library writes its log elsewhere, because the application opened a client with a logger of its
        own before the first client with this log. To be called after a client with this log was opened: before that it
        is True in any case. False on systems without files in memory or /proc.
        """
        if self._file is None or not _DESCRIPTORS.is_dir():
            return False
        ours, found = os.fstat(self._file), 0
        for one in _DESCRIPTORS.iterdir():
            with suppress(OSError):  # closed meanwhile
                found += os.path.samestat(ours, os.fstat(int(one.name)))
        return found == 1  # the library has a descriptor of its own

    def news(self, since: int) -> tuple[int, list[ThrownAway]]:
        """Returns (number to pass as `since` to the next call, messages discarded since the call that returned
        `since`), at most the last 10,000. `since` 0: all since the log was made.
        """
        with self._lock:
            self._look()
            missed = min(self._count - since, len(self._found))
            return self._count, list(self._found)[len(self._found) - missed :] if missed else []

    def _look(self) -> None:
        if self._file is None or (end := os.fstat(self._file).st_size) == self._read:
            return
        text = os.pread(self._file, end - self._read, self._read)
        whole = text.rfind(b"\n") + 1
        self._read += whole
        if self._read > _MOST:  # the library appends: it goes on from the new end
            os.ftruncate(self._file, 0)
            self._read = 0
        for match in _LINE.findall(text[:whole]):
            self._found.append(ThrownAway(*(part.decode(errors="replace") for part in match)))
            self._count += 1


@cache
def client_log() -> ClientLog:
    """The ClientLog of this process."""
    return ClientLog()

"""What worker processes of test_worker_group.py do: they have to be able to import it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kodo_consumer.running.multi_run import run_all
from kodo_consumer.running.worker_group import GroupMember


@dataclass(frozen=True)
class Play:
    """Writes `started`, `hangup` and `drained` of its number to a file, a line each, with the process number."""

    file: Path
    refuses: int = -1  # the number of a member that exits with 3 instead of being ready
    drains_with: int = 0
    lives: float = float("inf")  # seconds, after which it ends by itself

    def __call__(self, member: GroupMember) -> None:
        asked = threading.Event()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: asked.set())
        signal.signal(signal.SIGHUP, lambda *_: self.write(member, "hangup"))
        if member.number == self.refuses:
            sys.exit(3)
        self.write(member, "started")
        member.report_ready()
        end = time.monotonic() + self.lives
        while not asked.wait(0.02):
            if time.monotonic() >= end:
                sys.exit(5)
        self.write(member, "drained")
        sys.exit(self.drains_with if member.number == 1 else 0)

    def write(self, member: GroupMember, what: str) -> None:
        with self.file.open("a", encoding="utf-8") as out:
            out.write(f"{member.number} {what} {os.getpid()}\n")

    def lines(self, what: str) -> list[tuple[int, int]]:
        """Numbers and processes of the members that wrote it, in their order."""
        text = self.file.read_text("utf-8") if self.file.exists() else ""
        found = [line.split() for line in text.splitlines()]
        return [(int(number), int(process)) for number, word, process in found if word == what]


class SlowDrain(Play):
    """Runs a consumer whose drain takes two seconds, as a worker's process does."""

    def __call__(self, member: GroupMember) -> None:
        self.write(member, "started")
        run_all(_Slow(lambda what: self.write(member, what)), ready=member.report_ready)


@dataclass(frozen=True)
class _Slow:
    write: Callable[[str], None]

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        self.write("asked")
        time.sleep(2)
        self.write("drained")

    def wait(self, seconds: float | None = None) -> bool:
        time.sleep(min(seconds or 0.05, 0.05))
        return False

    def lanes(self) -> list[str]:
        return []

    def summary(self) -> list[str]:
        return []

    def reload(self) -> None:
        """No file."""

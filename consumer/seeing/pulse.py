"""A thread that wakes ten times a second: how late it is tells of a busy interpreter; once a second it looks at tenants, by steps."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from threading import Event
from typing import Final

from consumer.engine.worker import Worker
from consumer.seeing.stalls import Stalls
from consumer.seeing.tenants import TenantWatch

_BEAT: Final = 0.1  # seconds
_SILENT: Final = 1.0


class Pulse:
    """Of one worker, until `over`. `loop`: the event loop of async handlers, `tenants`: there when metrics are wanted."""

    def __init__(self, worker: Worker, loop: asyncio.AbstractEventLoop | None, tenants: TenantWatch | None) -> None:
        self.threads, self.handlers = Stalls("threads"), Stalls("handlers")
        self._worker, self._loop, self._tenants = worker, loop, tenants
        self._asked: float | None = None
        self._answered: float | None = None

    def run(self, over: Event) -> None:
        """Beats."""
        look_at = 0.0
        while True:
            began, cpu = time.monotonic(), time.process_time()
            if over.wait(_BEAT):
                return
            now = time.monotonic()
            share = (time.process_time() - cpu) / (now - began)
            self._judge(self.threads, now - began - _BEAT, now, share)
            self._ask_loop(now, share)
            if self._tenants is not None and (now >= look_at or self._tenants.under_way):
                look_at = now + 1.0
                running = Counter(message.tenant for message in list(self._worker.engine.running))
                self._tenants.look(running)

    def _ask_loop(self, now: float, share: float) -> None:
        """The loop is asked for a sign of life at every beat; one that is silent for long is judged each second."""
        if self._loop is None:
            return
        if self._answered is not None and self._asked is not None:
            self._judge(self.handlers, self._answered - self._asked, now, share)
            self._asked = None
        if self._asked is None:
            self._asked, self._answered = now, None
            with suppress(RuntimeError):  # closed at the end
                self._loop.call_soon_threadsafe(self._answer)
        elif now - self._asked > _SILENT:
            self._judge(self.handlers, now - self._asked, now, share)
            self._asked = now

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _judge(self, stalls: Stalls, seconds: float, now: float, share: float) -> None:
        if (alarm := stalls.add(seconds, now, share)) is not None:
            self._worker.alarm(alarm)

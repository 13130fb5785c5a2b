"""A wire between clients and a server, in user space: whole, slow, cut in every way a wire can be, or silent."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

_CHUNK = 1 << 16
_LINGER_OFF = struct.pack("ii", 1, 0)  # close with RST

Address = tuple[str, int]


@dataclass(frozen=True)
class Quality:
    """What happens to bytes on the way. `latency` and `per_second`: seconds, bytes (0: as many as there are). `slice`: bytes
    handed on at once. `deaf`, `mute`: nothing arrives at the server, at the client; the connection stays.
    """

    latency: float = 0.0
    per_second: int = 0
    slice: int = _CHUNK
    deaf: bool = False
    mute: bool = False
    refuses: bool = False


GOOD = Quality()


class Wire:
    """Listens at one address, hands on to another. Thread-safe: it runs on a loop of its own."""

    def __init__(self, listen: Address, target: Address) -> None:
        self._target = target
        self._quality = GOOD
        self._open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._connected, *listen))

    def set(self, **quality: Any) -> None:
        """How the wire is from now on, for connections that are open too; without arguments: good again."""
        self._quality = replace(GOOD, **quality)

    def reset(self) -> None:
        """Cuts every connection with RST, as a machine that is gone and back does."""
        self._call(self._cut(rst=True))

    def finish(self) -> None:
        """Ends every connection with FIN, as a load balancer does."""
        self._call(self._cut(rst=False))

    def close(self) -> None:
        """Cuts what is open, and listens no more."""
        self._server.close()
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._loop.is_running():
            self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _cut(self, *, rst: bool) -> None:
        for pair in list(self._open):
            for writer in pair:
                if writer.is_closing():  # its socket may be gone already
                    writer.transport.abort()
                elif rst:
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
                    writer.transport.abort()
                else:
                    writer.close()
        self._open.clear()
        await asyncio.sleep(0)

    async def _end(self) -> None:
        await self._cut(rst=True)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._quality.refuses:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, back)
        self._open.add(pair)
        ways = (self._pump(reader, back, "deaf"), self._pump(there, writer, "mute"))
        with suppress(asyncio.CancelledError):  # the end: what asyncio itself waits with would report it
            await asyncio.gather(*ways)
        self._open.discard(pair)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, silent: str) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._hand_on(data, sink, silent)
        if not sink.is_closing():
            sink.close()

    async def _hand_on(self, data: bytes, sink: asyncio.StreamWriter, silent: str) -> None:
        """What comes while the wire is silent is gone: the connection is of no use any more, and nobody knows."""
        quality = self._quality
        if getattr(quality, silent):
            return
        if quality.latency:
            await asyncio.sleep(quality.latency)
        for start in range(0, len(data), quality.slice):
            part = data[start : start + quality.slice]
            sink.write(part)
            await sink.drain()
            if quality.per_second:
                await asyncio.sleep(len(part) / quality.per_second)

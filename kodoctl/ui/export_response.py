"""Answer with a file of messages, sent while it is read. A file that breaks off is never taken for a whole one."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from kodoctl.errors import KodoctlError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

KINDS: Final = {"jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}
"""Media type by file suffix, for each file that a page offers."""


class ExportResponse(Response):
    """Sends the parts of a file as they come. If one of them cannot be read, the answer has no end, so that the browser
    reports a failed download. `parts`: read on threads, the first one by the constructor, which raises as it does, and
    closed early if the browser gives up the download; `name`: name of the file without `suffix`, of which other
    characters than ASCII letters, digits and `-_.` become `_`, cut to 100 characters; `suffix`: key of KINDS.
    """

    def __init__(self, parts: Generator[bytes], name: str, suffix: str) -> None:
        self._first = next(parts, b"")  # raises before anything is sent
        self._parts = parts
        super().__init__(
            media_type=KINDS[suffix], headers={"Content-Disposition": f'attachment; filename="{_plain(name)}.{suffix}"'}
        )
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer to one request. A KodoctlError of a part, or a closed connection, ends the answer early."""
        request = Request(scope, receive)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        part: bytes | None = self._first
        try:
            while part is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                if await request.is_disconnected():
                    await run_in_threadpool(self._parts.close)
                    return
                part = await run_in_threadpool(next, self._parts, None)
        except KodoctlError:
            return  # without an end
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _plain(name: str) -> str:
    return "".join(one if one.isascii() and (one.isalnum() or one in "-_.") else "_" for one in name)[:100]

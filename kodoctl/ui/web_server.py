"""Web server of the console, on a thread of its own: 127.0.0.1 only."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from typing import TYPE_CHECKING, Final

import uvicorn

from kodoctl.errors import UsageError, error
from kodoctl.ui.access_check import AccessCheck

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_LOG: Final = logging.getLogger("uvicorn.error")
_HOST: Final = "127.0.0.1"
_GRACE_S: Final = 2  # for answers under way, at the end


class ConsoleServer:
    """Serves an ASGI application on 127.0.0.1, on a thread, from its construction until `close`. `port`: port to listen
    on, 0 for any free one, as an attribute the real one; `address`: the URL with the token, without which the console
    refuses. Raises UsageError (K036) if it cannot listen on the port, such as one that is taken.
    """

    def __init__(self, application: ASGIApp, port: int = 0) -> None:
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((_HOST, port))
            self._socket.listen()  # a browser that comes at once waits
        except OSError as problem:
            self._socket.close()
            detail = f"{_HOST}:{port}: {problem.strerror}; choose another with --port, or leave it out"
            raise UsageError(error("K036", "the console cannot listen", detail)) from None
        self.port: int = self._socket.getsockname()[1]
        folder, token = f"/{secrets.token_urlsafe(16)}", secrets.token_urlsafe(32)
        self.address = f"http://{_HOST}:{self.port}{folder}/?token={token}"
        config = uvicorn.Config(
            AccessCheck(application, self.port, folder, token),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        self._server = uvicorn.Server(config)
        _LOG.addFilter(self._is_told)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="kodo-ui", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening, and waits until the serving thread has ended, but for five seconds at most: the thread may
        wait for an answer of a broker. Answers under way have two seconds to end.
        """
        self._server.should_exit = True
        self._thread.join(_GRACE_S + 3)
        self._socket.close()
        _LOG.removeFilter(self._is_told)

    def _is_told(self, _: logging.LogRecord) -> bool:
        """False from the end on: pages that wait for a broker are given up then, which is no error."""
        return not self._server.should_exit

"""Access check of the console: only a browser that was given the token may read, and only pages of the console may
write.

The console acts with the rights of the user who started it. Every page of the web may send requests to 127.0.0.1, so
each request has to prove three things: the browser knows the console by its own address (Host, against DNS rebinding),
a write comes from a page of the console (Origin), and somebody opened the printed address before (the cookie).

Browsers share the cookies of a host among its ports, and other users of this machine may listen on one. So the console
lies in a folder with a name that nobody can guess, and the cookie belongs to that folder.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_READS: Final = ("GET", "HEAD")
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_WELCOME: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>kodoctl ui</title>
<meta http-equiv="refresh" content="0; url=./"><p><a href="./">Open the console</a></p></html>
"""
"""First answer to the token. A redirect would lose the cookie when a page of another site has the link: browsers send a
strict cookie only with a request that a page of this site begins.
"""


class AccessCheck:
    """ASGI application before the console: refuses requests that are not the user's, and adds the headers that protect
    pages. A request to another host name or port gets 421; a write whose Origin is missing or not the console, a path
    outside of the folder, and a request without the cookie or the token get 403; a read with the token gets the cookie
    and a page that leads on. `port`: where the console listens; `folder`: path of its pages, `/` and a random name;
    `token`: secret of the printed address.
    """

    def __init__(self, application: ASGIApp, port: int, folder: str, token: str) -> None:
        self._application, self._folder, self._token = application, folder, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"kodoctl-ui-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request. If the console ends before its page is ready, the answer is 503 and says so."""
        is_answered = False

        async def send_protected(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._refusal(Request(scope)) or self._application
        try:
            await answer({**scope, "root_path": self._folder}, receive, send_protected)
        except asyncio.CancelledError:
            if not is_answered:
                await PlainTextResponse("kodoctl ui has ended.\n", 503)(scope, receive, send_protected)

    def _refusal(self, request: Request) -> Response | None:
        """Answer to a request that does not reach the console: a refusal, or the cookie for the token. None: the
        request may pass.
        """
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return PlainTextResponse("This console answers to its own address only.\n", 421)
        if request.method not in _READS and request.headers.get("origin") != f"http://{host}":
            return PlainTextResponse("Only a page of this console may do that.\n", 403)
        if not request.scope["path"].startswith(f"{self._folder}/"):
            return self._strange()
        if request.method in _READS and (token := request.query_params.get("token")) is not None:
            return self._welcome() if self._is_token(token) else self._strange()
        return None if self._is_token(request.cookies.get(self._cookie, "")) else self._strange()

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())

    def _welcome(self) -> Response:
        answer = HTMLResponse(_WELCOME)
        answer.set_cookie(self._cookie, self._token, path=f"{self._folder}/", httponly=True, samesite="strict")
        return answer

    @staticmethod
    def _strange() -> Response:
        return PlainTextResponse("Open the address that `kodoctl ui` printed: it has the token.\n", 403)

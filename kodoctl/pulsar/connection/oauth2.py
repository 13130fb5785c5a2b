"""OAuth2 tokens for client credentials: requested from the issuer when needed, and kept until shortly before they
expire.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.pulsar.connection.credentials import OAuth2, checked_issuer
from kodoctl.pulsar.connection.secret import Secret, checked_secret

if TYPE_CHECKING:
    import requests

    from kodoctl.pulsar.connection.connection import Connection

TIMEOUT: Final = (5.0, 30.0)  # seconds to connect, seconds to answer
EARLY: Final = 0.2  # of a token's life, at most a minute: by then the next one is asked for
_PAUSE: Final = 5.0  # seconds between two failed requests while the last token is valid
_WELL_KNOWN: Final = (".well-known/openid-configuration", ".well-known/oauth-authorization-server")


class TokenCache:
    """Cache of the token of one client. Safe to use from several threads: one requests a token while the others wait,
    and then share it. A failure is not shared: each of the others then sends its own request.
    """

    def __init__(self, settings: OAuth2, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._lock = threading.Lock()
        self._endpoint: str | None = None
        self._token: Secret | None = None
        self._renew_at = self._expires_at = 0.0

    @property
    def latest(self) -> Secret | None:
        """The token that the issuer gave last, which may have expired; None: it gave none yet. Never waits."""
        return self._token

    def token(self) -> Secret:
        """Returns the last token, or requests a new one if that ends within a fifth of its life, or a minute if that is
        less. A token without an end (`expires_in`) is kept until it is refused. Raises ClusterError (K526) if the
        issuer gives none, unless the last token is still valid.
        """
        with self._lock:
            if self._token is None or self._clock() >= self._renew_at:
                try:
                    self._ask()
                except ClusterError:
                    if self._token is None or self._clock() >= self._expires_at:
                        raise
                    self._renew_at = self._clock() + _PAUSE
            assert self._token is not None
            return self._token

    def renewed(self, refused: Secret) -> Secret:
        """Returns the token to try after the cluster did not accept `refused`: the last one if that is another one by
        now, else a newly requested one, so that threads with the same refused token share a new one. An issuer may give
        the refused one again. Raises ClusterError (K526).
        """
        with self._lock:
            if self._token is None or self._token == refused:
                self._ask()
            assert self._token is not None
            return self._token

    def _ask(self) -> None:
        settings = self._settings
        form = {
            "grant_type": "client_credentials",
            "client_id": settings.client_id,
            "client_secret": settings.secret.reveal(),
        }
        form |= {"audience": settings.audience} if settings.audience else {}
        form |= {"scope": settings.scope} if settings.scope else {}
        asked = self._clock()
        answer = self._send("POST", self._token_endpoint(), form)
        document = _document(answer)
        if not answer.ok:
            why = document.get("error_description") or document.get("error") or answer.reason or ""
            advice = (
                "check client id and secret, audience and scope"
                if answer.status_code in (400, 401, 403)
                else "try again later"
            )
            raise self._token_error(f"it answered {answer.status_code} ({self._mask_secret(why)}); {advice}")
        token = document.get("access_token")
        if not isinstance(token, str) or str(document.get("token_type", "bearer")).lower() != "bearer":
            raise self._token_error("its answer holds no bearer token (access_token, token_type)")
        try:
            self._token = checked_secret(token, "the issuer's answer")
        except UsageError:
            raise self._token_error("its access_token cannot travel in a header") from None
        life = document.get("expires_in")
        seconds = float(life) if isinstance(life, int | float) and life > 0 else float("inf")
        self._expires_at = asked + seconds
        self._renew_at = self._expires_at - min(60.0, seconds * EARLY)

    def _token_endpoint(self) -> str:
        """Address of the issuer's token endpoint (by OpenID Connect discovery, else RFC 8414)."""
        if self._endpoint is None:
            answers = (self._send("GET", f"{self._settings.issuer}/{path}") for path in _WELL_KNOWN)
            found = next((answer for answer in answers if answer.ok), None)
            named = _document(found).get("token_endpoint") if found is not None else None
            if not isinstance(named, str):
                raise self._token_error(
                    f"it does not say where it gives tokens: no token_endpoint at {' or '.join(_WELL_KNOWN)}"
                )
            try:
                self._endpoint = checked_issuer(named, "token_endpoint")
            except UsageError:
                raise self._token_error(
                    f"it gives tokens at {urlsplit(named).netloc} without TLS: the secret was not sent"
                ) from None
        return self._endpoint

    def _send(self, method: str, url: str, form: dict[str, str] | None = None) -> requests.Response:
        """Sends a request to the issuer, without following redirects: the secret is sent only to the address
        that the issuer named.
        """
        import requests

        try:
            with requests.Session() as session:
                session.trust_env = False
                return session.request(method, url, data=form, timeout=TIMEOUT, allow_redirects=False)
        except requests.RequestException as problem:
            raise self._token_error(f"it cannot be reached ({type(problem).__name__})") from None

    def _mask_secret(self, text: object) -> str:
        return str(text).replace(self._settings.secret.reveal(), "***")[:300]

    def _token_error(self, detail: str) -> ClusterError:
        return ClusterError(error("K526", "no token from the issuer", f"{self._settings.issuer}: {detail}"))


def _document(answer: requests.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@cache
def token_cache(settings: OAuth2) -> TokenCache:
    """The TokenCache of these settings in this process, shared by all connections."""
    return TokenCache(settings)


class BearerToken:
    """Source of the token that is sent with every request of a connection: a fixed token, one of OAuth2 that is renewed
    before it expires, or none.
    """

    def __init__(self, connection: Connection) -> None:
        self._fixed = connection.token
        self._cache = token_cache(connection.oauth2) if connection.oauth2 else None

    def token(self) -> Secret | None:
        """The token to send now; None: the connection has none. Raises ClusterError (K526), as `TokenCache.token`."""
        return self._cache.token() if self._cache else self._fixed

    def after_refusal(self, refused: Secret | None) -> Secret | None:
        """Token to try after the cluster refused one (`TokenCache.renewed`); None: the token is a fixed one, or none
        was sent. Raises ClusterError (K526).
        """
        return self._cache.renewed(refused) if self._cache and refused else None

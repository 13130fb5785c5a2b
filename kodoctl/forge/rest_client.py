"""HTTP client of a forge's API: the token, retries with pauses, pages, downloads, and errors that tell what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from kodoctl import __version__
from kodoctl.errors import ClusterError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.secret import Secret

T = TypeVar("T")
TIMEOUT: Final = (5.0, 30.0)  # seconds to connect, seconds to answer
PAGE: Final = 100
MAX_PAGES: Final = 50
_TRIES: Final = 4  # of a request that may be repeated
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_LONGEST_PAUSE: Final = 60.0  # seconds; a forge that asks for a longer pause is an error
_MAX_REDIRECTS: Final = 5
_MAX_BYTES: Final = 64 * 1024 * 1024
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError)


class _Session(requests.Session):
    """Session that knows the proxies and the authorities of the environment, and sends no password of a `.netrc`:
    neither to where it is redirected nor, by `_as_it_is`, with a request that has no authorization.
    """

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Takes the token off a request that is redirected to another host."""
        goes_on = not self.should_strip_auth(response.request.url, prepared_request.url)  # type: ignore[no-untyped-call]
        if "Authorization" in prepared_request.headers and not goes_on:
            del prepared_request.headers["Authorization"]


class RestClient:
    """Client of an API below `root`, for one project or repository. Requests send `token` as a bearer token, and only
    to the host of `root`. A try fails after 5 s without a connection, or 30 s without data. If so, or if the network
    fails, or the forge is busy (429, 500, 502, 503, 504, or 403 with Retry-After), there are up to 4 tries, with pauses
    of 1, 2 and 4 s, or as many seconds as Retry-After says; one of more than a minute is an error at once. A POST is
    sent again only if the forge says that there were too many requests (429, or 403 with Retry-After), or if the caller
    allows it (`repeat`). Failures raise ClusterError (K546).

    Args:
        root: URL without a final slash.
        prefix: path of the project below `root`, without slashes at its ends.
        name: project or repository, for messages.
        accept: media type that requests ask for.
        ca_file: file of authorities that the forge's certificate is checked against; None: the one that the variable
            REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE names, else the one of the library `requests`. A storage service to
            which the forge redirects a download may have a certificate of either.
        pause: waits for a number of seconds before a request is sent again.
    """

    def __init__(
        self,
        root: str,
        prefix: str,
        name: str,
        token: Secret,
        *,
        accept: str = "application/json",
        ca_file: str | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root, self._prefix, self._name, self._token = root, prefix, name, token
        self._pause, self._ca_file = pause, ca_file
        self._session = _Session()
        self._session.headers.update({"User-Agent": f"kodoctl/{__version__}", "Accept": accept})

    def read(
        self,
        method: str,
        path: str,
        convert: Callable[[Any], T],
        *,
        needs: str,
        body: Any = None,
        repeat: bool | None = None,
    ) -> T:
        """Sends a request and returns `convert` of the JSON of its response. The other arguments are those of `call`.
        Raises ClusterError (K546) as `call` and `convert` do, also if the response is no JSON.
        """
        answer = self.call(method, path, needs=needs, body=body, repeat=repeat)
        return self.converted(method, path, answer, convert)

    def pages(
        self, path: str, convert: Callable[[Any], T], *, needs: str, key: str | None = None, **query: str
    ) -> Iterator[T]:
        """Yields the rows of a list, each converted; requests a page whenever the caller needs one, and converts all of
        its rows before it yields the first. Raises ClusterError (K546) as `read` does, and after 50 pages (5,000 rows)
        unless the forge shows that there are no more.

        Args:
            path: as in `call`, without a query.
            needs: as in `call`.
            key: key of the rows in the answer; None: the answer is the list.
            query: further parameters of the URL.
        """
        for page in range(1, MAX_PAGES + 1):
            numbers = {"per_page": str(PAGE), "page": str(page)}
            answer = self.call("GET", f"{path}?{urlencode(query | numbers)}", needs=needs)

            def rows(document: Any) -> list[T]:
                return [convert(row) for row in (document[key] if key else document)]

            found = self.converted("GET", path, answer, rows)
            yield from found
            if not _has_next(answer, len(found)):
                return
        raise self.request_error("GET", path, f"more than {MAX_PAGES * PAGE:,} of them")

    def call(
        self,
        method: str,
        path: str,
        *,
        needs: str,
        body: Any = None,
        repeat: bool | None = None,
        follow: bool = True,
        expected: frozenset[int] = frozenset(),
    ) -> requests.Response:
        """Sends a request and returns its response. Raises ClusterError (K546) for a failure, which includes a status
        of 400 or more that is not in `expected`.

        Args:
            path: below `prefix`, or below `root` if it begins with a slash; with its query.
            needs: rights of the token that the request takes, for messages.
            body: is sent as JSON; None: no body.
            repeat: True if a failed request may be sent again; None: unless it is a POST. A request that the forge
                refused as one too many is sent again in any case.
            follow: follow redirects and read the body at once; False: do neither, and return a redirect as it is.
            expected: status codes of 400 or more that are no error, and are not tried again.
        """
        url = f"{self._root}{path}" if path.startswith("/") else f"{self._root}/{self._prefix}/{path}"
        repeat = method != "POST" if repeat is None else repeat
        for attempt in range(1, _TRIES + 1):
            try:
                answer = self._session.request(
                    method,
                    url,
                    json=body,
                    auth=self._authorize,  # else requests would send the password of a .netrc
                    timeout=TIMEOUT,
                    allow_redirects=follow,
                    stream=not follow,
                    verify=self._ca_file,
                )
            except OSError as problem:  # also of a REQUESTS_CA_BUNDLE that names no file
                is_known = isinstance(problem, requests.RequestException)
                if attempt == _TRIES or not repeat or not is_known:
                    raise self.request_error(method, path, _network_reason(problem)) from None
                self._pause(2.0 ** (attempt - 1))
                continue
            if answer.status_code < 400 or answer.status_code in expected:
                return answer
            again = _is_limit(answer) or (repeat and answer.status_code in _BUSY)
            pause = _pause_of(answer, attempt)
            if not again or attempt == _TRIES or pause > _LONGEST_PAUSE:
                raise self._refusal(method, path, answer, needs)
            self._pause(pause)
        raise AssertionError("unreachable")

    def converted(self, method: str, path: str, answer: requests.Response, convert: Callable[[Any], T]) -> T:
        """Converts the JSON of a response, as `convert` does. Raises ClusterError (K546), also if it is no JSON."""
        try:
            document = answer.json()
        except ValueError:
            why = f"{answer.status_code}, and no JSON: is this the address of its API?"
            raise self.request_error(method, path, why) from None
        return self.convert(method, path, document, convert)

    def convert(self, method: str, path: str, document: Any, convert: Callable[[Any], T]) -> T:
        """Returns `convert` of JSON that a request returned. Raises ClusterError (K546) if the function `convert`
        raises KeyError, TypeError, ValueError or AttributeError, because the JSON has another form; other errors pass.
        """
        try:
            return convert(document)
        except _MALFORMED as problem:
            why = f"the answer has another form than its documentation says ({type(problem).__name__}: {problem})"
            raise self.request_error(method, path, self._masked(why)) from None

    def download(self, path: str, *, needs: str) -> bytes | None:
        """Downloads a file, at most 64 MiB; None: the forge has none (404, 410). Raises ClusterError (K546) for a
        larger file, and for a failure, also if the place to which the forge redirects has no such file. Follows up to 4
        redirects to the scheme of `root`, each tried once; no redirect gets the token.
        """
        answer = self.call("GET", path, needs=needs, follow=False, expected=frozenset({404, 410}))
        for _ in range(_MAX_REDIRECTS):
            if answer.status_code in (404, 410):
                return None
            if answer.status_code not in (301, 302, 303, 307, 308):
                return self._bytes(answer)
            url = urlsplit(urljoin(answer.url, answer.headers.get("Location", "")))
            if url.scheme != urlsplit(self._root).scheme:
                raise self.request_error("GET", "an artifact", f"redirected to {url.scheme}://{url.netloc}")
            answer = self._get_without_token(url.geturl())
        raise self.request_error("GET", "an artifact", "redirected in circles")

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def request_error(self, method: str, path: str, why: str) -> ClusterError:
        """Makes the error K546 about a request, for the caller to raise. A secret in `why` would be shown (`shown`)."""
        detail = f"{method} {path.partition('?')[0]} of {self._name} at {self._root}: {why}"
        return ClusterError(error("K546", "the forge refused a request", detail))

    def shown(self, text: str) -> str:
        """The text with the token masked and at most its first 300 characters, for an error message."""
        return self._masked(text)[:300]

    def _authorize(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        return request

    def _get_without_token(self, url: str) -> requests.Response:
        """Reads a place that the forge redirects to. Its authority may be in `ca_file`, or one that counts without."""
        get = partial(
            self._session.get,
            url,
            headers={"Accept": "*/*"},
            auth=_as_it_is,
            timeout=TIMEOUT,
            allow_redirects=False,
            stream=True,
        )
        try:
            try:
                answer = get(verify=self._ca_file)
            except requests.exceptions.SSLError:
                answer = get()
        except OSError as problem:
            raise self.request_error("GET", "an artifact", _network_reason(problem)) from None
        if answer.status_code >= 400:
            raise self.request_error("GET", "an artifact", f"{answer.status_code} from its storage")
        return answer

    def _bytes(self, answer: requests.Response) -> bytes:
        found = b""
        try:
            for chunk in answer.iter_content(65_536):
                found += chunk
                if len(found) > _MAX_BYTES:
                    raise self.request_error("GET", "an artifact", f"it has more than {_MAX_BYTES:,} bytes")
        except requests.RequestException as problem:  # the connection was lost in the middle
            raise self.request_error("GET", "an artifact", _network_reason(problem)) from None
        return found

    def _refusal(self, method: str, path: str, answer: requests.Response, needs: str) -> ClusterError:
        """Makes the error of a refused request: the forge's status and message, and what the token may lack."""
        status, advice = answer.status_code, ""
        if _is_limit(answer):
            wait = answer.headers.get("Retry-After", "")
            advice = f"; too many requests, again in {wait} s" if wait else "; too many requests"
        elif status == 401:
            advice = f"; the token is not valid, or expired: make one with {needs}"
        elif status in (403, 404):
            hidden = ", or the token may not see it" if status == 404 else ""
            advice = f"{hidden}; the token needs {needs}"
        return self.request_error(method, path, f"{status} {self._reason(answer)}{advice}")

    def _reason(self, answer: requests.Response) -> str:
        """The forge's error message, at most 300 characters, with the token masked."""
        try:
            document = answer.json()
            text = document.get("message") or document.get("error_description") or document.get("error") or ""
        except (ValueError, AttributeError):
            text = answer.reason or ""
        return self.shown(str(text).removeprefix(f"{answer.status_code} "))  # which GitLab's messages begin with

    def _masked(self, text: str) -> str:
        return text.replace(self._token.reveal(), "***")


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Authorization of a request that has none. Without it requests looks for a password in a `.netrc`."""
    return request


def _has_next(answer: requests.Response, rows: int) -> bool:
    """True if a page follows. GitLab says so, because it leaves rows out of a page that the token may not see."""
    following = answer.headers.get("X-Next-Page")
    if following is None:
        return "next" in answer.links if answer.links else rows >= PAGE
    return following != ""


def _network_reason(problem: OSError) -> str:
    if not isinstance(problem, requests.RequestException):
        return f"{problem}; check REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE"
    if isinstance(problem, requests.exceptions.SSLError):
        return "TLS failed (SSLError): if its certificate is of an own authority, name that in REQUESTS_CA_BUNDLE"
    return f"no answer ({type(problem).__name__})"


def _is_limit(answer: requests.Response) -> bool:
    """True if the forge did nothing because there were too many requests; GitHub says so by 403, too."""
    return answer.status_code == 429 or (answer.status_code == 403 and "Retry-After" in answer.headers)


def _pause_of(answer: requests.Response, attempt: int) -> float:
    """Seconds until the next try: those of the forge's Retry-After, or more with each attempt."""
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 2.0 ** (attempt - 1)

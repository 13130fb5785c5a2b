"""Client of GitHub's REST API: pull requests, comments, workflow runs and their artifacts of one repository."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs, quote, urlsplit

import requests

from kodoctl import __version__
from kodoctl.errors import ClusterError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.secret import Secret

Json = dict[str, Any]
TIMEOUT: Final = (5.0, 30.0)  # seconds to connect, seconds to answer
_TRIES: Final = 4  # of what may be sent twice
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_PAGE: Final = 100
_MAX_PAGES: Final = 50
_MAX_REDIRECTS: Final = 5
_MAX_BYTES: Final = 64 * 1024 * 1024
_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of a forge, and the access to it. `repository`: OWNER/NAME; `server_url`: for links for people."""

    api_url: str
    server_url: str
    repository: str
    token: Secret

    def run_url(self, run: int) -> str:
        """URL of the page of a workflow run."""
        return f"{self.server_url}/{self.repository}/actions/runs/{run}"

    @property
    def well_named(self) -> bool:
        """True if `repository` has the form OWNER/NAME, so that it can be part of a URL."""
        return _NAME.fullmatch(self.repository) is not None


class Forge:
    """Client of one repository. Methods return the forge's JSON, send HTTP requests, and raise ClusterError (K546) for
    a failure. A request fails after 30 s without data, and is tried up to 4 times with pauses if the network fails or
    the forge is busy, except `post` and the download of `archive`. Methods that return an iterator send requests, and
    raise, while it is read; more than 5,000 items are an error. The client is a context manager that closes its
    connections.
    """

    def __init__(self, place: Repository, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._place, self._pause = place, pause
        self._session = requests.Session()
        self._session.headers["User-Agent"] = f"kodoctl/{__version__}"

    def pulls_of(self, commit: str) -> list[Json]:
        """Pull requests that contain a commit, or that were merged as this commit."""
        return list(self._all(f"commits/{quote(commit, safe='')}/pulls"))

    def comments(self, number: int) -> Iterator[Json]:
        """Comments of a pull request, oldest first."""
        return self._all(f"issues/{number}/comments")

    def reviews(self, number: int) -> Iterator[Json]:
        """Reviews of a pull request, oldest first."""
        return self._all(f"pulls/{number}/reviews")

    def commits(self, number: int) -> list[Json]:
        """Commits of a pull request; the forge lists 250 at most."""
        return list(self._all(f"pulls/{number}/commits"))

    def pushes(self, branch: str) -> Iterator[Json]:
        """Yields the forge's record of a branch, latest first: pushes and other events, with the accounts that caused
        them. Unlike the names in commits, nobody can choose these freely.
        """
        query = {"ref": f"refs/heads/{branch}", "per_page": str(_PAGE)}
        for _ in range(_MAX_PAGES):
            answer = self._call("GET", "activity", query=query)
            yield from answer.json()
            following = parse_qs(urlsplit(answer.links.get("next", {}).get("url", "")).query)
            if "after" not in following:
                return
            query["after"] = following["after"][0]  # of the address only this: the token goes nowhere else
        raise self._request_error("GET", "activity", f"more than {_MAX_PAGES} pages")

    def permission(self, login: str) -> str:
        """Rights of an account in the repository: `admin`, `write`, `read`, or `none` (also for an unknown account)."""
        path = f"collaborators/{quote(login, safe='')}/permission"
        answer = self._call("GET", path, well=frozenset({404}))  # 404: no account of a person
        return "none" if answer.status_code == 404 else str(answer.json()["permission"])

    def run(self, number: int) -> Json:
        """A run of a workflow, by its number."""
        found: Json = self._call("GET", f"actions/runs/{number}").json()
        return found

    def artifacts(self, run: int, name: str) -> list[Json]:
        """Artifacts of a run with that name that have not expired, latest first."""
        found = self._all(f"actions/runs/{run}/artifacts", key="artifacts", name=name)
        there = [one for one in found if one.get("name") == name and not one.get("expired")]
        return sorted(there, key=lambda one: str(one.get("created_at")), reverse=True)

    def archive(self, artifact: int) -> bytes:
        """Downloads an artifact's zip file, at most 64 MiB. It comes from another host, which does not get the token."""
        answer = self._call("GET", f"actions/artifacts/{artifact}/zip", follow=False)
        for _ in range(_MAX_REDIRECTS):
            if answer.status_code not in (301, 302, 303, 307, 308):
                return self._bytes(answer)
            url = answer.headers.get("Location", "")
            if urlsplit(url).scheme != urlsplit(self._place.api_url).scheme:
                raise self._request_error(
                    "GET", "an artifact", f"redirected to {urlsplit(url).scheme}://{urlsplit(url).netloc}"
                )
            answer = self._bare(url)
        raise self._request_error("GET", "an artifact", "redirected in circles")

    def post(self, number: int, body: str) -> Json:
        """Adds a comment to a pull request. A failed request is not repeated, because the forge may have stored the
        comment.
        """
        found: Json = self._call("POST", f"issues/{number}/comments", {"body": body}).json()
        return found

    def edit(self, comment: int, body: str) -> Json:
        """Replaces the text of a comment, given its id."""
        found: Json = self._call("PATCH", f"issues/comments/{comment}", {"body": body}).json()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._place.token.reveal()}"
        return request

    def _all(self, path: str, *, key: str | None = None, **query: str) -> Iterator[Json]:
        for page in range(1, _MAX_PAGES + 1):
            answer = self._call("GET", path, query={**query, "per_page": str(_PAGE), "page": str(page)}).json()
            found: list[Json] = answer[key] if key else answer
            yield from found
            if len(found) < _PAGE:
                return
        raise self._request_error("GET", path, f"more than {_MAX_PAGES * _PAGE:,} of them")

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str] | None = None,
        follow: bool = True,
        well: frozenset[int] = frozenset(),
    ) -> requests.Response:
        """Sends a request and returns its response. `well`: status codes of 400 or more that are no error; `follow`:
        follow redirects and read the body at once.
        """
        url = f"{self._place.api_url}/repos/{self._place.repository}/{path}"
        headers = {"Accept": "application/vnd.github+json"}
        tries = 1 if method == "POST" else _TRIES
        for attempt in range(1, tries + 1):
            try:
                answer = self._session.request(
                    method,
                    url,
                    params=query,
                    json=body,
                    headers=headers,
                    auth=self._sign,  # over a .netrc
                    timeout=TIMEOUT,
                    allow_redirects=follow,
                    stream=not follow,
                )
            except requests.RequestException as problem:
                if attempt == tries:
                    raise self._request_error(method, path, type(problem).__name__) from None
            else:
                if answer.status_code < 400 or answer.status_code in well:
                    return answer
                if answer.status_code not in _BUSY or attempt == tries:
                    raise self._request_error(method, path, f"{answer.status_code} {self._reason(answer)}")
            self._pause(2.0 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _bare(self, url: str) -> requests.Response:
        try:
            answer = requests.get(url, timeout=TIMEOUT, allow_redirects=False, stream=True)
        except requests.RequestException as problem:
            raise self._request_error("GET", "an artifact", type(problem).__name__) from None
        if answer.status_code >= 400:
            raise self._request_error("GET", "an artifact", f"{answer.status_code} from its storage")
        return answer

    def _bytes(self, answer: requests.Response) -> bytes:
        found = b""
        try:
            for chunk in answer.iter_content(65_536):
                found += chunk
                if len(found) > _MAX_BYTES:
                    raise self._request_error("GET", "an artifact", f"it has more than {_MAX_BYTES:,} bytes")
        except requests.RequestException as problem:  # the connection was lost in the middle
            raise self._request_error("GET", "an artifact", type(problem).__name__) from None
        return found

    def _reason(self, answer: requests.Response) -> str:
        """The forge's error message, at most 300 characters, with the token masked."""
        try:
            text = str(answer.json().get("message", ""))
        except (ValueError, AttributeError):
            text = answer.reason or ""
        return text.replace(self._place.token.reveal(), "***")[:300]

    def _request_error(self, method: str, path: str, why: str) -> ClusterError:
        detail = f"{method} {path} of {self._place.repository} at {self._place.api_url}: {why}"
        return ClusterError(error("K546", "the forge refused a request", detail))

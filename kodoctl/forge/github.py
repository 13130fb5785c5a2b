"""Client of GitHub's REST API: pull requests, comments, workflow runs and their artifacts of one repository."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from kodoctl.forge import github_records as records
from kodoctl.forge.rest_client import MAX_PAGES, PAGE, RestClient

if TYPE_CHECKING:
    from kodoctl.forge.forge import Authorship, BranchPush, CiJob, PullRequest, ReviewApproval, ReviewComment
    from kodoctl.pulsar.connection.secret import Secret

Json = dict[str, Any]
AUTHOR: Final = "github-actions[bot]"
"""Login that comments of a workflow's own token have."""
_WRITERS: Final = frozenset({"admin", "maintain", "write"})
_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
_PULLS: Final = "the permission `pull-requests: read`"
_ACTIONS: Final = "the permission `actions: read`"
_COMMENT: Final = "the permission `pull-requests: write`"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of GitHub, and the access to it. `repository`: OWNER/NAME, unless `well_named` is false; `api_url`,
    `server_url`: of the REST API, and of the pages for people, without a final slash.
    """

    api_url: str
    server_url: str
    repository: str
    token: Secret

    @property
    def well_named(self) -> bool:
        """True if `repository` has the form OWNER/NAME, of letters, digits, dots, hyphens and underscores only."""
        return _NAME.fullmatch(self.repository) is not None


class GitHub:
    """Client of one repository: the port `Forge` for GitHub. `pause`: waits for a number of seconds before a request is
    sent again.
    """

    noun = "pull request"

    def __init__(self, place: Repository, *, pause: Callable[[float], None] = time.sleep) -> None:
        name = place.repository
        self._place = place
        self._http = RestClient(
            place.api_url, f"repos/{name}", name, place.token, accept="application/vnd.github+json", pause=pause
        )

    def pulls_of(self, commit: str) -> list[PullRequest]:
        """Pull requests that the forge lists for a commit. One that was merged as this commit is among them; of those
        that contain the commit, the list may have only the one that brought it to the default branch.
        """
        return list(self._http.pages(f"commits/{quote(commit, safe='')}/pulls", records.pull_of, needs=_PULLS))

    def comments(self, pull: int) -> Iterator[ReviewComment]:
        """Comments in the conversation of a pull request, oldest first; without reviews and comments on lines."""
        return self._http.pages(f"issues/{pull}/comments", records.comment_of, needs=_PULLS)

    def approvals(self, pull: PullRequest) -> list[ReviewApproval]:
        """Approvals of a pull request that are in force, also of an earlier commit; at most one for each account."""
        path = f"pulls/{pull.number}/reviews"
        return self._http.convert("GET", path, self._http.pages(path, _row, needs=_PULLS), records.approvals_of)

    def objection(self, approval: ReviewApproval) -> str | None:
        """The reason why an account approves nothing in this repository, as the end of a sentence: it is a bot, or has
        no right to write. None: there is no such reason; whether the account contributed is not checked.
        """
        path, needs = f"collaborators/{quote(approval.login, safe='')}/permission", "the permission `metadata: read`"
        answer = self._http.call("GET", path, needs=needs, expected=frozenset({404}))  # 404: no account of a person
        right, user = "", {"login": approval.login}
        if answer.status_code != 404:
            right, found = self._http.converted("GET", path, answer, lambda it: (it["permission"], it.get("user")))
            user |= found or {}
        if records.is_bot(user):
            return "is nobody"
        return None if right in _WRITERS else "may not write to the repository"

    def authorship(self, pull: PullRequest) -> Authorship:
        """Authors and committers of a pull request's commits. The forge lists 250 commits at most: if it lists so many,
        the result is not complete.
        """
        path = f"pulls/{pull.number}/commits"
        return self._http.convert("GET", path, list(self._http.pages(path, _row, needs=_PULLS)), records.authorship_of)

    def pushes(self, pull: PullRequest) -> Iterator[BranchPush]:
        """Yields this repository's record of the branch that has the name of the pull request's, latest first. It has
        nothing of a fork, and also has pushes of other times than the pull request's.
        """
        query = {"ref": f"refs/heads/{pull.branch}", "per_page": str(PAGE)}
        for _ in range(MAX_PAGES):
            answer = self._http.call("GET", f"activity?{urlencode(query)}", needs="the permission `contents: read`")
            yield from self._http.converted("GET", "activity", answer, lambda rows: list(map(records.push_of, rows)))
            following = parse_qs(urlsplit(answer.links.get("next", {}).get("url", "")).query)
            if "after" not in following:
                return
            query["after"] = following["after"][0]  # of the address only this: the token goes nowhere else
        raise self._http.request_error("GET", "activity", f"more than {MAX_PAGES} pages")

    def check_run(self, run: int, pull: PullRequest, job: CiJob) -> None:
        """Raises RefusedError unless a run is of this repository, of the workflow of `job`, of a branch named like the
        branch of the pull request, and began by `pull_request_target`, so that the pull request could not change the
        workflow. Neither the commit nor the result of the run is checked. Details: `github_records.check_run`.
        """
        found = self._http.read("GET", f"actions/runs/{run}", _row, needs=_ACTIONS)
        records.check_run(found, pull, job, self._place.repository)

    def artifact(self, run: int, name: str) -> bytes | None:
        """Downloads the latest artifact (zip) of that name which the run keeps and which has not expired; None if there
        is none. Raises ClusterError for more than 64 MiB, and if the run is not known.
        """
        rows = self._http.pages(f"actions/runs/{run}/artifacts", _row, needs=_ACTIONS, key="artifacts", name=name)
        kept = [row for row in rows if row.get("name") == name and not row.get("expired")]
        if not kept:
            return None
        latest = max(kept, key=lambda row: str(row.get("created_at")))
        return self._http.download(f"actions/artifacts/{latest['id']}/zip", needs=_ACTIONS)

    def run_url(self, run: int) -> str:
        """URL of the page of a workflow run."""
        return f"{self._place.server_url}/{self._place.repository}/actions/runs/{run}"

    def login(self) -> str:
        """Login of the comments that a workflow's own token writes; sends no request, and ignores the token."""
        return AUTHOR

    def post(self, pull: int, body: str) -> ReviewComment:
        """Adds a comment to a pull request."""
        path, text = f"issues/{pull}/comments", {"body": body}
        return self._http.read("POST", path, records.comment_of, body=text, needs=_COMMENT)

    def edit(self, _pull: int, comment: int, body: str) -> ReviewComment:
        """Replaces the text of a comment. Its id is unique in the repository, so that the first argument is ignored."""
        path, text = f"issues/comments/{comment}", {"body": body}
        return self._http.read("PATCH", path, records.comment_of, body=text, needs=_COMMENT)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()


def _row(row: Json) -> Json:
    return row

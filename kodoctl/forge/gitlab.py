"""Client of GitLab's REST and GraphQL API: merge requests, notes, approvals, jobs and their artifacts of one project.

A comment names the job that planned (CI_JOB_ID): its artifacts are the plan, and they have no names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kodoctl.forge import gitlab_records as records
from kodoctl.forge.rest_client import MAX_PAGES, RestClient

if TYPE_CHECKING:
    from kodoctl.forge.forge import Authorship, BranchPush, CiJob, PullRequest, ReviewApproval, ReviewComment
    from kodoctl.pulsar.connection.secret import Secret

Json = dict[str, Any]
_READ: Final = "the scope `read_api` and the role Reporter"
_WRITE: Final = "the scope `api` and the role Reporter"
_GRAPHQL: Final = "/graphql"
_COMMITS: Final = """query($project: ID!, $pull: String!, $after: String) {
  project(fullPath: $project) { mergeRequest(iid: $pull) {
    committers(first: 100) { nodes { username } pageInfo { hasNextPage } }
    commits(first: 100, after: $after) {
      nodes { sha authorEmail committerEmail author { username } } pageInfo { hasNextPage endCursor }
    }
  } }
}"""
_SOURCE: Final = """query($project: ID!, $pipeline: ID!) {
  project(fullPath: $project) { pipeline(iid: $pipeline) { configSource } }
}"""


@dataclass(frozen=True, slots=True)
class GitLabProject:
    """A project of GitLab, and the access to it.

    Args:
        api_url: address of the REST API without a final slash, such as https://gitlab.example.org/api/v4.
        id: the project's number.
        path: GROUP/PROJECT; groups may be nested.
        url: the project's page, for links for people, without a final slash.
        ca_file: file of authorities for GitLab's certificate; None: as in `RestClient`.
    """

    api_url: str
    id: int
    path: str
    url: str
    token: Secret
    ca_file: str | None = None


class GitLab:
    """Client of one project: the port `Forge` for GitLab. `pause`: waits for a number of seconds before a request is
    sent again.
    """

    noun = "merge request"

    def __init__(self, project: GitLabProject, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._project = project
        root, prefix = project.api_url.removesuffix("/v4"), f"v4/projects/{project.id}"
        self._http = RestClient(root, prefix, project.path, project.token, ca_file=project.ca_file, pause=pause)
        self._bots: dict[int, bool] = {}

    def pulls_of(self, commit: str) -> list[PullRequest]:
        """Merge requests, open or not, that the forge lists for a commit, such as the one that was merged as it."""
        path = f"repository/commits/{quote(commit, safe='')}/merge_requests"
        return list(self._http.pages(path, records.pull_of, needs=_READ))

    def comments(self, pull: int) -> Iterator[ReviewComment]:
        """Notes of a merge request, oldest first; among them those on lines, and those that GitLab writes itself."""
        path = f"merge_requests/{pull}/notes"
        return self._http.pages(path, self._note_reader(pull), needs=_READ, sort="asc", order_by="created_at")

    def approvals(self, pull: PullRequest) -> list[ReviewApproval]:
        """Approvals of a merge request that are in force now, also from before the last push if the project keeps
        these; at most one for each account.
        """
        return self._http.read("GET", f"merge_requests/{pull.number}/approvals", records.approvals_of, needs=_READ)

    def objection(self, approval: ReviewApproval) -> str | None:
        """The reason why the approval of an account does not count in this project, as the end of a sentence: the
        account is a bot, is deleted, is no active member, or has a lower role than Developer. None: there is no such
        reason; whether the account contributed is not checked.
        """
        if self._is_bot({"id": approval.account}):
            return "is nobody"
        path = f"members/all/{approval.account}"
        answer = self._http.call("GET", path, needs=_READ, expected=frozenset({404}))  # 404: no member
        if answer.status_code == 404:
            return "is no member of the project"
        level, state = self._http.converted(
            "GET", path, answer, lambda row: (int(row["access_level"]), row.get("state", "active"))
        )
        return None if level >= records.WRITER and state == "active" else "may not write to the project"

    def authorship(self, pull: PullRequest) -> Authorship:
        """Authors and committers of a merge request's commits, as `gitlab_records.authorship_of` finds them. Raises
        ClusterError for more than 50 pages of commits (5,000).
        """
        pages: list[Json] = []
        following: str | None = None
        for _ in range(MAX_PAGES):
            pages.append(self._query(_COMMITS, "mergeRequest", pull=str(pull.number), after=following))
            following = self._http.convert("POST", _GRAPHQL, pages[-1], records.next_page)
            if following is None:
                return self._http.convert("POST", _GRAPHQL, pages, records.authorship_of)
        raise self._http.request_error("POST", _GRAPHQL, f"more than {MAX_PAGES} pages of commits")

    def pushes(self, pull: PullRequest) -> Iterator[BranchPush]:
        """Yields the pushes that this project's record has to the branch with the name of the merge request's, latest
        first, and, where pushes are missing between two, a "force_push" without an account. The record has nothing of a
        fork, and also has pushes of other times than the merge request's. Raises ClusterError if the caller reads on
        after 50 pages (5,000 pushes to the whole project), and there are more.
        """
        events = self._http.pages("events", records.event_of, needs=_READ, action="pushed", sort="desc")
        return records.pushes_of(events, pull.branch, self._is_bot)

    def check_run(self, run: int, pull: PullRequest, job: CiJob) -> None:
        """Raises RefusedError unless the CI job with the id `run` is of a pipeline of the merge request whose CI file
        the merge request could not change, and is the file of `job` if that names one. Neither the commit nor the
        result of the CI job is checked. Details: `gitlab_records.check_run`.
        """
        read = partial(self._http.read, "GET", needs=_READ)
        number = read(f"jobs/{run}", lambda row: int(row["pipeline"]["id"]))
        pipeline: Json = read(f"pipelines/{number}", lambda row: row | {"iid": str(row["iid"])})
        config = read(f"/v4/projects/{self._project.id}", lambda row: str(row.get("ci_config_path") or ""))
        source = self._query(_SOURCE, "pipeline", pipeline=pipeline["iid"]).get("configSource")
        records.check_run(pipeline, source, config, run, pull, job)

    def artifact(self, run: int, _name: str) -> bytes | None:
        """Downloads the archive (zip) of the artifacts of the CI job `run`. None: the job keeps none, the archive has
        expired, or the job is not known. A CI job has one archive, so that the name is ignored. Raises ClusterError for
        more than 64 MiB.
        """
        return self._http.download(f"jobs/{run}/artifacts", needs=_READ)

    def run_url(self, run: int) -> str:
        """URL of the page of a job."""
        return f"{self._project.url}/-/jobs/{run}"

    def login(self) -> str:
        """Login of the token's own account."""
        return self._http.read("GET", "/v4/user", lambda row: str(row["username"]), needs=_READ)

    def post(self, pull: int, body: str) -> ReviewComment:
        """Adds a note to a merge request."""
        path = f"merge_requests/{pull}/notes"
        return self._http.read("POST", path, self._note_reader(pull), body={"body": body}, needs=_WRITE)

    def edit(self, pull: int, comment: int, body: str) -> ReviewComment:
        """Replaces the text of a note."""
        path = f"merge_requests/{pull}/notes/{comment}"
        return self._http.read("PUT", path, self._note_reader(pull), body={"body": body}, needs=_WRITE)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def _note_reader(self, pull: int) -> Callable[[Json], ReviewComment]:
        return partial(records.comment_of, pull_url=f"{self._project.url}/-/merge_requests/{pull}")

    def _is_bot(self, user: Json) -> bool:
        """True if an account is of a project, a group or a service; asks once for each account."""
        number = int(user["id"])
        if number not in self._bots:
            path = f"/v4/users/{number}"
            # 404: the account is gone, and counts as a bot
            answer = self._http.call("GET", path, needs=_READ, expected=frozenset({404}))
            self._bots[number] = self._http.converted("GET", path, answer, lambda row: row.get("bot") is not False)
        return self._bots[number]

    def _query(self, query: str, kind: str, **variables: str | None) -> Json:
        """Asks GraphQL for an object `kind` of the project."""
        body = {"query": query, "variables": {"project": self._project.path, **variables}}
        answer: Json = self._http.read("POST", _GRAPHQL, dict, body=body, needs=_READ, repeat=True)
        if problems := self._http.convert("POST", _GRAPHQL, answer, records.problems_of):
            raise self._http.request_error("POST", _GRAPHQL, f"{self._http.shown(problems)}; the token needs {_READ}")
        found = self._http.convert(
            "POST", _GRAPHQL, answer, lambda document: ((document.get("data") or {}).get("project") or {}).get(kind)
        )
        if not isinstance(found, dict):
            raise self._http.request_error(
                "POST", _GRAPHQL, f"no {kind}, or the token may not see it; it needs {_READ}"
            )
        return found

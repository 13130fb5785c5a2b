"""Forge: the port to the place where changes are reviewed (GitHub, GitLab), and the values that it returns.

The word "pull request" stands for both: a pull request of GitHub, a merge request of GitLab.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

PushKind = Literal["push", "force_push", "branch_creation", "branch_deletion"]
"""Kind of a change of a branch; a "force_push" may have removed commits."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A request to merge the branch `branch` into the branch `target`.

    Args:
        label: name for messages, "#3" or "!3".
        author: login in lower case; None: the account was deleted.
        head: last commit of the branch.
        merged_at: None: not merged.
        merged_as: the commit that the merge put on `target`; None: not merged.
    """

    number: int
    label: str
    author: str | None
    head: str
    branch: str
    target: str
    merged_at: datetime | None
    merged_as: str | None


@dataclass(frozen=True, slots=True)
class ReviewComment:
    """A comment of a pull request. `author`: login as the forge writes it, None for a deleted account; `url`: for
    people, empty if the forge names none.
    """

    id: int
    author: str | None
    body: str
    updated_at: datetime
    url: str


@dataclass(frozen=True, slots=True)
class ReviewApproval:
    """The approval that an account gave last and that still stands.

    Args:
        login: in lower case.
        account: the forge's id of the account.
        commit: the approved commit; None: the forge does not store which commit was approved, and `at` has to show that
            the approval came after the last push.
        at: time of the approval; None: the forge does not say when.
    """

    login: str
    account: int
    commit: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class BranchPush:
    """A change of a branch in the forge's own record, by the account that made it.

    Args:
        login: in lower case; None: not known.
        is_bot: True if the account is of a program: for whom it acts is not known.
        before: commit of the branch before the push, zeros if there was no branch, or if the forge does not say it.
        after: commit of the branch after the push, zeros likewise.
    """

    login: str | None
    is_bot: bool
    kind: PushKind
    before: str
    after: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Authorship:
    """Authors and committers of the commits of a pull request.

    Args:
        shas: the commits.
        is_complete: False if the forge did not list all commits.
        accounts: logins in lower case.
        unnamed: e-mail address without an account, or id of a commit that lacks the address -> a text about it.
    """

    shas: frozenset[str]
    is_complete: bool
    accounts: frozenset[str]
    unnamed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CiJob:
    """The job that applies: its branch, and the file whose jobs must have planned. `workflow`: on GitHub the path of a
    workflow; on GitLab the project's setting "CI/CD configuration file", None for any file of another project.
    """

    branch: str
    workflow: str | None


class Forge(Protocol):
    """Client of one repository of a forge. Methods send HTTP requests, and raise ClusterError (K546) for a failure.
    Methods that return an iterator send requests, and raise, while it is read; more than 5,000 items are an error.
    """

    @property
    def noun(self) -> str:
        """The forge's term, "pull request" or "merge request"."""

    def pulls_of(self, commit: str) -> list[PullRequest]:
        """Pull requests that contain a commit, or that were merged as this commit."""

    def comments(self, pull: int) -> Iterator[ReviewComment]:
        """Comments of a pull request, oldest first."""

    def approvals(self, pull: PullRequest) -> list[ReviewApproval]:
        """Approvals of a pull request that are in force now, at most one for each account: the forge has not withdrawn
        or dismissed them.
        """

    def objection(self, approval: ReviewApproval) -> str | None:
        """The reason why an account approves nothing in this repository, as the end of a sentence: it is a program or
        deleted, or has no right to write. None: it may approve.
        """

    def authorship(self, pull: PullRequest) -> Authorship:
        """Authors and committers of a pull request's commits."""

    def pushes(self, pull: PullRequest) -> Iterator[BranchPush]:
        """Yields the forge's record of a pull request's branch, latest first; a "force_push" without an account may
        stand for pushes that the record lacks. Unlike the names in commits, nobody can choose these freely.
        """

    def check_run(self, run: int, pull: PullRequest, job: CiJob) -> None:
        """Raises RefusedError unless a run planned the branch of the pull request by a file that the pull request could
        not change.
        """

    def artifact(self, run: int, name: str, /) -> bytes | None:
        """Downloads the zip file that a run kept, at most 64 MiB; None: the run kept none, or it has expired. `name`:
        its name, if the forge's artifacts have names. Raises ClusterError for a larger one. Follows redirects of the
        forge, such as to a storage service; no redirect gets the token.
        """

    def run_url(self, run: int) -> str:
        """URL of the page of a run, for people."""

    def login(self) -> str:
        """Login of the account that writes the comments, unless the user names another one (`--author`)."""

    def post(self, pull: int, body: str) -> ReviewComment:
        """Adds a comment to a pull request. A failed request is not repeated, because the forge may have stored the
        comment.
        """

    def edit(self, pull: int, comment: int, body: str, /) -> ReviewComment:
        """Replaces the text of a comment, given its id."""

    def close(self) -> None:
        """Closes the connections."""


def time_of(text: str) -> datetime:
    """Parses the forge's time, such as 2026-11-22T12:00:00Z; a time without a zone is UTC. Raises ValueError."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)

"""JSON of GitHub as the values of the forge's port. Pure: the caller passes the JSON.

Authors and committers count by the accounts that GitHub knows them by. Its own account commits and signs changes that
were made on its pages; their author is the person.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kodoctl.forge.forge import (
    Authorship,
    BranchPush,
    CiJob,
    PullRequest,
    PushKind,
    ReviewApproval,
    ReviewComment,
    time_of,
)
from kodoctl.forge.review import refusal

Json = dict[str, Any]
TRUSTED_EVENT: Final = "pull_request_target"
"""Event whose runs use the workflow file of the default branch, whatever the pull request changes."""
MAX_COMMITS: Final = 250
"""The forge lists at most so many commits of a pull request."""
_BOT: Final = "[bot]"
"""Ending of the logins of most bots. The forge does not say for whom they act."""
_WEB: Final = "web-flow"
"""Account of the forge itself, as the committer of changes made on its pages."""
_KINDS: Final[dict[str, PushKind]] = {
    "force_push": "force_push",
    "branch_creation": "branch_creation",
    "branch_deletion": "branch_deletion",
}


def is_bot(user: Json | None) -> bool:
    """True for the account of a program: its type is Bot (such as Copilot's), or its login ends in `[bot]`. An ordinary
    account that a program uses is not noticed.
    """
    return user is not None and (user.get("type") == "Bot" or (_login(user) or "").endswith(_BOT))


def pull_of(row: Json) -> PullRequest:
    """A pull request."""
    number, merged = int(row["number"]), row.get("merged_at")
    return PullRequest(
        number=number,
        label=f"#{number}",
        author=_login(row.get("user")),
        head=str(row["head"]["sha"]),
        branch=str(row["head"]["ref"]),
        target=str(row["base"]["ref"]),
        merged_at=time_of(merged) if merged else None,
        merged_as=row.get("merge_commit_sha") if merged else None,
    )


def comment_of(row: Json) -> ReviewComment:
    """A comment."""
    author = (row.get("user") or {}).get("login")
    body, url = str(row.get("body") or ""), str(row.get("html_url") or "")
    return ReviewComment(int(row["id"]), author, body, time_of(row["updated_at"]), url)


def approvals_of(reviews: Iterable[Json]) -> list[ReviewApproval]:
    """Approvals that are in force: the latest review of each account, if that is an approval; a review that was
    dismissed is none. Comments and reviews that are not submitted are ignored, and deleted accounts are left out.
    `reviews`: JSON of the reviews, oldest first.
    """
    latest: dict[str, Json] = {}
    for review in reviews:
        login = _login(review.get("user"))
        if login is not None and review.get("state") in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
            latest[login] = review
    return [
        ReviewApproval(login, int(one["user"].get("id") or 0), str(one.get("commit_id")), time_of(one["submitted_at"]))
        for login, one in latest.items()
        if one["state"] == "APPROVED"
    ]


def push_of(row: Json) -> BranchPush:
    """An event of a branch."""
    login = _login(row.get("actor"))
    return BranchPush(
        login=login,
        is_bot=is_bot(row.get("actor")),
        kind=_KINDS.get(row["activity_type"], "push"),
        before=str(row["before"]),
        after=str(row["after"]),
        at=time_of(row["timestamp"]),
    )


def authorship_of(commits: Sequence[Json]) -> Authorship:
    """Authors and committers of a pull request's commits, by their accounts. An e-mail address without an account is in
    `unnamed`; for a commit without an address, its id. GitHub's own account is left out as the committer of a signed
    commit, which somebody made on its pages; elsewhere its address is in `unnamed`. The result is complete if there are
    fewer than 250 commits (MAX_COMMITS), the most that the forge lists.
    """
    accounts: set[str] = set()
    unnamed: dict[str, str] = {}
    for commit in commits:
        for role in ("author", "committer"):
            _add_person(commit, role, accounts, unnamed)
    shas = frozenset(str(commit["sha"]) for commit in commits)
    return Authorship(shas, len(commits) < MAX_COMMITS, frozenset(accounts), unnamed)


def check_run(run: Json, pull: PullRequest, job: CiJob, repository: str) -> None:
    """Raises RefusedError unless the workflow run `run` (its JSON) is of `repository` (OWNER/NAME), of a branch with
    the name of the pull request's branch, of the workflow file of `job`, and began by the event TRUSTED_EVENT, so that
    the pull request could not change the file. Neither the commit nor the result of the run is checked.

    A forge that is not up to date takes the workflow from the branch that a pull request is to be merged into, whoever
    wrote it; so a run is refused if it names a pull request into another branch than that of `job`, or a workflow file
    on another branch.
    """
    whose = str((run.get("repository") or {}).get("full_name"))
    bases = {str(one["base"]["ref"]) for one in run.get("pull_requests") or ()} - {job.branch}
    path, _, ref = str(run.get("path")).removeprefix(f"{repository}/").partition("@")
    own = "its workflow may have been the pull request's own"
    advice = "if another file than this job's plans, name it with --workflow"
    for wrong, difference in (
        (run.get("event") != TRUSTED_EVENT, f"began by {run.get('event')!r}, not by {TRUSTED_EVENT}: {own}"),
        (whose.lower() != repository.lower(), f"is of {whose}, not of {repository}"),
        (path != job.workflow, f"is of the workflow {path}, not of {job.workflow}; {advice}"),
        (ref.removeprefix("refs/heads/") not in ("", job.branch), f"is of a workflow on {ref}, not on {job.branch}"),
        (bool(bases), f"may be of a pull request into {', '.join(sorted(bases))}, not into {job.branch}: {own}"),
        (run.get("head_branch") != pull.branch, f"is of the branch {run.get('head_branch')}, not of {pull.branch}"),
    ):
        if wrong:
            raise refusal(f"run {run.get('id')}, which {pull.label} names, {difference}")


def _add_person(commit: Json, role: str, accounts: set[str], unnamed: dict[str, str]) -> None:
    login = _login(commit.get(role))
    signed = ((commit["commit"].get("verification") or {}).get("verified")) is True
    if login == _WEB and role == "committer" and signed:
        return
    if login is not None and login != _WEB:
        accounts.add(login)
        return
    sha = str(commit["sha"])
    address = str((commit["commit"].get(role) or {}).get("email") or sha).lower()
    unnamed.setdefault(address, f"the {role} of {sha[:8]} has an e-mail address of no account, {address}")


def _login(user: Json | None) -> str | None:
    """The login in lower case, because the forge compares logins so; None for a deleted account."""
    return str(user["login"]).lower() if user and user.get("login") else None

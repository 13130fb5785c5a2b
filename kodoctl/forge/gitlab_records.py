"""JSON of GitLab as the values of the forge's port. Pure: the caller passes the JSON.

GitLab stores no commit with an approval, so that its time decides. It finds accounts by the e-mail addresses of
commits: for an author one by one, for committers only all together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from datetime import datetime

Json = dict[str, Any]
TRUSTED_EVENT: Final = "merge_request_event"
"""Source of the pipelines of merge requests."""
TRUSTED_SOURCE: Final = "EXTERNAL_PROJECT_SOURCE"
"""Source of the jobs of a pipeline whose file is named with its project, so that a merge request cannot change it."""
WRITER: Final = 30  # access level of a developer
_NONE: Final = "0" * 40
_KINDS: Final[dict[str, PushKind]] = {"created": "branch_creation", "removed": "branch_deletion"}


def pull_of(row: Json) -> PullRequest:
    """Converts the JSON of a merge request. `merged_as`: the merge commit, else the squashed commit, else the head;
    None if it is not merged.
    """
    number, merged = int(row["iid"]), row.get("merged_at")
    merged_as = row.get("merge_commit_sha") or row.get("squash_commit_sha") or row.get("sha")
    return PullRequest(
        number=number,
        label=f"!{number}",
        author=_login(row.get("author")),
        head=str(row["sha"]),
        branch=str(row["source_branch"]),
        target=str(row["target_branch"]),
        merged_at=time_of(merged) if merged else None,
        merged_as=merged_as if merged else None,
    )


def comment_of(row: Json, pull_url: str) -> ReviewComment:
    """Converts the JSON of a note, which is GitLab's comment. `pull_url`: page of the merge request."""
    author, number = (row.get("author") or {}).get("username"), int(row["id"])
    return ReviewComment(number, author, str(row["body"]), time_of(row["updated_at"]), f"{pull_url}#note_{number}")


def approvals_of(document: Json) -> list[ReviewApproval]:
    """Approvals of a merge request that are in force, from the forge's answer about its approvals. Deleted accounts are
    left out. No approval has its commit.
    """
    return [
        ReviewApproval(login, int(one["user"]["id"]), None, time_of(at) if (at := one.get("approved_at")) else None)
        for one in document["approved_by"]
        if (login := _login(one.get("user")))
    ]


@dataclass(frozen=True, slots=True)
class PushEvent:
    """A push to a project. `branch`: None for a push of a tag, or of many branches at once; `before`, `after`: commit
    of the branch before and after the push, 40 zeros for none, or if the forge does not say it; `user`: the account as
    JSON, empty if it was deleted, or if there was none.
    """

    branch: str | None
    kind: PushKind
    before: str
    after: str
    user: Json
    at: datetime


def event_of(row: Json) -> PushEvent:
    """Converts the JSON of a push. Its kind is "force_push" unless it created or removed the branch or tag, because
    GitLab does not say whether a push removed commits.
    """
    data = row.get("push_data") or {}
    return PushEvent(
        branch=data.get("ref") if data.get("ref_type") == "branch" else None,
        kind=_KINDS.get(str(data.get("action")), "force_push"),
        before=data.get("commit_from") or _NONE,
        after=data.get("commit_to") or _NONE,
        user=row.get("author") or {},
        at=time_of(row["created_at"]),
    )


def pushes_of(events: Iterable[PushEvent], branch: str, is_bot: Callable[[Json], bool]) -> Iterator[BranchPush]:
    """Yields the pushes to a branch, latest first. A push of many branches at once is missing, because its event names
    no branch. If a push does not begin with the commit at which the push before it ended, a "force_push" without an
    account, with the time of the earlier one, is yielded between the two, in the place of the missing ones. Pushes that
    are missing after the last or before the first one are not noticed.

    Args:
        events: all pushes to the project, latest first; read as far as the caller reads.
        is_bot: True if an account is of a program; called for each push to the branch that has an account.
    """
    expected = None
    for one in events:
        if one.branch != branch:
            continue
        if expected is not None and one.after != expected:
            yield BranchPush(None, False, "force_push", one.after, expected, one.at)
        yield BranchPush(_login(one.user), bool(one.user) and is_bot(one.user), one.kind, one.before, one.after, one.at)
        expected = one.before


def problems_of(answer: Json) -> str:
    """GraphQL's error messages as one text; "" if the answer has no errors."""
    return "; ".join(str(one.get("message")) for one in answer.get("errors") or ())


def next_page(page: Json) -> str | None:
    """Cursor for the page of commits after `page`, GraphQL's object `mergeRequest`; None: `page` is the last one."""
    info = page["commits"]["pageInfo"]
    return str(info["endCursor"]) if info["hasNextPage"] else None


def authorship_of(pages: Sequence[Json]) -> Authorship:
    """Authors and committers of a merge request's commits. `pages`: GraphQL's objects `mergeRequest`, each with a page
    of all commits; one at least. Not complete if there are more than 100 committers.

    An author's address without an account is in `unnamed`. Accounts of committers are known only all together: if there
    are more committers' addresses that no author used than committers' accounts that no author has, as many addresses
    as are too many, the last by alphabet, are in `unnamed`, too, because any of them may be the one without an account.
    So a second address with which an author commits counts as one without an account. The id of a commit stands for an
    address that it lacks.
    """
    committers = pages[0]["committers"]
    commits: list[Json] = [commit for page in pages for commit in page["commits"]["nodes"]]
    authors: dict[str, str | None] = {}
    unnamed: dict[str, str] = {}
    for commit in commits:
        sha, login = str(commit["sha"]), _login(commit["author"])
        address = str(commit["authorEmail"] or sha).lower()
        authors[address] = login or authors.get(address)
        if login is None:
            unnamed[address] = f"the author of {sha[:8]} has an e-mail address of no account, {address}"
    known = {login for login in authors.values() if login}
    others = {login for one in committers["nodes"] if (login := _login(one))} - known
    more = {str(commit["committerEmail"] or commit["sha"]).lower(): str(commit["sha"]) for commit in commits}
    addresses = sorted(more.keys() - authors.keys())
    for address in addresses[len(others) :]:
        shown = f"{len(addresses)} committers' addresses have {len(others)} accounts, {', '.join(addresses)}"
        unnamed[address] = f"the committer of {more[address][:8]} may have an e-mail address of no account: {shown}"
    shas = frozenset(str(commit["sha"]) for commit in commits)
    return Authorship(shas, not committers["pageInfo"]["hasNextPage"], frozenset(known | others), unnamed)


def check_run(pipeline: Json, source: str | None, config: str, run: int, pull: PullRequest, job: CiJob) -> None:
    """Raises RefusedError unless a CI job belongs to a pipeline of the merge request, and the pipeline's file is one
    that the merge request could not change, and the file of `job` if that names one.

    Args:
        pipeline: JSON of the pipeline of the CI job.
        source: the kind of source that the pipeline's file came from (`configSource` of GraphQL); None: unknown, which
            is refused.
        config: the project's present setting "CI/CD configuration file", which has to be FILE@GROUP/PROJECT.
        run: id of the CI job, only for the error.
        job: the job that applies, with the expected file; its branch does not matter.
    """
    refs = {f"refs/merge-requests/{pull.number}/{kind}" for kind in ("head", "merge", "train")}
    advice = "set it to FILE@GROUP/PROJECT, which may be this project"
    for wrong, difference in (
        (
            pipeline.get("source") != TRUSTED_EVENT,
            f"is of a pipeline that began by {pipeline.get('source')!r}, not by {TRUSTED_EVENT}",
        ),
        (pipeline.get("ref") not in refs, f"is of {pipeline.get('ref')}, not of {pull.label}"),
        (
            source != TRUSTED_SOURCE or "@" not in config,
            f"has its script from {config or '.gitlab-ci.yml'!r} ({source}), which a merge request may change: {advice}",
        ),
        (job.workflow not in (None, config), f"has its script from {config}, not from {job.workflow}"),
    ):
        if wrong:
            raise refusal(f"job {run}, which {pull.label} names, {difference}")


def _login(user: Json | None) -> str | None:
    """The login in lower case, because GitLab compares logins so; None for a deleted account."""
    return str(user["username"]).lower() if user and user.get("username") else None

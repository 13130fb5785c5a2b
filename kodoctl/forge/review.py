"""The sticky comment of a plan, and what must be true of it after the merge. Pure: what the forge answered is passed in.

What makes a plan an approved one: it is the artifact of a run whose workflow stands on the protected branch (no pull
request can change that), made for the head that was merged; and the comment, as it is, shows exactly that plan.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kodoctl.errors import KodoctlError, RefusedError, error
from kodoctl.plan import document
from kodoctl.plan.plan import Plan
from kodoctl.render.plan_markdown import LIMIT, plan_markdown

Json = dict[str, Any]
TRUSTED_EVENT: Final = "pull_request_target"
"""Its workflow is the default branch's own, whatever the pull request changes."""
AUTHOR: Final = "github-actions[bot]"
MAX_PLAN: Final = 64 * 1024 * 1024  # bytes of a plan file; 5,000 topics need 8 MB
_MARK: Final = re.compile(
    r"<!-- kodoctl:plan environment=(\S+) commit=([0-9a-f]{40}) run=([0-9]{1,20}) plan=([0-9a-f]{64}|none) -->"
)
_MAY_WRITE: Final = frozenset({"admin", "write"})  # a maintainer's is "write" there, a triager's "read"
_FORGE: Final = "web-flow"  # the forge itself: merges and edits on its pages, whose author is who made them
_A: Final = {"author": "an author", "committer": "a committer"}
_MOST_COMMITS: Final = 250  # of a pull request that the forge lists
_WORKFLOW: Final = re.compile(r"[\w.-]+/[\w.-]+/(\.github/workflows/[^@]+)@.*")


@dataclass(frozen=True, slots=True)
class Mark:
    """The comment's first line. `plan`: the plan's seal, None where none could be made; `run`: the run that has the file."""

    environment: str
    commit: str
    run: int
    plan: str | None

    def __str__(self) -> str:
        shown = self.plan or "none"
        return f"<!-- kodoctl:plan environment={self.environment} commit={self.commit} run={self.run} plan={shown} -->"


def mark_of(body: str) -> Mark | None:
    """The mark of a comment; None for everybody else's."""
    found = _MARK.match(body)
    if found is None:
        return None
    environment, commit, run, plan = found.groups()
    return Mark(environment, commit, int(run), None if plan == "none" else plan)


def artifact_name(environment: str, commit: str) -> str:
    """The artifact that holds the plan of a commit; the workflow gives it that name."""
    return f"kodoctl-plan-{environment}-{commit}"


def body_of(plan: Plan | None, mark: Mark, run_url: str) -> str:
    """The comment: the same for the same plan, so that it can be held against it later."""
    commit = mark.commit[:8]
    if plan is None:
        shown = (
            f"### kodoctl plan: none for {mark.environment}\n\nCommit `{commit}` could not be planned: [why]({run_url})"
        )
        return f"{mark}\n{shown}"
    end = (
        f"Plan of `{commit}` for {mark.environment} by [this run]({run_url}), sealed `{(mark.plan or '')[:12]}`. Merging"
        " applies this and nothing else."
    )
    room = LIMIT - len(f"{mark}\n\n\n{end}".encode())
    return f"{mark}\n{plan_markdown(document.to_json(plan), f'commit {commit}', limit=room)}\n\n{end}"


def own_comment(comments: Iterable[Json], environment: str, author: str) -> Json | None:
    """The sticky comment of an environment: the first one by its author. Anybody may write such a mark; theirs is not seen."""
    for comment in comments:
        mark = mark_of(str(comment.get("body") or ""))
        if mark and mark.environment == environment and (comment.get("user") or {}).get("login") == author:
            return comment
    return None


def merged_pull(pulls: Iterable[Json], commit: str) -> Json:
    """The pull request that a commit came with. Raises RefusedError for a commit that came without one."""
    found = [pull for pull in pulls if pull.get("merged_at") and pull.get("merge_commit_sha") == commit]
    if len(found) != 1:
        came = "came with no pull request that was merged as it" if not found else "came with several pull requests"
        raise _refused(f"commit {commit[:8]} {came}: what nobody reviewed is not applied")
    return found[0]


def marked(comment: Json | None, pull: Json, environment: str) -> Mark:
    """The mark of a comment that may stand for an approval. Raises RefusedError."""
    number, head = pull["number"], str(pull["head"]["sha"])
    mark = mark_of(str(comment["body"])) if comment else None
    if comment is None or mark is None:
        raise _refused(
            f"pull request #{number} has no plan for {environment}: its check did not run, or its comment was removed"
        )
    if mark.commit != head:
        raise _refused(f"#{number} shows the plan of {mark.commit[:8]}, merged was {head[:8]}: pushed after the plan")
    if mark.plan is None:
        raise _refused(f"#{number}: {head[:8]} could not be planned for {environment}")
    if str(comment["updated_at"]) > str(pull["merged_at"]):
        raise _refused(f"the plan shown in #{number} was written after the merge, so that nobody approved it")
    return mark


def workflow_file(reference: str) -> str | None:
    """The file of a workflow, as a job has it in GITHUB_WORKFLOW_REF; None: that says nothing."""
    found = _WORKFLOW.fullmatch(reference)
    return found[1] if found else None


def check_run(run: Json, pull: Json, repository: str, workflow: str) -> None:
    """A run whose workflow a pull request could have written says nothing. `workflow`: the file that plans, of this
    repository. Raises RefusedError.
    """
    told = f"run {run.get('id')}, which #{pull['number']} names,"
    own = "its workflow may have been the pull request's own"
    if run.get("event") != TRUSTED_EVENT:
        raise _refused(f"{told} began by {run.get('event')!r}, not by {TRUSTED_EVENT}: {own}")
    of = str((run.get("repository") or {}).get("full_name"))
    if of.lower() != repository.lower():
        raise _refused(f"{told} is of {of}, not of {repository}")
    path = str(run.get("path")).partition("@")[0]
    if path != workflow:
        advice = "if another file than this job's plans, name it with --workflow"
        raise _refused(f"{told} is of the workflow {path}, not of {workflow}; {advice}")
    base = pull["base"]["ref"]
    others = {str(one["base"]["ref"]) for one in run.get("pull_requests") or ()} - {base}
    if others:
        raise _refused(f"{told} may be of a pull request into {', '.join(sorted(others))}, not into {base}: {own}")


def check_review(
    reviews: Iterable[Json], comment: Json, pull: Json, contributors: Container[str], permission: Callable[[str], str]
) -> None:
    """Somebody who may write to the repository, and contributed nothing to the pull request, approved the merged head with this
    plan in view. `permission`: asked for whoever else would do. Raises RefusedError.
    """
    head, number = pull["head"]["sha"], pull["number"]
    latest: dict[str, Json] = {}
    for review in reviews:  # oldest first
        login = _login(review.get("user"))  # None: whoever it was is gone
        if login and review.get("state") in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
            latest[login] = review
    no = []
    for login, review in latest.items():
        stands = review["state"] == "APPROVED" and review.get("commit_id") == head
        if not stands or str(review["submitted_at"]) < str(comment["updated_at"]):
            continue
        if login in contributors:
            no.append(f"{login} contributed to it")
        elif permission(login) not in _MAY_WRITE:
            no.append(f"{login} may not write to the repository")
        else:
            return
    but = f" ({'; '.join(no)})" if no else ""
    raise _refused(
        f"nobody else of the repository approved {head[:8]} since #{number} shows this plan{but}: approve it, and run this job again"
    )


def contributors(pull: Json, commits: Sequence[Json], run: Json) -> frozenset[str]:
    """Logins of who opened a pull request, wrote or committed its commits, or began the run that planned its head, which a push
    does. Raises RefusedError for a commit of which the forge does not know whose it is: it may be the reviewer's.
    """
    number = pull["number"]
    if len(commits) >= _MOST_COMMITS:
        raise _refused(
            f"#{number} has {_MOST_COMMITS} commits or more, of which the forge names no more: make smaller ones"
        )
    found = {_login(pull.get("user")), _login(run.get("actor"))}
    for commit in commits:
        for role in _A:
            login = _login(commit.get(role))
            if login is None:
                who = str(((commit.get("commit") or {}).get(role) or {}).get("email"))
                raise _refused(
                    f"commit {str(commit.get('sha'))[:8]} of #{number} has {_A[role]} without an account of the forge ({who}), who"
                    " may be the reviewer: add the e-mail address to the account it belongs to, and run this job again"
                )
            found.add(login)
    return frozenset(login for login in found if login and login != _FORGE)


def _login(user: Json | None) -> str | None:
    """As the forge compares them."""
    return str(user["login"]).lower() if user and user.get("login") else None


def approved_plan(archive: bytes, mark: Mark, comment: Json, run_url: str) -> Plan:
    """The plan in an artifact, which is the one that the comment shows. Raises RefusedError."""
    try:
        plan = document.loads(_unpacked(archive), "the plan of the pull request")
    except RefusedError:
        raise
    except (KodoctlError, zipfile.BadZipFile, UnicodeDecodeError, KeyError, OSError) as problem:
        raise _refused(f"the artifact of run {mark.run} holds no plan: {problem}") from None
    if document.to_json(plan)["seal"] != mark.plan:
        raise _refused(f"the artifact of run {mark.run} is another plan than the one that was shown")
    if _plain(str(comment["body"])) != _plain(body_of(plan, mark, run_url)):
        raise _refused("the comment does not show the plan as it is: it was edited, or written by another kodoctl")
    if plan.refused:
        raise RefusedError(
            error("K536", "this plan is refused", "it was merged although its check failed: settle its errors")
        )
    return plan


def _unpacked(archive: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(archive)) as folder:
        [name] = folder.namelist() if len(folder.namelist()) == 1 else [""]
        with folder.open(name) as stream:  # KeyError: not one file
            data = stream.read(MAX_PLAN + 1)
    if len(data) > MAX_PLAN:
        raise _refused(f"the artifact's plan has more than {MAX_PLAN:,} bytes")
    return data.decode()


def _plain(body: str) -> str:
    """As forges keep it: line ends and the ends of the text are theirs."""
    return body.replace("\r\n", "\n").strip()


def _refused(detail: str) -> RefusedError:
    return RefusedError(error("K545", "no approved plan", f"{detail}; nothing was written"))

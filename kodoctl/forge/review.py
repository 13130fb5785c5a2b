"""Review of a plan: the comment in a pull request that shows the plan, and the checks of this comment after the merge.
Pure: the caller passes what the forge returned.

A plan is approved if it is the artifact of a run for the merged head, if the jobs of that run are in a file that no
pull request can change, and if the present comment shows exactly that plan.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodoctl.errors import KodoctlError, RefusedError, error
from kodoctl.plan import plan_file
from kodoctl.render.plan_markdown import LIMIT, plan_markdown

if TYPE_CHECKING:
    from kodoctl.forge.forge import PullRequest, ReviewComment
    from kodoctl.plan.plan import Plan

_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
"""Errors of the standard library about a zip file: no zip, damaged or cut data, an encrypted member."""
MAX_PLAN: Final = 64 * 1024 * 1024  # bytes of a plan file; 5,000 topics need 8 MB
_MARK: Final = re.compile(
    r"<!-- kodoctl:plan environment=(\S+) commit=([0-9a-f]{40}) run=([0-9]{1,20}) plan=([0-9a-f]{64}|none) -->"
)


@dataclass(frozen=True, slots=True)
class CommentHeader:
    """Header of the comment, its first line: environment (`base` without an overlay) and commit (40 digits) of the
    plan; `run`: id of the run (of the CI job on GitLab) that planned, whose artifact is the plan; `plan`: seal (digest)
    of the plan, None if the commit could not be planned.
    """

    environment: str
    commit: str
    run: int
    plan: str | None

    def __str__(self) -> str:
        shown = self.plan or "none"
        return f"<!-- kodoctl:plan environment={self.environment} commit={self.commit} run={self.run} plan={shown} -->"


def refusal(detail: str, *more: str) -> RefusedError:
    """Makes the error K545, no approved plan, for the caller to raise. Its text is `detail`, a clause without a full
    stop, then "; nothing was written", then each of `more` as a line of its own.
    """
    return RefusedError(error("K545", "no approved plan", "\n".join([f"{detail}; nothing was written", *more])))


def mark_of(body: str) -> CommentHeader | None:
    """Parses the header of a comment, given the comment's text; None if the text does not begin with a header of
    kodoctl.
    """
    found = _MARK.match(body)
    if found is None:
        return None
    environment, commit, run, plan = found.groups()
    return CommentHeader(environment, commit, int(run), None if plan == "none" else plan)


def artifact_name(environment: str, commit: str) -> str:
    """Name that the workflow's artifact with the plan of a commit for an environment must have; only GitHub uses it."""
    return f"kodoctl-plan-{environment}-{commit}"


def body_of(plan: Plan | None, mark: CommentHeader, run_url: str) -> str:
    """Text of the comment in Markdown: the header `mark`, the plan, shortened if it is too long for a comment, or, for
    `plan` None, that the commit could not be planned, and a link to `run_url`. It depends only on the arguments and the
    version of kodoctl, so that `approved_plan` can compare the comment with it.
    """
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
    return f"{mark}\n{plan_markdown(plan_file.to_json(plan), f'commit {commit}', limit=room)}\n\n{end}"


def own_comment(comments: Iterable[ReviewComment], environment: str, author: str) -> ReviewComment | None:
    """Finds the first comment by `author` whose header has the environment; None if there is none. Upper and lower case
    of `author` are the same, as for forges. Comments of other accounts are ignored, because anybody can write such a
    header.
    """
    for comment in comments:
        mark = mark_of(comment.body)
        if mark and mark.environment == environment and (comment.author or "").casefold() == author.casefold():
            return comment
    return None


def merged_pull(pulls: Iterable[PullRequest], commit: str, branch: str, noun: str) -> PullRequest:
    """Finds the pull request that was merged as `commit`. Raises RefusedError (K545) if there is none, if there are
    several, or if it was merged into another branch than `branch`. `noun`: the forge's term for pull requests.
    """
    found = [pull for pull in pulls if pull.merged_at and pull.merged_as == commit]
    if len(found) != 1:
        came = f"came with no {noun} that was merged as it" if not found else f"came with several {noun}s"
        raise refusal(f"commit {commit[:8]} {came}: what nobody reviewed is not applied")
    [pull] = found
    if pull.target != branch:
        raise refusal(f"{pull.label} was merged into {pull.target!r}, this job is of {branch!r}")
    return pull


def approval_mark(comment: ReviewComment | None, pull: PullRequest, environment: str, author: str) -> CommentHeader:
    """Header of the comment that shows the plan. Raises RefusedError (K545) if the comment is missing or has no header,
    is about another commit than the merged head, shows no plan, or was changed after the merge, and if the pull request
    was not merged. `environment` and `author`, by which the caller found the comment (`own_comment`), are only for the
    error. Whether anybody approved is not checked here.
    """
    label, head = pull.label, pull.head
    mark = mark_of(comment.body) if comment else None
    if comment is None or mark is None:
        raise refusal(
            f"{label} has no plan for {environment} by {author}: its check did not run, or its comment was removed"
        )
    if mark.commit != head:
        raise refusal(f"{label} shows the plan of {mark.commit[:8]}, merged was {head[:8]}: pushed after the plan")
    if mark.plan is None:
        raise refusal(f"{label}: {head[:8]} could not be planned for {environment}")
    if pull.merged_at is None or comment.updated_at > pull.merged_at:
        raise refusal(f"the plan shown in {label} was written after the merge, so that nobody approved it")
    return mark


def approved_plan(archive: bytes, mark: CommentHeader, body: str, run_url: str) -> Plan:
    """Unpacks the plan from an artifact's zip file, and returns it. Raises RefusedError if the file does not hold
    exactly one plan file that this version of kodoctl made and nobody edited (of at most 64 MiB), if the plan is not
    the one that `mark` names, if the comment's text `body` does not show exactly this plan with a link to `run_url`
    (line ends and blanks around the text do not count), or if the plan itself is refused (K536).
    """
    try:
        plan = plan_file.loads(_unpack_plan(archive), "the plan of the pull request")
    except RefusedError:
        raise
    except (KodoctlError, UnicodeDecodeError, KeyError, OSError, *_DAMAGED) as problem:
        raise refusal(f"the artifact of run {mark.run} holds no plan: {problem}") from None
    if plan_file.to_json(plan)["seal"] != mark.plan:
        raise refusal(f"the artifact of run {mark.run} is another plan than the one that was shown")
    if _plain(body) != _plain(body_of(plan, mark, run_url)):
        raise refusal("the comment does not show the plan as it is: it was edited, or written by another kodoctl")
    if plan.refused:
        raise RefusedError(
            error("K536", "this plan is refused", "it was merged although its check failed: settle its errors")
        )
    return plan


def _unpack_plan(archive: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(archive)) as folder:
        [name] = folder.namelist() if len(folder.namelist()) == 1 else [""]
        with folder.open(name) as stream:  # KeyError: not one file
            data = stream.read(MAX_PLAN + 1)
    if len(data) > MAX_PLAN:
        raise refusal(f"the artifact's plan has more than {MAX_PLAN:,} bytes")
    return data.decode()


def _plain(body: str) -> str:
    """The text with LF line ends and without blank ends: forges change both."""
    return body.replace("\r\n", "\n").strip()

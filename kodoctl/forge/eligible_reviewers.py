"""Reviewers of a pull request whose approval counts, because they did not contribute to it. Pure: the caller passes
what the forge returned.

Authors, committers and pushers count as contributors: the creator of a commit chooses its author and committer freely,
and only the forge knows the account that pushed it. A contributor without a known account may be the person who
approves, so each of them requires one more approval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from kodoctl.forge.forge import BranchPush
from kodoctl.forge.review import refusal

if TYPE_CHECKING:
    from datetime import datetime

    from kodoctl.forge.forge import Authorship, PullRequest, ReviewApproval, ReviewComment


@dataclass(frozen=True, slots=True)
class Contributors:
    """Accounts (logins in lower case) that opened a pull request, pushed to its branch, or wrote or committed one of
    its commits.

    Args:
        unnamed: a text for each contributor without a known account, and for each bot that pushed; several may be the
            same person.
        pushed_at: time of the push of the head; the time of the merge if the forge's record has other pushes after it,
            because the head must then have been pushed again without a record.
    """

    accounts: frozenset[str]
    unnamed: tuple[str, ...]
    pushed_at: datetime


def contributors(pull: PullRequest, authorship: Authorship, pushes: Iterable[BranchPush]) -> Contributors:
    """Finds the contributors to a merged pull request. `pushes`: events of its branch, latest first, read only as far
    as needed. Raises RefusedError if the forge does not list all commits, or not the push of the head, and what reading
    `pushes` raises.
    """
    if not authorship.is_complete or pull.head not in authorship.shas:
        raise refusal(f"the forge does not list all commits of {pull.label}: nobody can say who wrote them")
    accounts = {pull.author} if pull.author else set()
    unnamed: dict[str, str] = {}
    pushed_at = None
    for push in _pull_pushes(pull, pushes, authorship.shas):
        pushed_at = pushed_at or push.at
        by = f"who pushed {push.after[:8]}"
        if push.login is None or push.is_bot:
            unnamed[push.login or by] = f"{by} is {push.login or 'not known'}"
        if push.login is not None:
            accounts.add(push.login)
    assert pushed_at is not None
    return Contributors(
        frozenset(accounts | authorship.accounts), (*unnamed.values(), *authorship.unnamed.values()), pushed_at
    )


def check_review(
    approvals: Sequence[ReviewApproval],
    comment: ReviewComment,
    pull: PullRequest,
    known: Contributors,
    objection: Callable[[ReviewApproval], str | None],
) -> None:
    """Raises RefusedError unless enough people approved the merged head after `comment` was last changed.

    An approval counts if its author may write to the repository, did not contribute (`known`) and is no bot; there must
    be one more of them than entries in `known.unnamed`. `objection`: returns the reason against an account as the end
    of a sentence, None: there is none; it is called only for approvals that have no other fault.
    """
    why = {one.login: _objection(one, comment, pull, known) or objection(one) for one in approvals}
    counted = [login for login, reason in why.items() if reason is None]
    if len(counted) > len(known.unnamed):
        return
    objections = [f"{login} approved, but {reason}" for login, reason in why.items() if reason]
    if counted:
        objections += [f"{', '.join(counted)} approved, and {len(known.unnamed) + 1} must: {'; '.join(known.unnamed)}"]
    who = "too few others" if counted else "nobody else"
    detail = f"{who} of the repository approved {pull.head[:8]} since {pull.label} shows this plan"
    advice = "approve it, and run this job again, or open a new one if the forge takes no approval after the merge"
    raise refusal(f"{detail}: {advice}", *objections)


def _objection(one: ReviewApproval, comment: ReviewComment, pull: PullRequest, known: Contributors) -> str | None:
    if one.login in known.accounts:
        return "contributed to it"
    if one.commit is not None and one.commit != pull.head:
        return f"another commit, {one.commit[:8]}"
    if one.at is None:
        return "the forge does not say when"
    if one.at < comment.updated_at:
        return "before it showed this plan"
    if one.commit is None and one.at < known.pushed_at:
        return f"before {pull.head[:8]} was pushed"
    return None


def _pull_pushes(pull: PullRequest, pushes: Iterable[BranchPush], shas: frozenset[str]) -> Iterator[BranchPush]:
    """Yields the pushes that made a pull request, latest first, back to its first. If the forge's record ends before, a
    push without an account is the last. If the latest push in the record is not the one of the head, the head was
    pushed again since: a push without an account, made at the time of the merge at the latest, is the first.

    Raises RefusedError if no push of the head is recorded.
    """
    merged_at = pull.merged_at
    assert merged_at is not None
    made = (push for push in pushes if push.kind != "branch_deletion" and push.at <= merged_at)
    later: list[BranchPush] = []
    last = None
    for push in made:
        if push.after == pull.head:
            last = push
            break
        later.append(push)
    if last is None:
        raise refusal(f"the forge does not say who pushed {pull.head[:8]}, the head of {pull.label}")
    if later:
        yield BranchPush(None, False, "force_push", later[0].after, pull.head, merged_at)
        yield from later
    rewritten = bool(later)
    for push in chain([last], made):
        yield push
        last = push
        # commits that a force push removed were part of the pull request: read on to the creation of its branch
        rewritten |= push.kind == "force_push"
        if push.kind == "branch_creation" or not (rewritten or push.before in shas):
            return
    yield replace(last, login=None, is_bot=False, after=last.before)

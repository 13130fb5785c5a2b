"""Reviewers of a pull request whose approval counts, because they did not contribute to it. Pure: the caller passes the
forge's JSON.

Authors, committers and pushers count as contributors: the creator of a commit chooses its author and committer freely,
and only the forge knows the account that pushed it. A contributor without a known account may be the person who
approves, so each of them requires one more approval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, Final

from kodoctl.forge.review import refusal

Json = dict[str, Any]
WRITERS: Final = frozenset({"admin", "maintain", "write"})
MAX_COMMITS: Final = 250
"""The forge lists at most so many commits of a pull request."""
_BOT: Final = "[bot]"
"""Ending of the logins of bots. The forge does not say for whom they act."""
_WEB: Final = "web-flow"
"""Account that commits and signs changes made on the forge's own pages; their author is the person."""


@dataclass(frozen=True, slots=True)
class Contributors:
    """Accounts (logins in lower case) that opened a pull request, pushed to its branch, or wrote or committed one of
    its commits.

    `unnamed`: a text for each contributor without a known account, and for each bot that pushed; several may be the
    same person.
    """

    accounts: frozenset[str]
    unnamed: tuple[str, ...]


def contributors(pull: Json, commits: Sequence[Json], pushes: Iterable[Json]) -> Contributors:
    """Finds the contributors to a merged pull request. `commits`: all of its commits; `pushes`: events of its branch,
    latest first, read only as far as needed. Raises RefusedError if the forge does not list all commits, or not the
    push of the head.
    """
    number, head = pull["number"], str(pull["head"]["sha"])
    shas = {str(commit["sha"]) for commit in commits}
    if len(commits) >= MAX_COMMITS or head not in shas:
        raise refusal(f"the forge does not list all commits of #{number}: nobody can say who wrote them")
    accounts = {login} if (login := _login(pull.get("user"))) else set()
    unnamed: dict[str, str] = {}
    for row in _pull_pushes(pull, pushes, shas):
        what, login = f"who pushed {str(row['after'])[:8]}", _login(row.get("actor"))
        if login is None or login.endswith(_BOT):
            unnamed[login or what] = f"{what} is {login or 'not known'}"
        if login is not None:
            accounts.add(login)
    for commit in commits:
        for role in ("author", "committer"):
            _commit(commit, role, accounts, unnamed)
    return Contributors(frozenset(accounts), tuple(unnamed.values()))


def check_review(
    reviews: Iterable[Json], comment: Json, pull: Json, known: Contributors, permission: Callable[[str], str]
) -> None:
    """Raises RefusedError unless enough people approved the merged head after `comment` was last changed.

    An approval counts if its author may write to the repository, did not contribute (`known`) and is no bot; there must
    be one more than `known.unnamed`. `permission`: returns the rights of a login, and is called only for approvals that
    have no other fault.
    """
    number, head = pull["number"], str(pull["head"]["sha"])
    why = {login: _objection(login, review, comment, head, known) for login, review in _approvals(reviews).items()}
    for login in [login for login, objection in why.items() if objection is None]:
        if permission(login) not in WRITERS:
            why[login] = "may not write to the repository"
    counted = [login for login, objection in why.items() if objection is None]
    if len(counted) > len(known.unnamed):
        return
    objections = [f"{login} approved, but {objection}" for login, objection in why.items() if objection]
    if counted:
        objections += [f"{', '.join(counted)} approved, and {len(known.unnamed) + 1} must: {'; '.join(known.unnamed)}"]
    detail = f"nobody else of the repository approved {head[:8]} since #{number} shows this plan"
    raise refusal(f"{detail}: approve it, and run this job again", *objections)


def _approvals(reviews: Iterable[Json]) -> Mapping[str, Json]:
    """Login -> latest review, if it is an approval. `reviews`: oldest first. Deleted accounts are left out."""
    latest: dict[str, Json] = {}
    for review in reviews:  # oldest first
        login = _login(review.get("user"))
        if login is not None and review.get("state") in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
            latest[login] = review
    return {login: review for login, review in latest.items() if review["state"] == "APPROVED"}


def _objection(login: str, review: Json, comment: Json, head: str, known: Contributors) -> str | None:
    if login in known.accounts:
        return "contributed to it"
    if login.endswith(_BOT):
        return "is nobody"
    if review.get("commit_id") != head:
        return f"another commit, {str(review.get('commit_id'))[:8]}"
    if str(review.get("submitted_at")) < str(comment["updated_at"]):
        return "before it showed this plan"
    return None


def _pull_pushes(pull: Json, pushes: Iterable[Json], shas: set[str]) -> Iterator[Json]:
    """Yields the pushes that made a pull request, from the one of its head back to its first. If the forge's record
    ends before, a push without an actor is the last.

    Raises RefusedError if the push of the head is missing.
    """
    number, head, merged = pull["number"], str(pull["head"]["sha"]), str(pull["merged_at"])
    rows = (row for row in pushes if row["activity_type"] != "branch_deletion" and str(row["timestamp"]) <= merged)
    last, rewritten = None, False
    for row in dropwhile(lambda row: row["after"] != head, rows):
        yield row
        last, kind = row, row["activity_type"]
        rewritten |= kind == "force_push"  # earlier commits are none of the pull request's now, and were part of it
        if kind == "branch_creation" or not (rewritten or row["before"] in shas):
            return
    if last is None:
        raise refusal(f"the forge does not say who pushed {head[:8]}, the head of #{number}")
    yield {"actor": None, "after": last["before"]}


def _commit(commit: Json, role: str, accounts: set[str], unnamed: dict[str, str]) -> None:
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

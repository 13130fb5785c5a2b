"""Whose approval of a pull request counts: what commits, pushes and accounts say, through the job after the merge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.forge.jobs import HEAD, MERGED, SMALL, Job

NOBODY = "nobody else of the repository approved"


def _merged(job: Job, *approvals: str) -> None:
    """The plan was shown, and then approved by these."""
    job.shows(SMALL)
    for login in approvals:
        job.forge.approve(1, login)
    job.forge.merge(1, MERGED)


@pytest.mark.parametrize(
    "review",
    [
        None,
        {"login": "Anna"},  # the author
        {"state": "CHANGES_REQUESTED"},
    ],
)
def test_without_somebody_else_s_approval_of_this_plan_nothing_is_applied_where_that_is_asked_for(
    job: Job, review: dict[str, str] | None
) -> None:
    job.shows(SMALL)
    if review is not None:
        job.forge.approve(1, **review)
    job.forge.merge(1, MERGED)
    assert "nobody else of the repository approved" in job.refused("--require-review")


def test_an_approval_from_before_the_plan_is_none_and_a_withdrawn_one_neither(job: Job) -> None:
    job.forge.approve(1)
    job.shows(SMALL)
    job.forge.merge(1, MERGED)
    assert "approve it, and run this job again" in job.refused("--require-review")
    job.forge.approve(1)
    job.forge.approve(1, state="DISMISSED")
    assert "nobody else" in job.refused("--require-review")
    job.forge.approve(1)
    assert job.asks("--require-review").code == 0


def test_whoever_pushed_to_the_branch_approves_nothing_whatever_name_the_commits_bear(job: Job) -> None:
    job.forge.push(1, HEAD, "mallory", author={"login": "anna"}, committer={"login": "anna"})
    _merged(job, "mallory")
    assert "mallory approved, but contributed to it" in job.refused("--require-review")
    job.forge.approve(1, "ben")
    assert job.asks("--require-review").code == 0


def test_a_push_counts_also_where_others_came_after_it_and_where_they_rewrote_it(job: Job) -> None:
    job.forge.push(1, "c" * 40, "mallory", author={"login": "anna"}, committer={"login": "anna"})
    job.forge.push(1, "d" * 40, "anna")
    job.forge.push(1, HEAD, "anna", "force_push")
    _merged(job, "mallory")
    assert "mallory approved, but contributed to it" in job.refused("--require-review")


@pytest.mark.parametrize("role", ["author", "committer"])
def test_whoever_wrote_or_committed_what_another_pushed_approves_nothing(job: Job, role: str) -> None:
    other: dict[str, Any] = {role: {"login": "mallory"}}
    job.forge.push(1, HEAD, "anna", **other)
    _merged(job, "mallory")
    assert "mallory approved, but contributed to it" in job.refused("--require-review")


def test_pushes_for_another_pull_request_and_the_end_of_the_branch_are_nobody_s_contribution(job: Job) -> None:
    job.forge.act(1, "push", {"login": "ben"}, "1" * 40, "2" * 40)  # a branch that lives long
    job.forge.act(1, "push", {"login": "anna"}, "3" * 40, HEAD)
    _merged(job, "ben")
    job.forge.act(1, "branch_deletion", {"login": "ben"}, HEAD, "0" * 40)
    job.forge.act(1, "branch_creation", {"login": "ben"}, "0" * 40, HEAD)
    assert job.asks("--require-review").code == 0


def test_a_push_that_brought_the_head_back_and_is_not_recorded_may_be_anybody_s(job: Job) -> None:
    job.forge.act(1, "force_push", {"login": "mallory"}, HEAD, "d" * 40)
    _merged(job, "mallory", "ben")
    reason = job.refused("--require-review")
    assert "mallory approved, but contributed to it" in reason
    assert "ben approved, and 2 must: who pushed aaaaaaaa is not known" in reason
    job.forge.approve(1, "cora")
    assert job.asks("--require-review").code == 0


@pytest.mark.parametrize("right", ["read", "none", None])
def test_an_approval_counts_from_those_who_may_write(job: Job, right: str | None) -> None:
    job.forge.permissions["ben"] = right
    _merged(job, "ben")
    assert "ben approved, but may not write to the repository" in job.refused("--require-review")
    job.forge.permissions["ben"] = "admin"
    assert job.asks("--require-review").code == 0


def test_approvals_of_bots_and_of_accounts_that_are_gone_are_none_and_spoil_nothing(job: Job) -> None:
    job.shows(SMALL)
    job.forge.approve(1, None)
    job.forge.approve(1, "github-actions[bot]")
    job.forge.approve(1, "Copilot")
    job.forge.merge(1, MERGED)
    assert NOBODY in job.refused("--require-review")
    job.forge.approve(1)
    assert job.asks("--require-review").code == 0


def test_a_pull_request_whose_author_is_gone_is_judged_by_who_pushed(job: Job) -> None:
    job.forge.pulls[0]["user"] = None
    _merged(job, "anna")
    assert "anna approved, but contributed to it" in job.refused("--require-review")
    job.forge.approve(1)
    assert job.asks("--require-review").code == 0


def _unlinked(job: Job) -> None:
    job.forge.push(1, "c" * 40, "anna", author=None, committer=None)
    job.forge.push(1, HEAD, "anna", author={}, committer={"login": "anna"})
    for commit in job.forge.commits[1]:
        commit["commit"]["author"]["email"] = commit["commit"]["committer"]["email"] = "who@knows.test"


def _by_a_bot(job: Job) -> None:
    job.forge.push(1, HEAD, "renovate[bot]")


def _by_an_agent(job: Job) -> None:
    job.forge.act(1, "push", {"login": "Copilot", "type": "Bot"}, HEAD, HEAD)


def _by_a_key(job: Job) -> None:
    job.forge.act(1, "push", None, HEAD, HEAD)


def _forgotten(job: Job) -> None:
    job.forge.activities[0] |= {"activity_type": "force_push", "before": "e" * 40}


def _false_web(job: Job) -> None:
    job.forge.push(1, HEAD, "anna", committer={"login": "web-flow"})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_unlinked, "the author of cccccccc has an e-mail address of no account, who@knows.test"),
        (_by_a_bot, "who pushed aaaaaaaa is renovate[bot]"),
        (_by_an_agent, "who pushed aaaaaaaa is copilot"),
        (_by_a_key, "who pushed aaaaaaaa is not known"),
        (_forgotten, "who pushed eeeeeeee is not known"),
        (_false_web, "the committer of aaaaaaaa has an e-mail address of no account"),
    ],
)
def test_whoever_has_no_name_may_be_the_one_who_approves_so_that_another_must_too(
    job: Job, make: Any, said: str
) -> None:
    make(job)
    _merged(job, "ben")
    reason = job.refused("--require-review")
    assert f"ben approved, and 2 must: {said}" in reason
    assert "too few others of the repository approved" in reason
    job.forge.approve(1, "cora")
    assert job.asks("--require-review").code == 0


def test_the_forge_itself_as_committer_of_what_was_done_on_its_pages_is_nobody_when_it_signed_that(job: Job) -> None:
    job.forge.push(1, HEAD, "anna", committer={"login": "web-flow"})
    job.forge.commits[1][-1]["commit"]["verification"] = {"verified": True}
    _merged(job, "ben")
    assert job.asks("--require-review").code == 0


def test_what_the_forge_does_not_tell_in_full_is_not_approved(job: Job) -> None:
    _merged(job, "ben")
    known = job.forge.commits[1]
    job.forge.commits[1] = [*known, *({**known[0], "sha": f"{number:040}"} for number in range(249))]
    assert "does not list all commits of #1" in job.refused("--require-review")
    job.forge.commits[1] = [{**known[0], "sha": "f" * 40}]
    assert "does not list all commits of #1" in job.refused("--require-review")
    job.forge.commits[1] = known
    job.forge.activities.clear()
    assert "does not say who pushed aaaaaaaa" in job.refused("--require-review")

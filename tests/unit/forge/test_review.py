"""Which plan a merge may carry out: everything that must be true of the comment, the run, the artifact and the review."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kodoctl.errors import error
from kodoctl.forge import review as rules
from kodoctl.plan import document
from kodoctl.plan.plan import Plan
from kodoctl.render.plan_markdown import LIMIT
from tests.cluster import Run, isolated, run_main
from tests.forge import BOT, WORKFLOW, StandIn
from tests.inventories import empty, planned, topology, wanted
from tests.servers import Answer, answer_json
from tests.workflows import zipped

HEAD, MERGED = "a" * 40, "b" * 40
SMALL = planned(wanted(topology("{J: {}}")), empty())
LARGER = planned(wanted(topology("{J: {}, K: {}}")), empty())


@dataclass
class Job:
    """A job's surroundings: the stand-in, a folder, and a token."""

    forge: StandIn
    folder: Path
    patch: pytest.MonkeyPatch

    def begin(self, event: str = rules.TRUSTED_EVENT, **permissions: str) -> int:
        """The next commands are a run of its own."""
        run = self.forge.begin_run(event)
        held = {name.replace("_", "-"): right for name, right in permissions.items()}
        values = {"API_URL": self.forge.url, "SERVER_URL": "https://forge.test", "REPOSITORY": self.forge.repository}
        values["WORKFLOW_REF"] = f"{self.forge.repository}/{WORKFLOW}@refs/heads/main"
        for name, value in {**values, "RUN_ID": str(run), "TOKEN": self.forge.token_for(held)}.items():
            self.patch.setenv(f"GITHUB_{name}", value)
        return run

    def shows(self, plan: Plan | None, event: str = rules.TRUSTED_EVENT, kept: Plan | None = None) -> Run:
        """A run that plans a pull request."""
        run = self.begin(event, pull_requests="write")
        if plan is not None:
            (self.folder / "plan.json").write_text(document.dumps(plan), encoding="utf-8")
            text = document.dumps(kept or plan).encode()
            self.forge.keep(run, rules.artifact_name("base", HEAD), zipped({"plan.json": text}))
        return run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD)

    def asks(self, *options: str) -> Run:
        """The job after the merge."""
        self.begin("push", pull_requests="read", actions="read")
        return run_main("review", "approved", "--commit", MERGED, "--out", "approved.json", *options)

    def refused(self, *options: str) -> str:
        """Why no plan was approved: exit 4, and no file."""
        found = self.asks(*options)
        assert found.code == 4, found.text
        assert not (self.folder / "approved.json").exists()
        return " ".join(found.err.split())


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    forge = StandIn()
    forge.pull(HEAD)
    with isolated(tmp_path):
        yield Job(forge, tmp_path, monkeypatch)
    forge.close()


def test_the_plan_that_was_shown_is_the_one_that_is_found_after_the_merge(job: Job) -> None:
    assert "Posted: https://forge.test" in job.shows(SMALL).out
    job.forge.approve(1)
    job.forge.merge(1, MERGED)
    found = job.asks("--require-review")
    assert "Approved with #1" in found.out
    assert document.loads((job.folder / "approved.json").read_text(encoding="utf-8"), "f") == SMALL


def test_a_second_plan_updates_the_comment_and_other_people_s_stay(job: Job) -> None:
    for number in range(101):  # more than a page
        job.forge.say(1, f"talk {number}", "anna")
    job.shows(SMALL)
    job.forge.say(1, job.forge.comments[1][-1]["body"], "mallory")
    assert "Updated" in job.shows(LARGER).out
    assert [one["user"]["login"] for one in job.forge.comments[1]].count(BOT) == 1
    job.forge.merge(1, MERGED)
    job.asks()
    assert document.loads((job.folder / "approved.json").read_text(encoding="utf-8"), "f") == LARGER


def test_a_commit_that_could_not_be_planned_is_said_in_the_comment_and_never_applied(job: Job) -> None:
    job.shows(SMALL)
    (job.folder / "plan.json").unlink()
    assert "could not be planned" in job.shows(None).err
    assert "could not be planned" in job.forge.comments[1][0]["body"]
    job.forge.merge(1, MERGED)
    assert "could not be planned" in job.refused()


def test_each_environment_has_a_comment_of_its_own(job: Job) -> None:
    job.shows(SMALL)
    overlay = "environments: {prod: {}}\n"
    prod = planned(wanted(topology("{J: {}}", overlay), environment="prod"), empty())
    (job.folder / "plan.json").write_text(document.dumps(prod), encoding="utf-8")
    assert "Posted" in run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD, "--env", "prod").out
    assert [rules.mark_of(one["body"]).environment for one in job.forge.comments[1]] == ["base", "prod"]  # type: ignore[union-attr]
    job.forge.merge(1, MERGED)
    assert "no artifact kodoctl-plan-prod-" in job.refused("--env", "prod")
    assert job.asks().code == 0


def test_a_plan_of_another_environment_is_not_shown_as_this_one(job: Job) -> None:
    job.begin(pull_requests="write")
    (job.folder / "plan.json").write_text(document.dumps(SMALL), encoding="utf-8")
    found = run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD, "--env", "prod")
    assert (found.code, "K547" in found.err) == (64, True)
    assert job.forge.comments == {}


def _edited(job: Job) -> None:
    comment = job.forge.comments[1][0]
    comment["body"] = comment["body"].replace("to create", "to cheat")


def _moved_on(job: Job) -> None:
    job.forge.pulls[0]["head"]["sha"] = "c" * 40


def _by_somebody_else(job: Job) -> None:
    job.forge.comments[1][0]["user"]["login"] = "mallory"


def _late(job: Job) -> None:
    job.forge.comments[1][0]["updated_at"] = "2026-11-23T00:00:00Z"


def _own_workflow(job: Job) -> None:
    for run in job.forge.runs.values():
        run["event"] = "pull_request"


def _elsewhere(job: Job) -> None:
    for run in job.forge.runs.values():
        run["repository"]["full_name"] = "mallory/topologies"


def _another_file(job: Job) -> None:
    for run in job.forge.runs.values():
        run["path"] = ".github/workflows/mine.yml"


def _another_base(job: Job) -> None:
    """A branch may be merged into several others, and the workflow may be that of each."""
    for run in job.forge.runs.values():
        run["pull_requests"].append({"number": 2, "base": {"ref": "mallory"}})


def _no_artifact(job: Job) -> None:
    job.forge.artifacts.clear()


def _damaged(job: Job) -> None:
    [(number, (row, archive))] = job.forge.artifacts.items()
    job.forge.artifacts[number] = (row, archive[: len(archive) // 2])


def _two_files(job: Job) -> None:
    [(number, (row, _))] = job.forge.artifacts.items()
    job.forge.artifacts[number] = (row, zipped({"plan.json": document.dumps(SMALL).encode(), "other": b""}))


def _no_plan(job: Job) -> None:
    [(number, (row, _))] = job.forge.artifacts.items()
    job.forge.artifacts[number] = (row, zipped({"plan.json": b"{}"}))


def _another_merge(job: Job) -> None:
    job.forge.pulls[0]["merge_commit_sha"] = "d" * 40


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (_edited, "does not show the plan as it is"),
        (_moved_on, "pushed after the plan"),
        (_by_somebody_else, "has no plan for base"),
        (_late, "written after the merge"),
        (_own_workflow, "began by 'pull_request', not by pull_request_target"),
        (_elsewhere, "is of mallory/topologies, not of acme/topologies"),
        (_another_file, "is of the workflow .github/workflows/mine.yml, not of .github/workflows/topologies.yml"),
        (_another_base, "may be of a pull request into mallory, not into main"),
        (_no_artifact, "never uploaded, or expired"),
        (_damaged, "holds no plan"),
        (_two_files, "holds no plan"),
        (_no_plan, "holds no plan"),
        (_another_merge, "came with no pull request"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_what_is_not_as_it_was_approved_is_refused(job: Job, break_it: Callable[[Job], None], said: str) -> None:
    job.shows(SMALL)
    job.forge.merge(1, MERGED)
    break_it(job)
    assert said in job.refused()


def test_an_artifact_that_holds_more_than_was_shown_is_refused(job: Job) -> None:
    job.shows(SMALL, kept=LARGER)
    job.forge.merge(1, MERGED)
    assert "another plan than the one that was shown" in job.refused()


def test_a_plan_that_was_shown_as_refused_is_refused(job: Job) -> None:
    job.shows(replace(SMALL, findings=(error("K413", "no such Pulsar tenant", "'acme'"),)))
    job.forge.merge(1, MERGED)
    assert "K536" in job.refused()


@pytest.mark.parametrize(
    ("review", "why"),
    [
        (None, "shows this plan: approve it"),
        ({"login": "Anna"}, "(anna contributed to it)"),  # who opened it
        ({"login": "stranger"}, "(stranger may not write to the repository)"),
        ({"login": None}, "shows this plan: approve it"),
        ({"state": "CHANGES_REQUESTED"}, "shows this plan: approve it"),
    ],
)
def test_without_somebody_else_s_approval_of_this_plan_nothing_is_applied_where_that_is_asked_for(
    job: Job, review: dict[str, str] | None, why: str
) -> None:
    job.shows(SMALL)
    if review is not None:
        job.forge.approve(1, **review)
    job.forge.merge(1, MERGED)
    said = job.refused("--require-review")
    assert "nobody else of the repository approved" in said
    assert why in said
    job.forge.approve(1, login="cleo")
    assert job.asks("--require-review").code == 0


@pytest.mark.parametrize("role", ["wrote a commit", "committed one", "pushed"])
def test_who_contributed_to_a_pull_request_of_somebody_else_approves_nothing(job: Job, role: str) -> None:
    if role != "pushed":
        author, committer = ("ben", "web-flow") if role == "wrote a commit" else ("anna", "ben")
        job.forge.commit(1, HEAD, author, committer)
    job.shows(SMALL)
    if role == "pushed":
        for run in job.forge.runs.values():
            run["actor"] = {"login": "ben"}
    job.forge.approve(1, login="ben")
    job.forge.merge(1, MERGED)
    assert "(ben contributed to it)" in job.refused("--require-review")
    job.forge.approve(1, login="cleo")
    assert job.asks("--require-review").code == 0


@pytest.mark.parametrize(("author", "committer"), [(None, "anna"), ("anna", None)])
def test_a_commit_of_which_nobody_knows_whose_it_is_may_be_the_reviewers(
    job: Job, author: str | None, committer: str | None
) -> None:
    job.forge.commit(1, "e" * 40, author, committer)
    job.shows(SMALL)
    job.forge.approve(1)
    job.forge.merge(1, MERGED)
    said = job.refused("--require-review")
    assert f"commit eeeeeeee of #1 has {'an author' if author is None else 'a committer'} without" in said
    assert "an account of the forge (nobody@example.org)" in said
    assert job.asks().code == 0


def test_more_commits_than_the_forge_names_are_not_looked_through_in_part(job: Job) -> None:
    for number in range(250):
        job.forge.commit(1, f"{number:040x}", "anna")
    job.shows(SMALL)
    job.forge.approve(1)
    job.forge.merge(1, MERGED)
    assert "#1 has 250 commits or more" in job.refused("--require-review")


def test_the_workflow_that_plans_is_this_jobs_own_or_the_one_that_is_named(job: Job) -> None:
    job.shows(SMALL)
    job.forge.merge(1, MERGED)
    job.begin("push", pull_requests="read", actions="read")
    job.patch.setenv("GITHUB_WORKFLOW_REF", "acme/topologies/.github/workflows/apply.yml@refs/heads/main")
    options = ("review", "approved", "--commit", MERGED, "--out", "approved.json")
    found = run_main(*options)
    assert (found.code, "name it with --workflow" in " ".join(found.err.split())) == (4, True)
    assert run_main(*options, "--workflow", WORKFLOW).code == 0
    job.patch.delenv("GITHUB_WORKFLOW_REF")
    found = run_main(*options)
    assert (found.code, "GITHUB_WORKFLOW_REF is not set" in " ".join(found.err.split())) == (64, True)


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


def test_the_forge_s_refusal_is_told_without_the_token(job: Job) -> None:
    job.begin(pull_requests="read")
    (job.folder / "plan.json").write_text(document.dumps(SMALL), encoding="utf-8")
    found = run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD)
    assert found.code == 1
    assert "K546" in found.err
    assert "403 Resource not accessible" in " ".join(found.err.split())
    job.patch.setenv("GITHUB_TOKEN", "ghs_stolenCANARY")
    wrong = run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD)
    assert "401" in wrong.err
    assert "CANARY" not in wrong.text


def test_a_forge_that_is_busy_is_asked_again_and_a_comment_is_never_posted_twice(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.forge.trouble += [answer_json({"message": "later"}, 503), Answer(cut=True)]
    monkeypatch.setattr("kodoctl.cli.review_commands._opened", _impatient)
    assert job.shows(SMALL).code == 0
    assert len(job.forge.comments[1]) == 1


def _impatient(place: object) -> object:
    from kodoctl.forge.github import Forge

    return Forge(place, pause=lambda _: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"])
def test_outside_of_a_job_what_is_missing_is_named(job: Job, name: str) -> None:
    job.begin(pull_requests="write")
    job.patch.delenv(name)
    found = run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD)
    assert (found.code, name in found.err) == (64, True)


@pytest.mark.parametrize(("name", "value"), [("--commit", "HEAD"), ("--commit", "A" * 40)])
def test_a_commit_is_written_in_full(job: Job, name: str, value: str) -> None:
    job.begin(pull_requests="write")
    assert run_main("review", "post", "plan.json", "--pull", "1", name, value).code == 64


def test_a_comment_fits_however_large_the_plan_is() -> None:
    topics = ", ".join(f"topic-with-a-long-name-{number}: {{}}" for number in range(1500))
    plan = planned(wanted(topology(f"{{{topics}}}")), empty())
    mark = rules.Mark("base", HEAD, 12, "e" * 64)
    body = rules.body_of(plan, mark, "https://forge.test/acme/topologies/actions/runs/12")
    assert len(body.encode()) <= LIMIT
    assert rules.mark_of(body) == mark


def test_a_pull_request_that_is_open_is_no_approval_though_the_forge_names_its_merge_commit(job: Job) -> None:
    """The one it would have: GitHub makes it to see whether the pull request can be merged."""
    job.shows(SMALL)
    job.forge.pulls[0]["merge_commit_sha"] = MERGED
    assert "came with no pull request that was merged as it" in job.refused()
    job.forge.merge(1, MERGED)
    assert job.asks().code == 0


def test_a_commit_of_a_merged_branch_is_not_the_one_that_was_merged(job: Job) -> None:
    """The forge names the pull request of every commit that came with it."""
    job.shows(SMALL)
    job.forge.merge(1, MERGED)
    job.begin("push", pull_requests="read", actions="read")
    found = run_main("review", "approved", "--commit", HEAD, "--out", "approved.json")
    assert (found.code, "came with no pull request that was merged as it" in " ".join(found.err.split())) == (4, True)


def test_an_approval_of_another_commit_is_none_however_late_and_a_remark_withdraws_none(job: Job) -> None:
    job.shows(SMALL)
    job.forge.merge(1, MERGED)
    job.forge.approve(1)
    job.forge.reviews[1][0]["commit_id"] = "c" * 40
    assert f"approved {HEAD[:8]}" in job.refused("--require-review")
    job.forge.approve(1, login="cleo")
    job.forge.approve(1, login="cleo", state="COMMENTED")
    assert job.asks("--require-review").code == 0


def test_an_archive_is_read_up_to_a_limit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.shows(SMALL)
    job.forge.merge(1, MERGED)
    monkeypatch.setattr(rules, "MAX_PLAN", 100)
    assert "the artifact's plan has more than 100 bytes" in job.refused()

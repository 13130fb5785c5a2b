"""Which plan a merge may carry out: everything that must be true of the comment, the run, the artifact and the review."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from kodoctl.cli.plan.forge_job import open_forge
from kodoctl.errors import ClusterError, error
from kodoctl.forge import review as rules
from kodoctl.forge.github import GitHub, Repository
from kodoctl.plan import plan_file
from kodoctl.pulsar.connection.secret import Secret
from kodoctl.render.plan_markdown import LIMIT
from tests.brokers.workspace import run_main
from tests.forge.stand_in import BOT, WORKFLOW
from tests.forge.workflows import zipped
from tests.samples.inventories import empty, planned, topology, wanted
from tests.services.servers import Answer, answer_json, serving
from tests.unit.forge.jobs import HEAD, MERGED, SMALL, Job

LARGER = planned(wanted(topology("{J: {}, K: {}}")), empty())


def test_the_plan_that_was_shown_is_the_one_that_is_found_after_the_merge(job: Job) -> None:
    assert "Posted: https://forge.test" in job.shows(SMALL).out
    job.forge.approve(1)
    job.forge.merge(1, MERGED)
    found = job.asks("--require-review")
    assert "Approved with #1" in found.out
    assert plan_file.loads((job.folder / "approved.json").read_text(encoding="utf-8"), "f") == SMALL


def test_a_second_plan_updates_the_comment_and_other_people_s_stay(job: Job) -> None:
    for number in range(101):  # more than a page
        job.forge.say(1, f"talk {number}", "anna")
    job.shows(SMALL)
    job.forge.say(1, job.forge.comments[1][-1]["body"], "mallory")
    assert "Updated" in job.shows(LARGER).out
    assert [one["user"]["login"] for one in job.forge.comments[1]].count(BOT) == 1
    job.forge.merge(1, MERGED)
    job.asks()
    assert plan_file.loads((job.folder / "approved.json").read_text(encoding="utf-8"), "f") == LARGER


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
    (job.folder / "plan.json").write_text(plan_file.dumps(prod), encoding="utf-8")
    assert "Posted" in run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD, "--env", "prod").out
    assert [rules.mark_of(one["body"]).environment for one in job.forge.comments[1]] == ["base", "prod"]  # type: ignore[union-attr]
    job.forge.merge(1, MERGED)
    assert "no artifact kodoctl-plan-prod-" in job.refused("--env", "prod")
    assert job.asks().code == 0


def test_a_plan_of_another_environment_is_not_shown_as_this_one(job: Job) -> None:
    job.begin(pull_requests="write")
    (job.folder / "plan.json").write_text(plan_file.dumps(SMALL), encoding="utf-8")
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


def _run(**values: object) -> Callable[[Job], None]:
    """The run that made the plan is another."""

    def change(job: Job) -> None:
        next(iter(job.forge.runs.values())).update(values)

    return change


def _other_base(job: Job) -> None:
    job.forge.pulls[0]["base"]["ref"] = "mallorys"


def _no_artifact(job: Job) -> None:
    job.forge.artifacts.clear()


def _damaged(job: Job) -> None:
    [(number, (row, archive))] = job.forge.artifacts.items()
    job.forge.artifacts[number] = (row, archive[: len(archive) // 2])


def _garbled(job: Job) -> None:
    """Damaged within the packed data: the zip file's own lists are whole."""
    [(number, (row, archive))] = job.forge.artifacts.items()
    middle = len(archive) // 3
    job.forge.artifacts[number] = (row, archive[:middle] + bytes(40) + archive[middle + 40 :])


def _two_files(job: Job) -> None:
    [(number, (row, _))] = job.forge.artifacts.items()
    job.forge.artifacts[number] = (row, zipped({"plan.json": plan_file.dumps(SMALL).encode(), "other": b""}))


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
        (_run(event="pull_request"), "its workflow may have been the pull request's own"),
        (
            _run(path=".github/workflows/mallorys.yml"),
            f"is of the workflow .github/workflows/mallorys.yml, not of {WORKFLOW}; if another file",
        ),
        (_run(path=f"mallory/fork/{WORKFLOW}"), f"is of the workflow mallory/fork/{WORKFLOW}"),
        (_run(path=f"{WORKFLOW}@refs/heads/mallorys"), "is of a workflow on refs/heads/mallorys, not on main"),
        (_run(head_branch="mallorys"), "is of the branch mallorys, not of change-1"),
        (_run(repository={"full_name": "mallory/fork"}), "is of mallory/fork, not of acme/topologies"),
        (_run(repository=None), "is of None, not of"),
        (_run(path=None), "is of the workflow None"),
        (_run(pull_requests=[{"base": {"ref": "mallorys"}}]), "may be of a pull request into mallorys, not into main"),
        (_other_base, "was merged into 'mallorys', this job is of 'main'"),
        (_no_artifact, "never uploaded, or expired"),
        (_damaged, "holds no plan"),
        (_garbled, "holds no plan"),
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
    job.shows(replace(SMALL, findings=(error("K413", "Pulsar tenant not found", "'acme'"),)))
    job.forge.merge(1, MERGED)
    assert "K536" in job.refused()


def test_a_run_s_workflow_may_be_written_with_its_repository_and_branch_and_another_file_is_named(job: Job) -> None:
    job.shows(SMALL)
    job.forge.merge(1, MERGED)
    _run(path=f"{job.forge.repository}/{WORKFLOW}@refs/heads/main")(job)
    assert job.asks().code == 0
    _run(path=".github/workflows/plan.yml@main")(job)
    assert job.asks("--workflow", ".github/workflows/plan.yml").code == 0


def test_the_forge_s_refusal_is_told_without_the_token(job: Job) -> None:
    job.begin(pull_requests="read")
    (job.folder / "plan.json").write_text(plan_file.dumps(SMALL), encoding="utf-8")
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
    monkeypatch.setattr("kodoctl.cli.plan.forge_job.open_forge", lambda: open_forge(pause=lambda _: None))
    assert job.shows(SMALL).code == 0
    assert len(job.forge.comments[1]) == 1


def test_a_plan_that_ends_in_the_middle_of_its_download_is_an_error_of_the_forge() -> None:
    broken = Answer(200, b"5\r\nabc", {"Transfer-Encoding": "chunked", "Connection": "close"})
    with serving(lambda _: broken) as server:
        place = Repository(server.url, server.url, "acme/topologies", Secret("ghs_CANARY"))
        with closing(GitHub(place)) as forge, pytest.raises(ClusterError, match="K546"):
            forge._http.download("actions/artifacts/1/zip", needs="")


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"])
def test_outside_of_a_job_what_is_missing_is_named(job: Job, name: str) -> None:
    job.begin(pull_requests="write")
    job.patch.delenv(name)
    found = run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD)
    assert (found.code, name in found.err) == (64, True)


@pytest.mark.parametrize(("name", "value"), [("REF", "refs/tags/v1"), ("REF", ""), ("WORKFLOW_REF", "")])
def test_a_plan_is_fetched_for_a_branch_and_a_workflow(job: Job, name: str, value: str) -> None:
    job.begin("push")
    job.patch.setenv(f"GITHUB_{name}", value)
    found = run_main("review", "approved", "--commit", MERGED, "--out", "approved.json")
    assert (found.code, f"GITHUB_{name}" in found.err) == (64, True)


@pytest.mark.parametrize(("name", "value"), [("--commit", "HEAD"), ("--commit", "A" * 40)])
def test_a_commit_is_written_in_full(job: Job, name: str, value: str) -> None:
    job.begin(pull_requests="write")
    assert run_main("review", "post", "plan.json", "--pull", "1", name, value).code == 64


def test_a_comment_fits_however_large_the_plan_is() -> None:
    topics = ", ".join(f"topic-with-a-long-name-{number}: {{}}" for number in range(1500))
    plan = planned(wanted(topology(f"{{{topics}}}")), empty())
    mark = rules.CommentHeader("base", HEAD, 12, "e" * 64)
    body = rules.body_of(plan, mark, "https://forge.test/acme/topologies/actions/runs/12")
    assert len(body.encode()) <= LIMIT
    assert rules.mark_of(body) == mark

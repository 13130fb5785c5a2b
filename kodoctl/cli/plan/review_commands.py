"""review post|approved: a plan as the sticky comment of a pull request, and the plan that a merge may carry out."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.console import command, say, tell
from kodoctl.cli.plan.plan_views import read_plan, write_plan
from kodoctl.errors import RefusedError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.forge.github import Forge, Repository
    from kodoctl.forge.review import CiJob, CommentHeader
    from kodoctl.plan.plan import Plan

_DEFAULT_AUTHOR = "github-actions[bot]"
Env = Annotated[
    str, typer.Option("--env", help="Environment of the plan; `base` is the file without overlay.", metavar="NAME")
]
Author = Annotated[
    str, typer.Option("--author", help="Who writes the comment: only this login's counts.", metavar="LOGIN")
]


@command
def post(
    file: Annotated[
        str,
        typer.Argument(
            help="The plan file; if there is none, the comment says that.", metavar="FILE", show_default=False
        ),
    ],
    pull: Annotated[int, typer.Option("--pull", help="The pull request.", min=1, metavar="NUMBER")],
    commit: Annotated[str, typer.Option("--commit", help="The pull request's head, which was planned.", metavar="SHA")],
    env: Env = "base",
    author: Author = _DEFAULT_AUTHOR,
) -> None:
    """Show a plan in a pull request.

    One comment for each environment, updated in place.
    """
    from kodoctl.forge.review import CommentHeader, body_of, own_comment
    from kodoctl.plan import plan_file

    plan = read_plan(file) if Path(file).exists() else None
    if plan is not None and (plan.environment or "base") != env:
        detail = f"the plan is for {plan.environment or 'base'}, --env says {env}"
        raise UsageError(error("K547", "not a pull request's job", detail))
    place, run = _place(), _run()
    seal = plan_file.to_json(plan)["seal"] if plan else None
    mark = CommentHeader(env, _commit(commit), run, seal)
    body = body_of(plan, mark, place.run_url(run))
    with _open_forge(place) as forge:
        there = own_comment(forge.comments(pull), env, author)
        written = forge.post(pull, body) if there is None else forge.edit(int(there["id"]), body)
    say(f"{'Posted' if there is None else 'Updated'}: {written.get('html_url') or f'pull request #{pull}'}")
    if plan is None:
        tell(f"Note: there is no plan file {file}: the comment says that {commit[:8]} could not be planned.")


@command
def fetch_approved(
    commit: Annotated[str, typer.Option("--commit", help="The commit that the merge made.", metavar="SHA")],
    out: Annotated[str, typer.Option("-o", "--out", help="Write the approved plan to this file.", metavar="FILE")],
    env: Env = "base",
    author: Author = _DEFAULT_AUTHOR,
    require_review: Annotated[
        bool,
        typer.Option(
            "--require-review",
            help="Somebody who may write to the repository and did not contribute must have approved this plan.",
        ),
    ] = False,
    workflow: Annotated[
        str | None,
        typer.Option(
            "--workflow",
            help="The workflow file that plans; this job's own, if it is not said.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fetch the plan that was approved.

    Writes the plan of the pull request that was merged as the commit, for `apply PATHS --approved FILE`.
    """
    from kodoctl.plan.fleet import alone

    place = _place()
    job = _job(place, workflow)
    with _open_forge(place) as forge:
        plan, mark, number = _find_approved_plan(
            forge, place, job, _commit(commit), env, author, require_review=require_review
        )
    write_plan(alone(plan), out)
    say(f"Approved with #{number}: the plan of {mark.commit[:8]} for {env}, sealed {(mark.plan or '')[:12]}")
    tell(f"Written to {out}; carry it out with: kodoctl apply PATHS --approved {out}")


def _find_approved_plan(
    forge: Forge, place: Repository, job: CiJob, commit: str, env: str, author: str, *, require_review: bool
) -> tuple[Plan, CommentHeader, int]:
    from kodoctl.forge import eligible_reviewers
    from kodoctl.forge import review as rules

    pull = rules.merged_pull(forge.pulls_of(commit), commit, job.branch)
    number = int(pull["number"])
    comment = rules.own_comment(forge.comments(number), env, author)
    mark = rules.approval_mark(comment, pull, env)
    assert comment is not None
    rules.check_run(forge.run(mark.run), pull, job)
    if require_review:
        known = eligible_reviewers.contributors(pull, forge.commits(number), forge.pushes(str(pull["head"]["ref"])))
        eligible_reviewers.check_review(forge.reviews(number), comment, pull, known, forge.permission)
    name = rules.artifact_name(env, mark.commit)
    there = forge.artifacts(mark.run, name)
    if not there:
        detail = f"run {mark.run} has no artifact {name}: never uploaded, or expired; nothing was written"
        raise RefusedError(error("K545", "no approved plan", detail))
    archive = forge.archive(int(there[0]["id"]))
    return rules.approved_plan(archive, mark, comment, place.run_url(mark.run)), mark, number


def _place() -> Repository:
    """Repository, addresses and token of the forge, from environment variables. Raises UsageError (K547) with all
    missing ones.
    """
    from kodoctl.forge.github import Repository
    from kodoctl.pulsar.connection.secret import Secret

    needed = ("GITHUB_REPOSITORY", "GITHUB_TOKEN")
    missing = [name for name in needed if not os.environ.get(name)]
    if missing:
        detail = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: run this in a job of the forge"
        raise UsageError(error("K547", "not a pull request's job", detail))
    api = os.environ.get("GITHUB_API_URL") or "https://api.github.com"
    server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
    token = Secret(os.environ["GITHUB_TOKEN"].strip())
    place = Repository(api.rstrip("/"), server.rstrip("/"), os.environ["GITHUB_REPOSITORY"], token)
    if not place.well_named:
        detail = f"GITHUB_REPOSITORY is {place.repository!r}: write OWNER/NAME"
        raise UsageError(error("K547", "not a pull request's job", detail))
    return place


def _job(place: Repository, workflow: str | None) -> CiJob:
    """Branch of this job, and the workflow that plans its pull requests, from environment variables. Raises UsageError
    (K547).
    """
    from kodoctl.forge.review import CiJob

    ref, own = os.environ.get("GITHUB_REF", ""), os.environ.get("GITHUB_WORKFLOW_REF", "")
    branch = ref.removeprefix("refs/heads/")
    if branch in ("", ref):
        detail = f"GITHUB_REF is {ref!r}: a plan is approved for a branch, refs/heads/NAME"
        raise UsageError(error("K547", "not a pull request's job", detail))
    file = workflow or own.partition("@")[0].removeprefix(f"{place.repository}/")
    if not file:
        detail = "GITHUB_WORKFLOW_REF is not set: name the workflow that plans with --workflow PATH"
        raise UsageError(error("K547", "not a pull request's job", detail))
    return CiJob(place.repository, branch, file)


def _run() -> int:
    text = os.environ.get("GITHUB_RUN_ID", "")
    if not text.isdecimal():
        detail = "GITHUB_RUN_ID is not set: the comment names the run that keeps the plan"
        raise UsageError(error("K547", "not a pull request's job", detail))
    return int(text)


def _commit(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}", text):
        raise UsageError(error("K547", "not a pull request's job", f"--commit {text!r}: write all 40 digits"))
    return text


def _open_forge(place: Repository) -> Forge:
    from kodoctl.forge.github import Forge

    return Forge(place)

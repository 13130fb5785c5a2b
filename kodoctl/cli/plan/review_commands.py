"""review post|approved: a plan as the sticky comment of a pull request, and the plan that a merge may carry out."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.console import command, say, tell
from kodoctl.cli.plan.forge_job import merged_commit, planned_pull
from kodoctl.cli.plan.plan_views import read_plan, write_plan
from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodoctl.forge.forge import CiJob, Forge
    from kodoctl.forge.review import CommentHeader
    from kodoctl.plan.plan import Plan

Env = Annotated[
    str, typer.Option("--env", help="Environment of the plan; `base` is the file without overlay.", metavar="NAME")
]
Author = Annotated[
    str | None,
    typer.Option(
        "--author",
        help="Who writes the comment: only this login's counts.",
        metavar="LOGIN",
        show_default="github-actions[bot]; on GitLab the token's own account",
    ),
]


@command
def post(
    file: Annotated[
        str,
        typer.Argument(
            help="The plan file; if there is none, the comment says that.", metavar="FILE", show_default=False
        ),
    ],
    pull: Annotated[
        int | None,
        typer.Option(
            "--pull",
            help="The pull request, or merge request.",
            min=1,
            metavar="NUMBER",
            show_default="on GitLab this job's",
        ),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(
            "--commit",
            help="The pull request's head, which was planned.",
            metavar="SHA",
            show_default="on GitLab this job's",
        ),
    ] = None,
    env: Env = "base",
    author: Author = None,
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
    seal = plan_file.to_json(plan)["seal"] if plan else None
    planned = planned_pull(pull, commit)
    number, mark = planned.number, CommentHeader(env, planned.commit, planned.run, seal)
    with closing(planned.forge) as forge:
        body = body_of(plan, mark, forge.run_url(mark.run))
        there = own_comment(forge.comments(number), env, author or forge.login())
        written = forge.post(number, body) if there is None else forge.edit(number, there.id, body)
        say(f"{'Posted' if there is None else 'Updated'}: {written.url or f'{forge.noun} {number}'}")
    if plan is None:
        tell(f"Note: there is no plan file {file}: the comment says that {mark.commit[:8]} could not be planned.")


@command
def fetch_approved(
    out: Annotated[str, typer.Option("-o", "--out", help="Write the approved plan to this file.", metavar="FILE")],
    commit: Annotated[
        str | None,
        typer.Option("--commit", help="The commit that the merge made.", metavar="SHA", show_default="this job's"),
    ] = None,
    env: Env = "base",
    author: Author = None,
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
            help="The file that plans: on GitHub the path of a workflow, this job's own if it is not said; on GitLab "
            "FILE@GROUP/PROJECT, any file that is named with its project if it is not said.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fetch the plan that was approved.

    Writes the plan of the pull request that was merged as the commit, for `apply PATHS --approved FILE`.
    """
    from kodoctl.plan.fleet import alone

    merged = merged_commit(commit, workflow)
    with closing(merged.forge) as forge:
        plan, mark, label = _find_approved_plan(
            forge, merged.job, merged.commit, env, author or forge.login(), require_review=require_review
        )
    write_plan(alone(plan), out)
    say(f"Approved with {label}: the plan of {mark.commit[:8]} for {env}, sealed {(mark.plan or '')[:12]}")
    tell(f"Written to {out}; carry it out with: kodoctl apply PATHS --approved {out}")


def _find_approved_plan(
    forge: Forge, job: CiJob, commit: str, env: str, author: str, *, require_review: bool
) -> tuple[Plan, CommentHeader, str]:
    from kodoctl.forge import eligible_reviewers
    from kodoctl.forge import review as rules

    pull = rules.merged_pull(forge.pulls_of(commit), commit, job.branch, forge.noun)
    comment = rules.own_comment(forge.comments(pull.number), env, author)
    mark = rules.approval_mark(comment, pull, env, author)
    assert comment is not None
    forge.check_run(mark.run, pull, job)
    if require_review:
        known = eligible_reviewers.contributors(pull, forge.authorship(pull), forge.pushes(pull))
        eligible_reviewers.check_review(forge.approvals(pull), comment, pull, known, forge.objection)
    name = rules.artifact_name(env, mark.commit)
    archive = forge.artifact(mark.run, name)
    if archive is None:
        raise rules.refusal(f"run {mark.run} has no artifact {name}: never uploaded, or expired")
    return rules.approved_plan(archive, mark, comment.body, forge.run_url(mark.run)), mark, pull.label

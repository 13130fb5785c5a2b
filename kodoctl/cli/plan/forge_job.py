"""The job of a forge that a command runs in, by its environment variables: of GitHub Actions, or of GitLab CI."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kodoctl.errors import Diagnostic, UsageError, error

if TYPE_CHECKING:
    from kodoctl.forge.forge import CiJob, Forge

T = TypeVar("T")
_ADVICE = "a token of the project with the scope `api` and the role Reporter: CI_JOB_TOKEN may not write comments"


@dataclass(frozen=True, slots=True)
class PlannedPull:
    """A pull request whose plan is to be shown. `commit`: its head, which was planned; `run`: number of the run that
    keeps the plan file (of a workflow on GitHub, of a job on GitLab); `forge`: client of the repository, for the caller
    to close.
    """

    number: int
    commit: str
    run: int
    forge: Forge


@dataclass(frozen=True, slots=True)
class MergedCommit:
    """The commit that a merge made, the job that applies it, and the client of the repository, for the
    caller to close.
    """

    commit: str
    job: CiJob
    forge: Forge


def planned_pull(pull: int | None, commit: str | None) -> PlannedPull:
    """The pull request that this job planned. Raises UsageError with all that is missing or wrong (K504, K505, K547).

    Args:
        pull: number of the pull request; None: that of this job, which only GitLab tells (GitHub: K547).
        commit: its head; None: on GitLab the head of this job's merge request, or else the job's commit; on GitHub an
            error (K547).
    """
    own = _value("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or _value("CI_COMMIT_SHA") if _is_gitlab() else ""
    problems: list[Diagnostic] = []
    number = _collected(problems, lambda: _pull_number(pull))
    head = _collected(problems, lambda: _checked_commit(commit or own))
    run = _collected(problems, _run_number)
    forge = _collected(problems, open_forge)
    if number is None or head is None or run is None or forge is None:
        raise UsageError(*problems)
    return PlannedPull(number, head, run, forge)


def merged_commit(commit: str | None, workflow: str | None) -> MergedCommit:
    """The commit that a merge made. Raises UsageError with all that is missing or wrong (K504, K505, K547).

    Args:
        commit: its id; None: the commit of this job.
        workflow: the file that plans; None: on GitHub the workflow of this job, on GitLab any file of another project.
    """
    problems: list[Diagnostic] = []
    job = _collected(problems, lambda: _merge_job(workflow))
    merged = _collected(
        problems, lambda: _checked_commit(commit or _value("CI_COMMIT_SHA" if _is_gitlab() else "GITHUB_SHA"))
    )
    forge = _collected(problems, open_forge)
    if job is None or merged is None or forge is None:
        raise UsageError(*problems)
    return MergedCommit(merged, job, forge)


def open_forge(*, pause: Callable[[float], None] = time.sleep) -> Forge:
    """Client of the repository of this job, for the caller to close; sends nothing. Raises UsageError: K547 with all
    missing variables, or for an invalid one, K505 for an address and K504 for a token that cannot be used. `pause`:
    waits for a number of seconds between two tries.
    """
    return _gitlab(pause) if _is_gitlab() else _github(pause)


def _collected(problems: list[Diagnostic], read: Callable[[], T]) -> T | None:
    """The value that `read` returns; None: it raised UsageError, whose findings are added to `problems`."""
    try:
        return read()
    except UsageError as problem:
        problems += problem.diagnostics
        return None


def _run_number() -> int:
    name = "CI_JOB_ID" if _is_gitlab() else "GITHUB_RUN_ID"
    text = _value(name)
    if not text.isdecimal():
        raise _not_a_job(f"{name} is not set: the comment names the run that keeps the plan")
    return int(text)


def _pull_number(pull: int | None) -> int:
    if pull is not None:
        return pull
    if not _is_gitlab():
        raise _not_a_job("--pull is missing: name the pull request by its number")
    text = _value("CI_MERGE_REQUEST_IID")
    if not text.isdecimal():
        why = "CI_MERGE_REQUEST_IID is not set: run this in a pipeline of a merge request, or name it with --pull"
        raise _not_a_job(why)
    return int(text)


def _merge_job(workflow: str | None) -> CiJob:
    from kodoctl.forge.forge import CiJob

    if _is_gitlab():
        if not _value("CI_COMMIT_BRANCH"):
            raise _not_a_job("CI_COMMIT_BRANCH is not set: a plan is approved for a branch, in a pipeline of it")
        return CiJob(_value("CI_COMMIT_BRANCH"), workflow)
    ref, own = _value("GITHUB_REF"), _value("GITHUB_WORKFLOW_REF")
    branch = ref.removeprefix("refs/heads/")
    if branch in ("", ref):
        raise _not_a_job(f"GITHUB_REF is {ref!r}: a plan is approved for a branch, refs/heads/NAME")
    file = workflow or own.partition("@")[0].removeprefix(f"{_value('GITHUB_REPOSITORY')}/")
    if not file:
        raise _not_a_job("GITHUB_WORKFLOW_REF is not set: name the workflow that plans with --workflow PATH")
    return CiJob(branch, file)


def _github(pause: Callable[[float], None]) -> Forge:
    from kodoctl.forge.github import GitHub, Repository
    from kodoctl.pulsar.connection.credentials import checked_secure_url
    from kodoctl.pulsar.connection.secret import checked_secret

    _check_variables("GITHUB_REPOSITORY", "GITHUB_TOKEN")
    api = _value("GITHUB_API_URL") or "https://api.github.com"
    server = _value("GITHUB_SERVER_URL") or "https://github.com"
    place = Repository(
        checked_secure_url(api, "GITHUB_API_URL", "the forge's API", "the token"),
        server.rstrip("/"),
        _value("GITHUB_REPOSITORY"),
        checked_secret(_value("GITHUB_TOKEN"), "GITHUB_TOKEN"),
    )
    if not place.well_named:
        raise _not_a_job(f"GITHUB_REPOSITORY is {place.repository!r}: write OWNER/NAME")
    return GitHub(place, pause=pause)


def _gitlab(pause: Callable[[float], None]) -> Forge:
    from kodoctl.forge.gitlab import GitLab, GitLabProject
    from kodoctl.pulsar.connection.credentials import checked_secure_url
    from kodoctl.pulsar.connection.secret import checked_secret

    _check_variables("CI_API_V4_URL", "CI_PROJECT_ID", "CI_PROJECT_PATH", "CI_PROJECT_URL", "GITLAB_TOKEN")
    number, ca_file = _value("CI_PROJECT_ID"), _value("CI_SERVER_TLS_CA_FILE")
    if not number.isdecimal():
        raise _not_a_job(f"CI_PROJECT_ID is {number!r}: it is a number")
    if ca_file and not Path(ca_file).is_file():
        raise _not_a_job(f"CI_SERVER_TLS_CA_FILE is {ca_file!r}: there is no such file")
    project = GitLabProject(
        api_url=checked_secure_url(_value("CI_API_V4_URL"), "CI_API_V4_URL", "the forge's API", "the token"),
        id=int(number),
        path=_value("CI_PROJECT_PATH"),
        url=_value("CI_PROJECT_URL").rstrip("/"),
        token=checked_secret(_value("GITLAB_TOKEN"), "GITLAB_TOKEN"),
        ca_file=ca_file or None,
    )
    return GitLab(project, pause=pause)


def _check_variables(*needed: str) -> None:
    missing = [name for name in needed if not _value(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        advice = f"; GITLAB_TOKEN is {_ADVICE}" if "GITLAB_TOKEN" in missing else ""
        raise _not_a_job(f"{', '.join(missing)} {verb} not set: run this in a job of the forge{advice}")


def _checked_commit(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}", text):
        raise _not_a_job(f"--commit {text!r}: write all 40 digits" if text else "--commit is missing: name the commit")
    return text


def _is_gitlab() -> bool:
    return _value("GITLAB_CI") == "true"


def _value(name: str) -> str:
    return os.environ.get(name, "").strip()


def _not_a_job(detail: str) -> UsageError:
    return UsageError(error("K547", "not a pull request's job", detail))

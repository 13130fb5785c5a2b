"""The job of a forge that a command runs in, by its environment variables: of GitHub Actions, or of GitLab CI."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodoctl.forge.forge import CiJob, Forge

_ADVICE = "a token of the project with the scope `api` and the role Reporter: CI_JOB_TOKEN may not write comments"


def open_forge(*, pause: Callable[[float], None] = time.sleep) -> Forge:
    """Client of the repository that this job is of, for the caller to close. Raises UsageError (K547) with all missing
    variables, and for an address (K505) or a token (K504) that is none. `pause`: waits for a number of seconds.
    """
    return _gitlab(pause) if _is_gitlab() else _github(pause)


def run_number() -> int:
    """Number of the run that keeps the plan: a run of a workflow, or a job of GitLab. Raises UsageError (K547)."""
    name = "CI_JOB_ID" if _is_gitlab() else "GITHUB_RUN_ID"
    text = _value(name)
    if not text.isdecimal():
        raise _not_a_job(f"{name} is not set: the comment names the run that keeps the plan")
    return int(text)


def planned_pull(pull: int | None) -> int:
    """Number of the pull request that was planned: the given one, else this job's. Raises UsageError (K547)."""
    text = _value("CI_MERGE_REQUEST_IID") if _is_gitlab() else ""
    if pull is None and not text.isdecimal():
        why = "--pull is missing: name the pull request by its number"
        if _is_gitlab():
            why = "CI_MERGE_REQUEST_IID is not set: run this in a pipeline of a merge request, or name it with --pull"
        raise _not_a_job(why)
    return int(text) if pull is None else pull


def planned_commit(commit: str | None) -> str:
    """Head of the pull request that was planned: the given one, else this job's, which GitHub does not tell. Raises
    UsageError (K547).
    """
    own = _value("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or _value("CI_COMMIT_SHA") if _is_gitlab() else ""
    return _checked_commit(commit or own)


def merged_commit(commit: str | None) -> str:
    """The commit that the merge made: the given one, else the one that this job is of. Raises UsageError (K547)."""
    return _checked_commit(commit or _value("CI_COMMIT_SHA" if _is_gitlab() else "GITHUB_SHA"))


def merge_job(workflow: str | None) -> CiJob:
    """Branch of this job, and the file that plans its pull requests: the given one, else on GitHub the workflow of this
    job. Raises UsageError (K547).
    """
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

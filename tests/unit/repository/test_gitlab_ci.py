"""Rules of the shipped pipeline of GitLab: what a review of it would look for first."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from kodoctl.cli.application import app
from kodoctl.cli.lazy_commands import LazyGroup
from tests.forge.gitlab_ci import PIPELINE_FILE, holds, jobs_of, pipeline_file

DOCUMENT = pipeline_file()
JOBS = jobs_of(DOCUMENT)
KEYS = {"stage", "rules", "timeout", "script", "artifacts", "environment", "interruptible", "resource_group"}
"""Keywords of jobs that the file uses, as GitLab's reference of `.gitlab-ci.yml` has them."""
FREE_TEXT = re.compile(r"CI_(MERGE_REQUEST_(TITLE|DESCRIPTION|LABELS)|COMMIT_(MESSAGE|TITLE|DESCRIPTION|AUTHOR))")
COMMANDS = [
    (name, line.split(" > ")[0].split(" || ")[0])
    for name, job in JOBS.items()
    for line in "\n".join(job["script"]).replace("\\\n", " ").splitlines()
    if line.strip().startswith("kodoctl ")
]


def _command(words: list[str]) -> Any:
    """The command that a line of a script runs, by kodoctl's own command line."""
    command: Any = typer.main.get_command(app)
    while isinstance(command, LazyGroup):
        command = command.load_all()[words.pop(0)]
    return command


@pytest.mark.parametrize(("name", "line"), COMMANDS)
def test_each_command_exists_with_its_options(name: str, line: str) -> None:
    _, *words = shlex.split(line)
    command = _command(words)
    assert command.make_context(name, words).params  # which refuses what it does not know


def test_the_file_has_the_commands_of_a_review() -> None:
    lines = [line.split("$")[0].split('"')[0].strip() for _, line in COMMANDS]
    wanted = {"kodoctl lint", "kodoctl plan", "kodoctl review post", "kodoctl review approved --env", "kodoctl apply"}
    assert wanted <= set(lines)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_known_keywords_a_stage_and_rules(name: str) -> None:
    assert JOBS[name].keys() <= KEYS
    assert JOBS[name]["stage"] in DOCUMENT["stages"]
    assert JOBS[name]["rules"]


@pytest.mark.parametrize("name", JOBS)
def test_no_text_of_a_merge_request_becomes_part_of_a_script(name: str) -> None:
    script = "\n".join(JOBS[name]["script"])
    assert not FREE_TEXT.search(script)
    assert "eval" not in script
    unquoted = re.sub(r'"[^"]*"', "", script)
    assert set(re.findall(r"\$(\w+)", unquoted)) <= {"TOPOLOGIES"}  # several paths, of this file


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"CI_PIPELINE_SOURCE": "merge_request_event"}, {"lint", "plan"}),
        ({"CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "9"}, {"lint"}),
        ({"CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "mallorys"}, {"lint"}),
        ({"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"}, {"apply"}),
        ({"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "mallorys"}, set()),
        ({"CI_PIPELINE_SOURCE": "web", "CI_COMMIT_BRANCH": "main"}, set()),
        ({"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main"}, {"drift"}),
    ],
)
def test_each_pipeline_has_its_jobs(variables: dict[str, str], names: set[str]) -> None:
    own = {"CI_DEFAULT_BRANCH": "main", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "7", "CI_MERGE_REQUEST_PROJECT_ID": "7"}
    known = own | {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"} | variables
    assert {name for name, job in JOBS.items() if holds(job["rules"], known)} == names
    assert holds(DOCUMENT["workflow"]["rules"], known) == bool(names)


def test_jobs_that_speak_to_the_cluster_have_an_environment_of_their_own_and_an_address() -> None:
    for name, job in JOBS.items():
        speaks = name != "lint"
        assert ("environment" in job) == speaks
        assert ("${KODOCTL_ADMIN_URL:?" in "\n".join(job["script"])) == speaks
    assert JOBS["apply"]["environment"]["name"] != JOBS["plan"]["environment"]["name"]
    assert {JOBS[name]["environment"].get("action") for name in ("plan", "drift")} == {"prepare"}
    assert JOBS["apply"]["resource_group"]


def test_the_kept_artifact_is_the_plan_alone_and_its_report_is_none_of_it() -> None:
    artifacts = JOBS["plan"]["artifacts"]
    assert (len(artifacts["paths"]), artifacts["when"]) == (1, "always")
    assert artifacts["reports"]["codequality"] not in artifacts["paths"]


def test_the_file_is_named_by_the_page_that_explains_it() -> None:
    page = (PIPELINE_FILE.parents[2] / "docs/how-to/merge-requests.md").read_text(encoding="utf-8")
    assert PIPELINE_FILE.name in page

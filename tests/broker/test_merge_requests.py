"""The shipped pipeline of GitLab from a merge request to an apply, on a real broker: its own YAML is run, GitLab is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.workspace import Workspace
from tests.forge.gitlab_ci import GitLabRunner
from tests.forge.gitlab_stand_in import GitLabStandIn
from tests.forge.repository import BARE, TopologyRepository
from tests.forge.workflows import Done

pytestmark = pytest.mark.broker


class GitLabProject(TopologyRepository):
    """A repository with topologies, its GitLab, and the broker they are for."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        super().__init__(workspace, folder)
        self.forge, broker = GitLabStandIn(), workspace.broker
        variables = {"KODOCTL_ADMIN_URL": broker.admin_url, "KODOCTL_BROKER_URL": broker.broker_url}
        token = {"GITLAB_TOKEN": self.forge.token_for("api")}
        secrets = {f"kodoctl-{one}": {**token, "KODOCTL_TOKEN": f"{one}-CANARY"} for one in ("plan", "apply")}
        self.runner = GitLabRunner(self.forge, self.origin, self.runner_folder, variables, secrets)

    def push(self, pull: dict[str, Any], topics: str, **files: str) -> None:
        """A commit on the merge request's branch."""
        branch = pull["source_branch"]
        self.git("checkout", "-q", "-B", branch, branch if pull["sha"] else "main")
        self.forge.push(pull["iid"], self.commit(topics, files), "anna")
        self.git("checkout", "-q", "main")

    def checks(self, pull: dict[str, Any], source_project: str = "7") -> dict[str, Done]:
        """The merge request's pipeline, of its branch alone, as GitLab's free tier has them."""
        own = {"CI_MERGE_REQUEST_IID": str(pull["iid"]), "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
        own |= {"CI_MERGE_REQUEST_PROJECT_ID": "7", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": source_project}
        ref, passed = f"refs/merge-requests/{pull['iid']}/head", () if source_project != "7" else ("lint",)
        return self.runner.run("merge_request_event", pull["sha"], ref, passed, **own)

    def merge(self, pull: dict[str, Any]) -> str:
        self.git("merge", "-q", "--no-ff", "-m", "merge", pull["source_branch"])
        merged = self.git("rev-parse", "main")
        self.forge.merge(pull["iid"], merged)
        return merged

    def apply(self, commit: str) -> Done:
        """The pipeline of the push that a merge is."""
        return self.runner.run("push", commit, CI_COMMIT_BRANCH="main")["apply"]

    def drift(self) -> Done:
        return self.runner.run("schedule", self.git("rev-parse", "main"), CI_COMMIT_BRANCH="main")["drift"]

    def shown(self) -> str:
        """The merge request's one note."""
        [comment] = self.forge.comments[1]
        text: str = comment["body"]
        return text


@pytest.fixture
def gitlab_project(workspace: Workspace, tmp_path: Path) -> Iterator[GitLabProject]:
    found = GitLabProject(workspace, tmp_path)
    yield found
    found.forge.close()


def test_from_a_merge_request_over_its_one_note_to_the_apply_of_what_was_approved(
    gitlab_project: GitLabProject,
) -> None:
    project = gitlab_project
    pull = project.forge.pull("")
    project.push(pull, f"J: {BARE}\n  K: {BARE}")
    fork = project.checks(pull, source_project="9")
    assert list(fork) == ["lint"]
    assert fork["lint"].code == 0, fork["lint"]
    assert project.forge.comments == {}
    jobs = project.checks(pull)
    assert jobs["plan"].code == 0, jobs["plan"]
    first = project.shown()
    assert "K" in first
    assert f"`{pull['sha'][:8]}`" in first

    # a second push, with a file that could be taken for the plan
    project.push(pull, f"L: {BARE}\n  J: {BARE}", **{"kodoctl-plan.json": "{}", "gl-code-quality-report.json": "[1]"})
    jobs = project.checks(pull)
    assert jobs["plan"].code == 0, jobs["plan"]
    assert project.shown() != first
    assert "Updated: https://forge.test/acme/topologies/-/merge_requests/1#note_" in jobs["plan"].out
    assert all(row["check_name"].startswith("K") for row in project.runner.reports["plan"])
    assert project.workspace.topics() == {"J": 1}

    commit = project.merge(pull)
    unapproved = project.apply(commit)
    assert (unapproved.code, "nobody else of the repository" in " ".join(unapproved.out.split())) == (4, True), (
        unapproved
    )
    project.forge.approve(1)
    done = project.apply(commit)
    assert done.code == 0, done
    assert project.workspace.topics() == {"J": 1, "L": 1}

    project.workspace.admin("POST", f"{project.workspace.path('L')}/messageTTL", messageTTL="60")
    drifted = project.drift()
    assert drifted.code == 3, drifted
    assert not [one for one in (*jobs.values(), unapproved, done, drifted) if "CANARY" in one.out]


@pytest.mark.full
def test_a_refused_plan_fails_the_pipeline_is_shown_and_is_never_applied(gitlab_project: GitLabProject) -> None:
    project = gitlab_project
    project.workspace.publish("J", 3)
    pull = project.forge.pull("")
    project.push(pull, f"K: {BARE}")
    plan = project.checks(pull)["plan"]
    assert plan.code == 4, plan
    assert "⛔ refused" in project.shown()
    assert project.runner.reports["plan"][0]["severity"] == "critical"
    project.forge.approve(1)
    refused = project.apply(project.merge(pull))
    assert (refused.code, "K536" in refused.out) == (4, True), refused
    assert project.workspace.topics() == {"J": 1}


@pytest.mark.full
def test_a_branch_behind_its_target_is_planned_as_it_will_be_merged_and_one_in_conflict_is_not(
    gitlab_project: GitLabProject,
) -> None:
    project = gitlab_project
    pull = project.forge.pull("")
    project.push(pull, f"J: {BARE}\n  K: {BARE}")
    project.commit(f"J: {BARE}", {"README.md": "of the target"})
    plan = project.checks(pull)["plan"]
    assert plan.code == 0, plan
    assert "K" in project.shown()
    project.commit(f"J: {BARE}\n  M: {BARE}")  # the same line
    conflict = project.checks(pull)["plan"]
    assert conflict.code == 1, conflict
    assert "could not be planned" in project.shown()
    assert project.workspace.topics() == {"J": 1}

"""The shipped workflows from a pull request to an apply, on a real broker: their own YAML is run, the forge is a stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.workspace import Workspace
from tests.forge.repository import BARE, TopologyRepository
from tests.forge.stand_in import StandIn
from tests.forge.workflows import JobRun, Runner, zipped

pytestmark = pytest.mark.broker

HOSTILE = 'import os\nopen(os.environ["RUNNER_TEMP"] + "/taken", "w").write(str(os.environ))\n'


class Project(TopologyRepository):
    """A repository with topologies, its forge, and the broker they are for."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        super().__init__(workspace, folder)
        self.forge = StandIn()
        secrets = {"kodoctl-plan": {"KODOCTL_TOKEN": "plan-canary"}, "kodoctl-apply": {"KODOCTL_TOKEN": "apply-canary"}}
        self.runner = Runner(self.forge, self.origin, self.runner_folder, secrets)

    def push(self, pull: dict[str, Any], topics: str, **files: str) -> None:
        """A commit on the pull request's branch, and what the forge makes of it: its head, and its merge with main."""
        number = pull["number"]
        self.git("checkout", "-q", "-B", f"change-{number}", f"change-{number}" if pull["head"]["sha"] else "main")
        self.forge.push(
            number, self.commit(topics, {name.replace("_", "."): text for name, text in files.items()}), "anna"
        )
        self.git("checkout", "-q", "--detach", "main")
        self.git("merge", "-q", "--no-ff", "-m", "merge", f"change-{number}")
        self.git("update-ref", f"refs/pull/{number}/merge", "HEAD")
        self.git("checkout", "-q", "main")

    def checks(self, pull: dict[str, Any], repository: str = "", *, lint: bool = False) -> dict[str, JobRun]:
        """The plan workflow, as the pull request's events call it; its first job where that is what a test is about."""
        head = {**pull["head"], "repo": {"full_name": repository or self.forge.repository}}
        asked = {**pull, "head": head, "base": {"ref": "main"}}
        event = {"pull_request": asked, "repository": {"default_branch": "main"}}
        sha, passed = self.git("rev-parse", "main"), () if lint else ("lint",)
        return self.runner.call("kodoctl-plan.yml", self._inputs(), "pull_request_target", event, sha, passed)

    def merge(self, pull: dict[str, Any]) -> str:
        self.git("merge", "-q", "--ff-only", f"refs/pull/{pull['number']}/merge")
        merged = self.git("rev-parse", "main")
        self.forge.merge(pull["number"], merged)
        return merged

    def apply(self, commit: str) -> JobRun:
        """The apply workflow, as the push of a merge calls it."""
        return self.runner.call("kodoctl-apply.yml", self._inputs(), "push", {}, commit)["apply"]

    def drift(self) -> JobRun:
        return self.runner.call("kodoctl-drift.yml", self._inputs(), "schedule", {}, self.git("rev-parse", "main"))[
            "drift"
        ]

    def shown(self, number: int) -> str:
        """The pull request's one comment."""
        [comment] = self.forge.comments[number]
        text: str = comment["body"]
        return text

    def _inputs(self) -> dict[str, str]:
        broker = self.workspace.broker
        return {"environment": "base", "admin-url": broker.admin_url, "broker-url": broker.broker_url}


@pytest.fixture
def project(workspace: Workspace, tmp_path: Path) -> Iterator[Project]:
    found = Project(workspace, tmp_path)
    yield found
    found.forge.close()


def test_from_a_pull_request_over_its_one_comment_to_the_apply_of_what_was_approved(project: Project) -> None:
    pull = project.forge.pull("")
    project.push(pull, f"J: {BARE}\n  K: {BARE}")
    fork = project.checks(pull, repository="mallory/topologies", lint=True)
    assert fork["lint"].ok, fork["lint"]
    assert "K" in fork["lint"]["Expand"].out
    assert not fork["plan"].ran
    assert project.forge.comments == {}
    assert not [
        line for line in project.runner.seen if "canary" in line or "KODOCTL_" in line or "GITHUB_TOKEN" in line
    ]
    jobs = project.checks(pull)
    assert jobs["plan"].ok, jobs["plan"]
    first = project.shown(1)
    assert "K" in first
    assert f"`{pull['head']['sha'][:8]}`" in first

    # a second push: names that Python, kodoctl and the workflow could take for their own
    project.push(pull, f"L: {BARE}\n  J: {BARE}", pip_py=HOSTILE, venv_py=HOSTILE, kodoctl_py=HOSTILE, plan_json="{}")
    jobs = project.checks(pull)
    assert jobs["plan"].ok, jobs["plan"]
    assert project.shown(1) != first
    assert "Updated: " in jobs["plan"]["Show it in the pull request"].out
    assert not list(project.runner.folder.glob("temp-*/taken"))
    assert project.workspace.topics() == {"J": 1}

    project.forge.approve(1)
    done = project.apply(project.merge(pull))
    assert done.ok, done
    assert project.workspace.topics() == {"J": 1, "L": 1}

    project.workspace.admin("POST", f"{project.workspace.path('L')}/messageTTL", messageTTL="60")
    drifted = project.drift()
    assert drifted["Compare"].code == 3, drifted
    told = [line.split(" ")[0] for line in project.runner.seen if "canary" in line]
    assert set(told) == {"plan/Plan", "apply/Apply", "drift/Compare"}


def test_what_was_not_approved_is_not_applied_however_it_came_about(project: Project) -> None:
    pull = project.forge.pull("")
    project.push(pull, f"J: {BARE}\n  K: {BARE}")
    assert project.checks(pull)["plan"].ok
    project.forge.approve(1)
    commit = project.merge(pull)

    # somebody's hand after the review: what the approved plan does not have is refused, all of it
    project.workspace.admin("POST", f"{project.workspace.path('J')}/messageTTL", messageTTL="60")
    refused = project.apply(commit)
    assert refused["Apply"].code == 4, refused
    assert "K544" in refused["Apply"].out
    assert "ns/J: update" in " ".join(refused["Apply"].out.split())
    assert project.workspace.topics() == {"J": 1}

    # a forged artifact, which approves that, too: what nobody was shown counts for nothing
    more = project.origin.parent / "more.json"
    project.workspace.plan(str(project.origin / "topologies"), "--out", str(more))
    [row] = project.forge.artifacts
    found, archive = project.forge.artifacts[row]
    project.forge.artifacts[row] = (found, zipped({"plan.json": more.read_bytes()}))
    forged = project.apply(commit)
    assert "another plan than the one that was shown" in " ".join(forged["Fetch what was approved"].out.split()), forged
    assert [step.code for step in forged.steps or ()][-1] == 4
    assert project.workspace.topics() == {"J": 1}
    project.forge.artifacts[row] = (found, archive)
    project.workspace.admin("DELETE", f"{project.workspace.path('J')}/messageTTL")

    # a push that no review saw
    direct = project.commit(f"J: {BARE}\n  M: {BARE}")
    unseen = project.apply(direct)
    assert "came with no pull request" in " ".join(unseen["Fetch what was approved"].out.split())
    assert project.workspace.topics() == {"J": 1}


@pytest.mark.full
def test_a_refused_plan_fails_the_check_is_shown_and_is_never_applied(project: Project) -> None:
    project.workspace.publish("J", 3)
    pull = project.forge.pull("")
    project.push(pull, f"K: {BARE}")
    plan = project.checks(pull)["plan"]
    assert plan["Plan"].code == 4, plan
    assert "::error" in plan["Plan"].out
    assert "⛔ refused" in project.shown(1)
    project.forge.approve(1)
    refused = project.apply(project.merge(pull))
    assert "K536" in refused["Fetch what was approved"].out
    assert project.workspace.topics() == {"J": 1}
    assert json.dumps(project.forge.comments).count("kodoctl:plan") == 1

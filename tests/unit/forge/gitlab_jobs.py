"""Jobs of GitLab that show a plan and fetch the approved one: what tests of merge requests do, through the commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kodoctl.plan import plan_file
from kodoctl.plan.plan import Plan
from tests.brokers.workspace import Run, run_main
from tests.forge.gitlab_stand_in import GitLabStandIn
from tests.forge.workflows import zipped
from tests.unit.forge.jobs import HEAD, MERGED


@dataclass
class GitLabJob:
    """A job's surroundings: the stand-in, a folder, and a token."""

    forge: GitLabStandIn
    folder: Path
    patch: pytest.MonkeyPatch

    def begin(self, source: str, ref: str, scope: str, **variables: str) -> int:
        """The next commands are a job of its own."""
        job = self.forge.begin_job(source, ref)
        values = {"CI_API_V4_URL": self.forge.url, "CI_PROJECT_ID": "7", "CI_PROJECT_PATH": self.forge.path}
        values |= {"CI_PROJECT_URL": "https://forge.test/acme/topologies", "CI_JOB_ID": str(job), "GITLAB_CI": "true"}
        for name in ("CI_MERGE_REQUEST_IID", "CI_COMMIT_BRANCH", "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"):
            self.patch.delenv(name, raising=False)
        for name, value in {**values, "GITLAB_TOKEN": self.forge.token_for(scope), **variables}.items():
            self.patch.setenv(name, value)
        return job

    def shows(self, plan: Plan | None, source: str = "merge_request_event", kept: Plan | None = None) -> Run:
        """A job that plans a merge request."""
        variables = {"CI_MERGE_REQUEST_IID": "1", "CI_COMMIT_SHA": HEAD}
        job = self.begin(source, "refs/merge-requests/1/head", "api", **variables)
        if plan is not None:
            (self.folder / "plan.json").write_text(plan_file.dumps(plan), encoding="utf-8")
            self.forge.artifacts[job] = zipped({"plan.json": plan_file.dumps(kept or plan).encode()})
        return run_main("review", "post", "plan.json")

    def asks(self, *options: str, commit: str = MERGED) -> Run:
        """The job after the merge."""
        self.begin("push", "main", "read_api", CI_COMMIT_BRANCH="main", CI_COMMIT_SHA=commit)
        return run_main("review", "approved", "--out", "approved.json", *options)

    def refused(self, *options: str) -> str:
        """Why no plan was approved: exit 4, and no file."""
        found = self.asks(*options)
        assert found.code == 4, found.text
        assert not (self.folder / "approved.json").exists()
        return " ".join(found.err.split())

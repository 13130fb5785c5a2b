"""Jobs of a forge that show a plan and fetch the approved one: what tests of reviews do, through the commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kodoctl.forge import review as rules
from kodoctl.forge.github_records import TRUSTED_EVENT
from kodoctl.plan import plan_file
from kodoctl.plan.plan import Plan
from tests.brokers.workspace import Run, run_main
from tests.forge.stand_in import WORKFLOW, StandIn
from tests.forge.workflows import zipped
from tests.samples.inventories import empty, planned, topology, wanted

HEAD, MERGED = "a" * 40, "b" * 40
SMALL = planned(wanted(topology("{J: {}}")), empty())


@dataclass
class Job:
    """A job's surroundings: the stand-in, a folder, and a token."""

    forge: StandIn
    folder: Path
    patch: pytest.MonkeyPatch

    def begin(self, event: str = TRUSTED_EVENT, **permissions: str) -> int:
        """The next commands are a run of its own."""
        run = self.forge.begin_run(event, self.forge.pulls[0]["head"]["ref"])
        held = {name.replace("_", "-"): right for name, right in permissions.items()}
        values = {"API_URL": self.forge.url, "SERVER_URL": "https://forge.test", "REPOSITORY": self.forge.repository}
        values |= {"REF": "refs/heads/main", "WORKFLOW_REF": f"{self.forge.repository}/{WORKFLOW}@refs/heads/main"}
        for name, value in {**values, "RUN_ID": str(run), "TOKEN": self.forge.token_for(held)}.items():
            self.patch.setenv(f"GITHUB_{name}", value)
        return run

    def shows(self, plan: Plan | None, event: str = TRUSTED_EVENT, kept: Plan | None = None) -> Run:
        """A run that plans a pull request."""
        run = self.begin(event, pull_requests="write")
        if plan is not None:
            (self.folder / "plan.json").write_text(plan_file.dumps(plan), encoding="utf-8")
            text = plan_file.dumps(kept or plan).encode()
            self.forge.keep(run, rules.artifact_name("base", HEAD), zipped({"plan.json": text}))
        return run_main("review", "post", "plan.json", "--pull", "1", "--commit", HEAD)

    def asks(self, *options: str) -> Run:
        """The job after the merge."""
        self.begin("push", contents="read", pull_requests="read", actions="read")
        return run_main("review", "approved", "--commit", MERGED, "--out", "approved.json", *options)

    def refused(self, *options: str) -> str:
        """Why no plan was approved: exit 4, and no file."""
        found = self.asks(*options)
        assert found.code == 4, found.text
        assert not (self.folder / "approved.json").exists()
        return " ".join(found.err.split())

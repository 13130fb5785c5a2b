"""Runs the shipped pipeline of GitLab: its jobs, rules, variables, artifacts and scripts are the YAML's own, in real shells.

What GitLab does by itself is done here in its place: checkout, variables of a job and of its environment, artifacts.
Rules beyond what the file uses are an error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.forge.gitlab_stand_in import GitLabStandIn
from tests.forge.workflows import ROOT, Done, zipped

PIPELINE_FILE = ROOT / "deploy" / "gitlab" / "topologies.gitlab-ci.yml"
_KEYWORDS = {"workflow", "stages", "variables", "default"}
_EQUAL = re.compile(r'\$(\w+) == (?:\$(\w+)|"([^"]*)")')
Json = dict[str, Any]


def pipeline_file() -> Json:
    """The shipped file."""
    found: Json = yaml.safe_load(PIPELINE_FILE.read_text(encoding="utf-8"))
    return found


def jobs_of(document: Json) -> dict[str, Json]:
    """Jobs by name, in the order of their stages."""
    jobs = {name: job for name, job in document.items() if name not in _KEYWORDS}
    return dict(sorted(jobs.items(), key=lambda item: document["stages"].index(item[1]["stage"])))


def holds(rules: list[Json], variables: Mapping[str, str]) -> bool:
    """Whether one of the rules has a condition that is true. `changes` counts as true."""
    return any(all(_equal(part, variables) for part in rule["if"].split(" && ")) for rule in rules)


def _equal(text: str, variables: Mapping[str, str]) -> bool:
    found = _EQUAL.fullmatch(text)
    assert found, f"not understood: {text}"
    left, other, constant = found.groups()
    return variables.get(left, "") == (variables.get(other, "") if other else constant)


@dataclass
class GitLabRunner:
    """Runners of GitLab. `origin`: the repository; `secrets`: variables of each environment."""

    forge: GitLabStandIn
    origin: Path
    folder: Path
    variables: Mapping[str, str]
    secrets: Mapping[str, Mapping[str, str]]
    reports: dict[str, list[Json]] = field(default_factory=dict)
    """Code Quality report of the last run of each job."""

    def run(
        self, source: str, sha: str, ref: str = "main", passed: Collection[str] = (), **own: str
    ) -> dict[str, Done]:
        """One pipeline. Jobs that follow one that failed are not run.

        Args:
            passed: jobs that are taken for done, because another pipeline of a test has run them.
            own: variables of this pipeline.
        """
        document = pipeline_file()
        predefined = self._predefined(source, sha) | own
        assert holds(document["workflow"]["rules"], predefined)
        done: dict[str, Done] = {}
        for name, job in jobs_of(document).items():
            if name in passed or not holds(job["rules"], predefined) or any(one.code for one in done.values()):
                continue
            done[name] = self._job(name, job, predefined, document["variables"], source, ref)
        return done

    def _predefined(self, source: str, sha: str) -> dict[str, str]:
        return {
            "CI": "true",
            "GITLAB_CI": "true",
            "CI_API_V4_URL": self.forge.url,
            "CI_PROJECT_ID": "7",
            "CI_PROJECT_PATH": self.forge.path,
            "CI_PROJECT_URL": "https://forge.test/acme/topologies",
            "CI_DEFAULT_BRANCH": "main",
            "CI_PIPELINE_SOURCE": source,
            "CI_COMMIT_SHA": sha,
        }

    def _job(
        self, name: str, job: Json, predefined: Mapping[str, str], given: Mapping[str, str], source: str, ref: str
    ) -> Done:
        number = self.forge.begin_job(source, ref)
        work, home = self.folder / f"work-{number}", self.folder / f"home-{number}"
        home.mkdir()
        self._checkout(predefined["CI_COMMIT_SHA"], work)
        secrets = self.secrets.get(job.get("environment", {}).get("name", ""), {})
        own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home), "TMPDIR": str(home)}
        python = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        environ = {**own, **python, **given, **self.variables, **secrets, **predefined, "CI_JOB_ID": str(number)}
        script = "\n".join(job["script"])
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], cwd=work, env=environ, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        self._keep(number, name, job, work, done.returncode)
        return Done(name, done.returncode, done.stdout + done.stderr)

    def _keep(self, number: int, name: str, job: Json, work: Path, code: int) -> None:
        artifacts = job.get("artifacts", {})
        if code and artifacts.get("when") != "always":
            return
        files = {path: (work / path).read_bytes() for path in artifacts.get("paths", ()) if (work / path).exists()}
        if files:
            self.forge.artifacts[number] = zipped(files)
        report = work / artifacts.get("reports", {}).get("codequality", "no report")
        if report.exists():
            self.reports[name] = json.loads(report.read_text(encoding="utf-8"))

    def _checkout(self, sha: str, work: Path) -> None:
        for command in (
            ["init", "-q", str(work)],
            ["-C", str(work), "remote", "add", "origin", str(self.origin)],
            ["-C", str(work), "fetch", "-q", "origin", "+refs/heads/*:refs/remotes/origin/*"],
            ["-C", str(work), "checkout", "-q", "--detach", sha],
        ):
            subprocess.run(["git", "-c", "init.defaultBranch=main", *command], check=True, capture_output=True)

"""Runs the shipped workflows: their jobs, conditions, environments and `run:` steps are the YAML's own, in real shells.

What a forge does by itself is done here in its place: checkout, artifacts, tokens with a job's permissions, secrets of a
deployment environment only for the job that names it. Expressions beyond what the workflows use are an error.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.forge.stand_in import WORKFLOW as CALLER
from tests.forge.stand_in import StandIn

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|&&|\|\||==|!=|[()]|[A-Za-z_][\w.-]*)")
Json = dict[str, Any]


def workflow(name: str) -> Json:
    """A workflow of this repository. YAML 1.1 reads its key `on` as a truth value."""
    found: Json = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    return {("on" if key is True else key): value for key, value in found.items()}


class Expression:
    """A forge's expression over `contexts`. `failed`: whether an earlier step did."""

    def __init__(self, text: str, contexts: Json, *, failed: bool = False) -> None:
        self._tokens = list(_TOKEN.findall(text))
        assert "".join(self._tokens) == re.sub(r"\s", "", text) or "'" in text, f"not understood: {text}"
        self._contexts, self._failed = contexts, failed

    def value(self) -> Any:
        found = self._either()
        assert not self._tokens, f"left over: {self._tokens}"
        return found

    def _either(self) -> Any:
        left = self._both()
        while self._next("||"):
            right = self._both()
            left = left or right
        return left

    def _both(self) -> Any:
        left = self._compared()
        while self._next("&&"):
            right = self._compared()
            left = left and right
        return left

    def _compared(self) -> Any:
        left = self._one()
        if self._next("=="):
            return left == self._one()
        return left != self._one() if self._next("!=") else left

    def _one(self) -> Any:
        if self._next("("):
            found = self._either()
            assert self._next(")")
            return found
        token = self._tokens.pop(0)
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if self._next("("):
            assert self._next(")")
            return {"always": True, "failure": self._failed, "success": not self._failed}[token]
        found = self._contexts
        for part in token.split("."):
            found = found.get(part, "") if isinstance(found, Mapping) else ""
        return found

    def _next(self, token: str) -> bool:
        if self._tokens[:1] != [token]:
            return False
        self._tokens.pop(0)
        return True


def filled(text: Any, contexts: Json) -> str:
    """A text with its `${{ … }}` put in."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(Expression(found[1], contexts).value()), str(text))


@dataclass
class Done:
    """What a step said."""

    name: str
    code: int
    out: str

    def __str__(self) -> str:
        return f"--- {self.name}: exit {self.code}\n{self.out}"


@dataclass
class JobRun:
    """What became of a job: None in place of steps that were skipped with it."""

    steps: list[Done] | None = None

    @property
    def ran(self) -> bool:
        return self.steps is not None

    @property
    def ok(self) -> bool:
        return self.steps is not None and all(step.code == 0 for step in self.steps)

    def __getitem__(self, name: str) -> Done:
        return next(step for step in self.steps or () if step.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) if self.steps else "skipped"


@dataclass
class Runner:
    """A forge's runners. `origin`: the repository; `secrets`: those of each deployment environment."""

    forge: StandIn
    origin: Path
    folder: Path
    secrets: Mapping[str, Mapping[str, str]]
    seen: list[str] = field(default_factory=list)
    """Everything that any step was given as environment, by `JOB/STEP NAME=value`."""

    def call(
        self, name: str, inputs: Json, event_name: str, event: Json, sha: str, passed: Collection[str] = ()
    ) -> dict[str, JobRun]:
        """One run of a reusable workflow. Jobs named in `passed` are taken for done: another run of a test has run them."""
        document = workflow(name)
        declared = document["on"]["workflow_call"]["inputs"]
        assert not inputs.keys() - declared.keys(), "an input that nobody declared"
        missing = [key for key, one in declared.items() if one.get("required") and key not in inputs]
        assert not missing, f"needed: {missing}"
        given = {key: inputs.get(key, one.get("default", "")) for key, one in declared.items()}
        run = self.forge.begin_run(event_name, event.get("pull_request", {}).get("head", {}).get("ref", "main"))
        github = {"event_name": event_name, "event": event, "repository": self.forge.repository, "sha": sha}
        jobs: dict[str, JobRun] = {}
        for key, job in document["jobs"].items():
            if key in passed:
                jobs[key] = JobRun([])
                continue
            contexts = {
                "inputs": given,
                "github": dict(github),
                "runner": {"temp": str(self.folder / f"temp-{run}-{key}")},
            }
            needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            wanted = all(jobs[one].ok for one in needed) and Expression(job.get("if", "always()"), contexts).value()
            jobs[key] = self._job(key, job, contexts, run, document.get("permissions")) if wanted else JobRun()
        return jobs

    def _job(self, key: str, job: Json, contexts: Json, run: int, everywhere: Json | None) -> JobRun:
        work, temp = self.folder / f"work-{run}-{key}", Path(contexts["runner"]["temp"])
        work.mkdir()
        temp.mkdir()
        deployment = filled(job["environment"], contexts) if "environment" in job else ""
        contexts["secrets"] = self.secrets.get(deployment, {})
        contexts["github"]["token"] = self.forge.token_for(job.get("permissions", everywhere))
        steps: list[Done] = []
        for step in job["steps"]:
            failed = any(one.code for one in steps)
            if not Expression(str(step.get("if", "success()")), contexts, failed=failed).value():
                continue
            name = step.get("name") or step["uses"]
            if "uses" in step:
                self._use(step["uses"].partition("@")[0], step.get("with", {}), contexts, work, run)
                steps.append(Done(name, 0, ""))
                continue
            environ = {**self._environ(contexts, run, temp), **self._own(job, contexts), **self._own(step, contexts)}
            self.seen += [f"{key}/{name} {variable}={value}" for variable, value in environ.items()]
            shell = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}[
                step.get("shell")
            ]
            done = subprocess.run(
                [*shell, "-c", filled(step["run"], contexts)], cwd=work, env=environ, capture_output=True, text=True,
                timeout=120, check=False,
            )  # fmt: skip
            steps.append(Done(name, done.returncode, done.stdout + done.stderr))
        return JobRun(steps)

    def _environ(self, contexts: Json, run: int, temp: Path) -> dict[str, str]:
        """What a forge gives to every step, and nothing of whoever runs the tests."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(temp),
            "CI": "true",
            "GITHUB_API_URL": self.forge.url,
            "GITHUB_SERVER_URL": "https://forge.test",
            "GITHUB_REPOSITORY": self.forge.repository,
            "GITHUB_WORKFLOW_REF": f"{self.forge.repository}/{CALLER}@refs/heads/main",
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_RUN_ID": str(run),
            "GITHUB_SHA": contexts["github"]["sha"],
            "GITHUB_STEP_SUMMARY": str(temp / "summary.md"),
            "RUNNER_TEMP": str(temp),
        }

    def _own(self, where: Json, contexts: Json) -> dict[str, str]:
        return {name: filled(value, contexts) for name, value in where.get("env", {}).items()}

    def _use(self, action: str, given: Json, contexts: Json, work: Path, run: int) -> None:
        values = {name: filled(value, contexts) for name, value in given.items()}
        match action:
            case "actions/checkout" if values.get("path") == ".kodoctl":
                (work / ".kodoctl").mkdir()
            case "actions/checkout":
                self._checkout(values.get("ref") or contexts["github"]["sha"], work)
            case "./.kodoctl/.github/actions/kodoctl":
                assert (
                    ROOT / ".github/actions/kodoctl/action.yml"
                ).is_file()  # installed already: `_environ` has its PATH
            case "actions/upload-artifact":
                file = Path(values["path"])
                if file.exists():
                    self.forge.keep(run, values["name"], zipped({file.name: file.read_bytes()}))
            case _:
                raise AssertionError(f"nobody knows {action}")

    def _checkout(self, ref: str, work: Path) -> None:
        for command in (
            ["init", "-q"],
            ["remote", "add", "origin", str(self.origin)],
            ["fetch", "-q", "origin", "+refs/heads/*:refs/remotes/origin/*", f"+{ref}:refs/kodoctl/asked"],
            ["checkout", "-q", "--detach", "refs/kodoctl/asked"],
        ):
            subprocess.run(
                ["git", "-c", "init.defaultBranch=main", *command], cwd=work, check=True, capture_output=True
            )


def zipped(files: Mapping[str, bytes]) -> bytes:
    """An artifact as a forge keeps it."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return sink.getvalue()


def steps_of(document: Json) -> Iterator[tuple[str, Json]]:
    """(job, step) of a workflow or a composite action."""
    for key, job in document.get("jobs", {"action": document.get("runs", {})}).items():
        for step in job.get("steps", ()):
            yield key, step

"""Rules of the workflows and the action that are shipped: what a review of each would look for first."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from kodoctl.pulsar.connection.connection import Flags, connect
from kodoctl.pulsar.connection.credentials import OAUTH2_KEYS, TLS_KEYS
from tests.forge.workflows import ROOT, WORKFLOWS, Expression, filled, steps_of, workflow

SHIPPED = ("kodoctl-plan.yml", "kodoctl-apply.yml", "kodoctl-drift.yml", "kodoctl-scan.yml", "topologies.yml")
ACTION = yaml.safe_load((ROOT / ".github/actions/kodoctl/action.yml").read_text(encoding="utf-8"))
EVERY = sorted(path.name for path in WORKFLOWS.glob("*.yml"))
RAW = re.compile(r"\$\{\{")


@pytest.mark.parametrize("name", EVERY)
def test_rights_are_given_job_by_job_and_actions_by_commit(name: str) -> None:
    document = workflow(name)
    assert document["permissions"] == {}
    for job in document["jobs"].values():
        assert "permissions" in job
    for _, step in steps_of(document):
        used = step.get("uses", "./")
        assert used.startswith("./") or re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", used), used


@pytest.mark.parametrize("name", SHIPPED)
def test_no_text_of_a_pull_request_becomes_part_of_a_script(name: str) -> None:
    for _, step in steps_of(workflow(name)):
        assert not RAW.search(step.get("run", "")), "an expression in a script: pass it by env"


@pytest.mark.parametrize("name", SHIPPED)
def test_a_checkout_leaves_no_token_behind(name: str) -> None:
    for _, step in steps_of(workflow(name)):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_the_action_never_imports_from_the_folder_it_works_in() -> None:
    """`python -m pip` would take a pip.py of the pull request."""
    [install] = [step["run"] for _, step in steps_of(ACTION) if "run" in step]
    pythons = re.findall(r"python\"?( -\w+)", install)
    assert pythons == [" -I"] * 4


def test_whatever_is_installed_is_locked_with_hashes() -> None:
    """Also what kodoctl is built with: in isolation pip would fetch the newest of it. A lock is complete: where pip looks for
    dependencies itself it meets a newer release of one that is asked for with an extra, and refuses it for want of a hash.
    """
    scripts = [step["run"] for name in EVERY for _, step in steps_of(workflow(name)) if "run" in step]
    scripts += [step["run"] for _, step in steps_of(ACTION) if "run" in step]
    lines = [line for script in scripts for line in script.splitlines() if re.search(r"\b(install|wheel) --", line)]
    lines = [line for line in lines if '"$@"' not in line]
    assert len(lines) == 10
    for line in lines:
        locked = re.search(r"--require-hashes --no-deps -r \S*requirements/(\w+)\.txt", line)
        assert locked or "--no-deps --no-index" in line or "--no-deps --no-build-isolation" in line, line
        assert not locked or (ROOT / f"requirements/{locked[1]}.txt").is_file()
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    built_with = (ROOT / "requirements/build.txt").read_text(encoding="utf-8")
    assert all(re.search(rf"^{re.split(r'[<>=]', one)[0]}==", built_with, re.MULTILINE) for one in needed)


@pytest.mark.parametrize("job", ["pulsar-4-0", "cluster", "chaos", "faults", "hostile"])
def test_fault_kill_and_contract_tests_run_each_night_with_the_native_border_and_without(job: str) -> None:
    found = workflow("nightly.yml")["jobs"][job]
    assert found["strategy"] == {"fail-fast": False, "matrix": {"native": ["true", "false"]}}
    assert found["env"] == {"KODO_CONSUMER_NATIVE": "${{ matrix.native }}"}


def test_the_simulation_runs_each_night_with_the_compiled_core_and_interpreted() -> None:
    found = workflow("nightly.yml")["jobs"]["simulation"]
    assert found["strategy"] == {"fail-fast": False, "matrix": {"core": ["true", "false"]}}
    assert found["env"] == {"KODO_FAST_CORE": "${{ matrix.core }}"}


def test_each_part_of_the_full_run_runs_each_night_and_each_test_in_one() -> None:
    """A test that is marked `full` runs in no other way: the gate leaves it out."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^FULL_(\w+) := (.*)$", makefile, re.MULTILINE))
    nightly = workflow("nightly.yml")["jobs"]
    assert re.findall(r"^PARTS := (.*)$", makefile, re.MULTILINE) == [" ".join(parts)]
    assert nightly["full"]["strategy"]["matrix"]["part"] == [*parts]
    assert "make coverage" in [step.get("run") for step in nightly["coverage"]["steps"]]
    places = [ROOT / place for part in parts.values() for place in part.split()]
    by_check = ROOT / "tests" / "architecture"
    files = [*ROOT.glob("tests/**/test_*.py")]
    assert len(files) > 300
    assert [one.name for one in files if not any(one.is_relative_to(place) for place in (*places, by_check))] == []


def test_each_long_target_runs_each_night() -> None:
    steps = " ".join(step.get("run", "") for _, step in steps_of(workflow("nightly.yml")))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    long = {
        name
        for name in ("faults", "chaos", "hostile", "simulate", "test-cluster", "mutants")
        if f"\n{name}:" in makefile
    }
    assert len(long) >= 5
    assert long <= set(re.findall(r"make ([a-z-]+)", steps))


def test_a_lock_names_no_index() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"https?://|--index-url|--extra-index-url", file.read_text(encoding="utf-8")), file.name


def test_no_name_in_a_drift_ends_the_code_that_its_summary_is(tmp_path: Path) -> None:
    """A subscription's name may be any text, a fence among them; what would follow it is a headline, a picture, a link."""
    [step] = [step for _, step in steps_of(workflow("kodoctl-drift.yml")) if step.get("name") == "Show"]
    (tmp_path / "drift.txt").write_text("Unmanaged:\n  ``````\n# No drift.\n\n![](https://somewhere.example)\n")
    place = {
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "PATH": os.environ["PATH"],
    }
    subprocess.run(["bash", "-e", "-c", step["run"]], env=place, check=True)
    shown = (tmp_path / "summary.md").read_text().splitlines()
    assert len(shown) == 5
    assert all(line.startswith("    ") for line in shown), "an indented block has no end to be written"


def test_a_called_workflow_gets_only_the_secrets_that_it_names() -> None:
    """`inherit` would give all that a repository has to a workflow of another one."""
    for name, job in workflow("topologies.yml")["jobs"].items():
        named = workflow(job["uses"].rpartition("/")[2])["on"]["workflow_call"].get("secrets", {})
        assert job.get("secrets", {}) == {key: f"${{{{ secrets.{key} }}}}" for key in named}, name
        used = set(re.findall(r"secrets\.(\w+)", str(workflow(job["uses"].rpartition("/")[2])["jobs"])))
        assert used == set(named), name


def test_every_input_that_the_example_gives_is_one_and_all_that_are_needed_are_given() -> None:
    for job in workflow("topologies.yml")["jobs"].values():
        declared = workflow(job["uses"].rpartition("/")[2])["on"]["workflow_call"]["inputs"]
        given = job.get("with", {})
        assert given.keys() <= declared.keys()
        assert {key for key, one in declared.items() if one.get("required")} <= given.keys()


def test_the_example_gives_a_called_workflow_the_rights_that_its_jobs_want() -> None:
    for job in workflow("topologies.yml")["jobs"].values():
        for inner in workflow(job["uses"].rpartition("/")[2])["jobs"].values():
            assert inner["permissions"].items() <= job["permissions"].items()


def test_secrets_are_only_in_jobs_of_a_deployment_environment() -> None:
    for name in SHIPPED[:-1]:
        for key, job in workflow(name)["jobs"].items():
            if "secrets." in str(job):
                assert "environment" in job, f"{name}: {key}"


@pytest.mark.parametrize(
    ("head", "base", "speaks"), [("o/r", "main", True), ("mallory/r", "main", False), ("o/r", "mallorys", False)]
)
def test_a_plan_is_made_of_branches_of_the_repository_into_the_default_branch(
    head: str, base: str, speaks: bool
) -> None:
    pull = {"head": {"repo": {"full_name": head}}, "base": {"ref": base}}
    event = {"pull_request": pull, "repository": {"default_branch": "main"}}
    github = {"event_name": "pull_request_target", "repository": "o/r", "event": event}
    assert Expression(workflow("kodoctl-plan.yml")["jobs"]["plan"]["if"], {"github": github}).value() == speaks


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("github.event_name == 'push'", True),
        ("github.event_name != 'push' || github.a.b == 'c'", True),
        ("inputs.none || 'other'", "other"),
        ("inputs.yes && '--flag' || ''", "--flag"),
        ("(inputs.none || inputs.yes) && always()", True),
        ("failure()", False),
    ],
)
def test_the_runner_of_tests_reads_expressions_as_a_forge_does(text: str, value: object) -> None:
    contexts = {"github": {"event_name": "push", "a": {"b": "c"}}, "inputs": {"yes": True}}
    assert Expression(text, contexts).value() == value
    assert filled(f"a ${{{{ {text} }}}}", contexts) == f"a {value}"


def test_every_variable_that_a_workflow_gives_to_kodoctl_is_one_it_reads() -> None:
    """Those that are not set are empty there: that is as good as none."""
    keys = ("admin_url", "broker_url", "token", "oauth2_client_secret", *TLS_KEYS, *OAUTH2_KEYS)
    known = {f"KODOCTL_{key.upper()}" for key in keys}
    given = {name for file in SHIPPED for _, step in steps_of(workflow(file)) for name in step.get("env", {})}
    assert given - {"GITHUB_TOKEN"} <= known
    nothing = dict.fromkeys(known, "") | {"KODOCTL_ADMIN_URL": "http://127.0.0.1:1", "KODOCTL_CONFIG": "/nowhere"}
    found = connect(Flags(), nothing, ROOT)
    assert (found.token, found.tls, found.oauth2) == (None, None, None)

"""Start-up: a command imports what it works with when it runs, so that help, usage errors and completion import none of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from kodo_consumer.cli.main import app as consumer_app

from kodoctl import __version__
from kodoctl.cli.application import app
from kodoctl.cli.lazy_commands import LazyCommand
from tests.source_roots import PATHS

ROOT = Path(__file__).parents[3]
APPLICATIONS = {"kodoctl": app, "kodo-consumer": consumer_app}
MAINS = {"kodoctl": "kodoctl.cli.main", "kodo-consumer": "kodo_consumer.cli.main"}
CLUSTER = {"pulsar", "fastavro", "requests", "urllib3", "jwt", "sqlalchemy", "prometheus_client", "psutil"}
VIEWS = {"networkx", "jinja2", "sqlglot", "ruamel", "tomlkit", "starlette", "uvicorn"}
SPARK = {"pyspark", "pyarrow", "pandas", "deltalake", "duckdb", "numpy"}
ONLY_FOR_SOME_FILES = (
    "kodoctl.expressions", "kodoctl.topology.compat", "kodoctl.topology.json_paths", "kodoctl.topology.json_schema",
    "kodoctl.topology.lint.route_checks", "kodoctl.topology.payload_definition",
    "kodoctl.topology.payload_validator", "kodoctl.topology.yaml.comments",
    "kodoctl.topology.yaml.error_hints", "kodoctl.topology.yaml.schema_hints",
    "kodoctl.topology.yaml.validation_errors", "kodoctl.render.finding_excerpts",
)  # fmt: skip
MODELS = {"pydantic", "pydantic_core", "yaml", "jsonschema", "jsonschema_rs"}


def imported(application: str, *words: str, **variables: str) -> set[str]:
    """Names of all modules that a command line of its own process has imported at its end."""
    program = (
        "import atexit, sys\n"
        f"sys.argv[0] = {application!r}\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        f"from {MAINS[application]} import main\n"
        "main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={"PYTHONPATH": PATHS, "PATH": "", **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, bool(ran.stdout)) == (0, True), ran.stderr
    return set(ran.stderr.splitlines()[-1].split())


def commands_of(names: set[str]) -> set[str]:
    """Those of the modules that belong to the commands of one command line."""
    lists = {"kodoctl.cli.main", "kodoctl.cli.application", "kodoctl.cli.lazy_commands", "kodo_consumer.cli.main"}
    lists |= {
        "kodoctl.cli.common.console",
        "kodoctl.cli.common.extension_points",
        "kodoctl.cli.common.pydantic_plugins",
        "kodoctl.cli.completion",
    }  # main itself works with them
    packages = {one.rpartition(".")[0] for one in names}  # without code
    return {one for one in names if one.startswith(("kodoctl.cli.", "kodo_consumer.cli."))} - lists - packages


@pytest.mark.parametrize(
    ("application", "words"),
    [
        ("kodoctl", ["--help"]),
        ("kodoctl", ["--version"]),
        ("kodoctl", ["pipeline", "--help"]),
        ("kodoctl", ["dev", "--help"]),
        ("kodo-consumer", ["--help"]),
        ("kodo-consumer", ["outbox", "--help"]),
    ],
)
def test_help_of_a_group_imports_no_command(application: str, words: list[str]) -> None:
    found = imported(application, *words)
    assert commands_of(found) == set()
    assert found & (CLUSTER | VIEWS | SPARK | MODELS | {"rich"}) == set()


@pytest.mark.parametrize(
    ("shell", "line", "words", "modules"),
    [
        ("bash", "kodoctl ", 1, set()),
        ("bash", "kodoctl li", 1, set()),
        ("bash", "kodoctl pipeline recall ", 3, set()),
        ("bash", "kodoctl lint --", 2, {"kodoctl.cli.topology.topology_commands"}),
        ("bash", "kodoctl lint a.yaml --format ", 4, {"kodoctl.cli.topology.topology_commands"}),
        ("fish", "kodoctl ", 1, set()),
    ],
)
def test_completion_imports_the_command_of_the_line_and_nothing_that_it_works_with(
    shell: str, line: str, words: int, modules: set[str]
) -> None:
    found = imported(
        "kodoctl",
        _KODOCTL_COMPLETE=f"complete_{shell}",
        COMP_WORDS=line,
        COMP_CWORD=str(words),
        _TYPER_COMPLETE_ARGS=line,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert commands_of(found) == modules
    assert found & (CLUSTER | VIEWS | SPARK | MODELS) == set()


def test_completion_of_options_of_a_command_on_a_cluster_talks_to_none() -> None:
    line = {"COMP_WORDS": "kodoctl plan --context dev --", "COMP_CWORD": "4"}
    found = imported("kodoctl", _KODOCTL_COMPLETE="complete_bash", **line)
    assert "kodoctl.cli.plan.plan_command" in found
    assert found & (CLUSTER | VIEWS | SPARK | MODELS) == set()


def test_completion_finds_the_options_of_a_command_of_the_consumer_by_its_name() -> None:
    line = {"COMP_WORDS": "kodoctl send kodo/shop/orders --", "COMP_CWORD": "3"}
    found = imported("kodoctl", _KODOCTL_COMPLETE="complete_bash", **line)
    assert "kodo_consumer.cli.send_command" in found
    assert found & (CLUSTER | SPARK | MODELS) == set()


def test_lint_imports_no_client_and_no_view() -> None:
    found = imported("kodoctl", "lint", "topologies/shapes/simple.yaml")
    assert commands_of(found) == {"kodoctl.cli.common.team_rules_files", "kodoctl.cli.topology.topology_commands"}
    rules = {one for one in found if one.startswith("kodoctl.topology.team_rules.")}
    assert rules == {"kodoctl.topology.team_rules.discovery"}  # there are no rules above this file
    assert found & (CLUSTER | VIEWS | SPARK | {"rich", "jsonschema", "jsonschema_rs"}) == set()
    assert found & {"importlib.metadata", "json", "unicodedata"} == set()
    assert {one for one in found if one.startswith(ONLY_FOR_SOME_FILES)} == set()


def test_the_collector_of_garbage_is_set_before_a_command_line_is_imported() -> None:
    program = (
        "import gc\ngc.callbacks.append(lambda phase, _: print(phase))\nfrom kodoctl.cli.main import main\nmain()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "--version"],
        env={"PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == [f"kodoctl {__version__}"]


def test_lint_checks_a_payload_schema_with_the_library_for_it() -> None:
    assert "jsonschema_rs" in imported("kodoctl", "lint", "topologies/trade.yaml")


def _listed(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], LazyCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, LazyCommand):
            yield (*path, name), command
        else:
            yield from _listed(command, (*path, name))


LISTED = {
    path: command
    for name, application in APPLICATIONS.items()
    for path, command in _listed(typer.main.get_command(application), (name,))
}


@pytest.mark.parametrize("path", LISTED, ids=[" ".join(path) for path in LISTED])
def test_a_command_is_listed_with_the_first_sentence_of_its_help(path: tuple[str, ...]) -> None:
    listed, command = LISTED[path], LISTED[path].load()
    assert command.name == listed.name == path[-1]
    for limit in (30, 45, 80, 200):
        assert listed.get_short_help_str(limit) == command.get_short_help_str(limit)
    assert not command.hidden
    assert not command.deprecated

"""Help of every command, group and option: it fits a screen, and says what is taken and what is the default."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from kodo_consumer.cli.main import app as consumer
from typer.testing import CliRunner

from kodoctl import __version__
from kodoctl.cli.application import app
from kodoctl.cli.lazy_commands import LazyGroup
from tests.brokers.workspace import run_main


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in command.load_all().items() if isinstance(command, LazyGroup) else ():
        yield from _commands(child, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))
LEAVES = [path for path, command in COMMANDS.items() if not hasattr(command, "commands")]
NAMES = [" ".join(path) or "kodoctl" for path in COMMANDS]


def test_all_commands_of_the_design_are_there() -> None:
    there = {" ".join(path) for path in LEAVES}
    assert there >= {
        "lint", "fmt", "init", "schema", "expand", "graph", "plan", "apply", "destroy", "drift", "import", "forget", "status",
        "context list", "context use", "context show", "context test", "dev up", "dev down", "dev status", "dev logs", "dev reset",
    }  # fmt: skip


@pytest.mark.parametrize("path", COMMANDS, ids=NAMES)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_fits_a_screen_and_begins_with_usage(
    path: tuple[str, ...], flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run_main(*path, flag)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: {' '.join(('kodoctl', *path))} [OPTIONS]")
    assert [line for line in ran.out.splitlines() if len(line) > 80] == []
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("path", COMMANDS, ids=NAMES)
def test_help_survives_a_narrow_terminal(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run_main(*path, "--help").code == 0


@pytest.mark.parametrize("path", LEAVES, ids=[" ".join(path) for path in LEAVES])
def test_every_option_says_what_it_is_for_and_what_it_is_by_default(path: tuple[str, ...]) -> None:
    shown = " ".join(run_main(*path, "--help").out.split())
    for option in COMMANDS[path].params:
        assert option.help, f"{option.name} explains nothing"
        assert (option.opts[0] if option.param_type_name == "option" else option.metavar or option.name) in shown
        default = option.default() if inspect.isfunction(option.default) else option.default
        if default not in (None, False, (), []) and not option.required:
            assert f"[default: {getattr(default, 'value', default)}" in shown, f"{option.name}: its default is not told"


@pytest.mark.parametrize(
    "path", [path for path in LEAVES if path[0] in ("plan", "apply", "destroy", "drift", "status")]
)
def test_commands_that_reach_a_cluster_take_the_same_connection(path: tuple[str, ...]) -> None:
    shown = run_main(*path, "--help").out
    assert all(f"  {flag} " in shown for flag in ("--context", "--admin-url", "--broker-url", "--token-file"))


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if hasattr(command, "commands")])
def test_a_group_without_a_command_shows_its_commands(path: tuple[str, ...]) -> None:
    ran = run_main(*path)
    assert all(f"\n{heading}:\n" in ran.text for heading in COMMANDS[path].sections or ["Commands"])
    for child in COMMANDS[path].commands:
        assert f"\n  {child} " in ran.text


def test_the_version_is_told() -> None:
    assert run_main("--version").out == f"kodoctl {__version__}\n"


def test_the_reference_shows_the_option_for_help_as_every_command_has_it() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    shown = [line.split("  Show")[0].split() for line in page.splitlines() if "Show this message and exit." in line]
    assert len(shown) > len(COMMANDS)
    assert all(names == ["-h,", "--help"] for names in shown)


GROUPS = [
    (program, path)
    for program in (app, consumer)
    for path, command in _commands(typer.main.get_command(program))
    if hasattr(command, "commands")
]


@pytest.mark.parametrize(("program", "path"), GROUPS, ids=[f"{one.info.name} {' '.join(path)}" for one, path in GROUPS])
def test_no_summary_of_a_list_is_cut_off(
    program: typer.Typer, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list at 80 columns has room for each summary: one that ends in `...` hides what the command does."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(program, [*path, "-h"]).stdout
    assert "  Show this message and exit.\n\n" in shown, "a list follows"
    assert [line for line in shown.splitlines()[1:] if line.endswith("...")] == []


@pytest.mark.parametrize("program", [app, consumer])
def test_each_command_stands_under_one_heading(program: typer.Typer) -> None:
    root = typer.main.get_command(program)
    assert isinstance(root, LazyGroup)
    listed = [name for names in root.sections.values() for name in names]
    assert sorted(listed) == sorted(root.commands)

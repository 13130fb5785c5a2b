"""An option that a line gives twice is honoured both times or refused: no command of either line drops a value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from kodo_consumer.cli.main import app as consumer_app

from kodoctl.cli.application import app
from kodoctl.cli.common.command_target import TargetOptions
from kodoctl.cli.lazy_commands import LazyGroup
from kodoctl.pulsar.admin import admin_http
from kodoctl.pulsar.connection.connection import Connection
from tests.brokers.workspace import run_main


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(command, LazyGroup):
        for name, child in command.load_all().items():
            yield from _commands(child, (*path, name))
    else:
        yield path, command


COMMANDS = [
    *_commands(typer.main.get_command(app), ("kodoctl",)),
    *_commands(typer.main.get_command(consumer_app), ("kodo-consumer",)),
]
SINGLE = [
    (path, command, option)
    for path, command in COMMANDS
    for option in command.params
    if option.param_type_name == "option" and not option.multiple and not option.is_flag
]
SEVERAL = {f"kodoctl {name}" for name in ("plan", "apply", "drift", "destroy", "forget", "undo", "status", "history")}


def test_a_second_value_is_refused_before_anything_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    for path, command, option in SINGLE:
        twice = [option.opts[0], "1"] * 2
        with pytest.raises(Exception, match="is given 2 times") as problem:
            command.main(twice, prog_name=" ".join(path), standalone_mode=False)
        assert str(problem.value) == f"Option '{option.opts[0]}' is given 2 times; this command takes one.", path
    assert capsys.readouterr().out == ""


def test_no_command_drops_a_context(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command that has `--context` connects to all that a line names, or refuses a second one."""
    takes = {
        " ".join(path): (command, option.multiple)
        for path, command in COMMANDS
        for option in command.params
        if option.name == "context"
    }
    assert {name for name, (_, several) in takes.items() if several} == SEVERAL
    assert len(takes) > 2 * len(SEVERAL)
    (folder / "shop.yaml").write_text("version: 1\nname: shop\ntenant: t\nnamespace: n\ntopics: {orders: {}}\n")
    needed = {"destroy": ["shop.yaml"], "forget": ["topic.t/n/x"], "undo": ["last", "t/n"], "history": ["t/n"]}
    for name, (command, several) in takes.items():
        given = ["--context", "one", "--context", "two"]
        if not several:
            with pytest.raises(Exception, match="Option '--context' is given 2 times"):
                command.main(given, prog_name=name, standalone_mode=False)
            continue
        contexts: list[str | None] = []

        def connection(target: TargetOptions, contexts: list[str | None] = contexts) -> Connection:
            contexts.append(target.context)
            return Connection(f"http://{target.context}:1", None)

        monkeypatch.setattr(TargetOptions, "connection", connection)
        monkeypatch.setattr(admin_http, "FIRST_S", 0.0)
        with contextlib.suppress(typer.Exit):
            command.main([*needed.get(name.split()[1], []), *given], prog_name=name, standalone_mode=False)
        assert contexts == ["one", "two"], name


def test_a_second_context_ends_the_command_with_the_exit_code_of_a_wrong_line() -> None:
    ran = run_main("unlock", "kodo/trade", "--context", "ux", "--context", "prodx")
    assert (ran.code, ran.out) == (64, "")
    assert "Error: Option '--context' is given 2 times; this command takes one." in ran.err


def test_a_flag_may_be_repeated() -> None:
    assert run_main("lint", "--strict", "--strict", "gone.yaml").err.count("given 2 times") == 0


@pytest.mark.parametrize("habit", ["--yes", "-y", "-auto-approve"])
def test_a_habit_of_other_tools_skips_the_question_where_there_is_one(habit: str, folder: Path) -> None:
    ran = run_main("apply", "gone.yaml", habit, "--admin-url", "http://127.0.0.1:1")
    assert (ran.code, "cannot read file [K016]" in ran.err) == (64, True), ran.text
    assert "No such option: -" in run_main("plan", "gone.yaml", habit).err
    assert run_main("plan", "gone.yaml", "-out", "x.json", "--admin-url", "http://127.0.0.1:1").code == 64
    assert f" {habit}" not in run_main("apply", "--help").out


def test_earlier_and_other_spellings_mean_the_same(folder: Path) -> None:
    (folder / "shop.yaml").write_text("version: 1\nname: shop\ntenant: t\nnamespace: n\ntopics: {orders: {}}\n")
    assert run_main("validate", "shop.yaml").out == run_main("lint", "shop.yaml").out
    assert run_main("lint", "shop.yaml", "--json").json() == run_main("lint", "shop.yaml", "--format=json").json()
    assert run_main("lint", "shop.yaml", "-o", "json").json() == run_main("lint", "shop.yaml", "--output=json").json()
    for spelling in (["--output", "a.json"], ["--output=a.json"], ["-o", "a.json"], ["--out", "a.json"]):
        (folder / "a.json").unlink(missing_ok=True)
        assert run_main("schema", *spelling).code == 0
        assert (folder / "a.json").exists(), spelling
    assert run_main("graph", "shop.yaml", "-o", "dot").out == run_main("graph", "shop.yaml", "--format", "dot").out
    assert not (folder / "dot").exists()
    assert run_main("graph", "shop.yaml", "-odot").out == run_main("graph", "shop.yaml", "-o", "dot").out
    assert run_main("lint", "shop.yaml", "-ojson").json() == run_main("lint", "shop.yaml", "--json").json()
    for words in (["-o", "json"], ["-ojson"], ["-o", "yaml"]):
        refused = run_main("graph", "shop.yaml", *words)
        assert (refused.code, "is not one of" in refused.err) == (64, True)
    assert not (folder / "json").exists()
    assert run_main("graph", "shop.yaml", "-o", "./dot").out == ""
    assert (folder / "dot").exists()
    assert "--output" not in run_main("schema", "--help").out
    assert run_main("dev", "reset", "--yes", "--name", "gone").code == 0


def test_each_kind_of_option_has_one_spelling() -> None:
    options = {name for _, command in COMMANDS for option in command.params for name in option.opts}
    assert {"--format", "--out", "--auto-approve"} <= options
    assert not options & {"--json", "--output", "--yes", "-y"}
    outs = [option.opts for _, command in COMMANDS for option in command.params if "--out" in option.opts]
    assert all(names == ["-o", "--out"] for names in outs)

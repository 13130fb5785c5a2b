"""Command lines that cannot be: what is wrong is said with what to do, the exit code is the documented one, and nothing
is asked of a cluster.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer

from kodoctl.cli.common import console
from kodoctl.cli.common.options import Format
from kodoctl.errors import UsageError, error
from tests.brokers.workspace import run_main

GOOD = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics: {orders: {}}\n"
NOBODY = ("--admin-url", "http://127.0.0.1:1")
CONTEXTS = """
current = "dev"
[contexts.dev]
admin_url = "http://127.0.0.1:1"
[contexts.prod]
admin_url = "http://127.0.0.1:1"
env = "prod"
"""


@pytest.fixture(autouse=True)
def file(folder: Path) -> Path:
    """A good file in the default folder."""
    path = folder / "topologies" / "trade.yaml"
    path.parent.mkdir()
    path.write_text(GOOD)
    return path


def said(expected: str) -> str:
    """The error as printed, from an indented text."""
    return textwrap.dedent(expected).lstrip("\n")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("plan --nope", "Error: No such option: --nope"),
        ("plan --env", "Error: Option '--env' requires an argument."),
        ("plan --format xml", "'xml' is not one of 'text', 'json', 'markdown'"),
        ("nope", "Error: No such command 'nope'."),
        ("context nope", "Error: No such command 'nope'."),
        ("plan --yes", "Error: No such option: --yes. This command asks nothing."),
        ("lint -y", "Error: No such option: -y. This command asks nothing."),
        ("diff shop.yaml", "Error: No such command 'diff'. Did you mean 'plan'?"),
        ("context use", "Error: Missing argument"),
        ("import", "Error: Missing argument"),
        ("status a b --exact=yes", "Option '--exact' does not take a value."),
    ],
)
def test_a_line_that_does_not_parse_exits_64_and_points_to_the_help(line: str, complaint: str) -> None:
    ran = run_main(*line.split())
    assert (ran.code, ran.out) == (64, "")
    assert complaint in ran.err
    assert " -h" in ran.err.splitlines()[-1] or "Usage: kodoctl" in ran.err


@pytest.mark.parametrize("line", ["plan --format json --nope", "plan --nope --format=json", "nope -o json"])
def test_a_line_that_does_not_parse_and_asks_for_json_gets_its_error_so(line: str) -> None:
    ran = run_main(*line.split())
    [problem] = ran.json()["problems"]
    assert (ran.code, ran.json()["exit_code"], problem["code"]) == (64, 64, "K598")
    assert "nope" in problem["detail"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "plan --context staging",
            """
            Error: unknown context [K501]
              'staging'; known: dev, prod
            """,
        ),
        (
            "context use staging",
            """
            Error: unknown context [K501]
              'staging'; known: dev, prod
            """,
        ),
        (
            "plan --context prod --env staging",
            """
            Error: environment and context disagree [K017]
              context prod is bound to 'prod', --env says 'staging'
            """,
        ),
        (
            "plan --admin-url pulsar://host:6650",
            """
            Error: not an address [K505]
              --admin-url: 'pulsar://host:6650': write http://HOST:PORT; an address with
              pulsar:// belongs to --broker-url
            """,
        ),
        (
            "plan --admin-url http://host:8080 --broker-url http://host:8080",
            """
            Error: not an address [K505]
              --broker-url: 'http://host:8080': write pulsar://HOST:PORT; an address with
              http:// belongs to --admin-url
            """,
        ),
        (
            "plan --admin-url host:8080",
            """
            Error: not an address [K505]
              --admin-url: 'host:8080': write http://HOST:PORT
            """,
        ),
        (
            "plan --admin-url http://host:80800",
            """
            Error: not an address [K505]
              --admin-url: 'http://host:80800': write http://HOST:PORT; a port is a number
              below 65536
            """,
        ),
        (
            "plan --admin-url http://me:secret@host:8080",
            """
            Error: not an address [K505]
              --admin-url: 'host:8080': write http://HOST:PORT; a user does not belong into
              it: tokens are given with --token-file
            """,
        ),
        (
            "plan --token-file nowhere",
            """
            Error: cannot read token [K504]
              at nowhere
              No such file or directory: name a file that holds the token and nothing else
            """,
        ),
        (
            "plan --env prod",
            """
            Error: unknown environment [K017]
              'prod': these files have no `environments`: leave --env out
            """,
        ),
        (
            "apply --lock-timeout 5",
            """
            Error: wrong unit [K005]
              --lock-timeout: '5' has no unit: write one of ms, s, m, h, d, for example 30s
            """,
        ),
        (
            "apply gone.json",
            """
            Error: cannot read file [K016]
              at gone.json
              there is no such plan file; `kodoctl plan --out FILE` writes one
            """,
        ),
        (
            "destroy",
            """
            Error: nothing named [K508]
              name files, or --name NAME with --namespace TENANT/NAMESPACE
            """,
        ),
        (
            "forget",
            """
            Error: nothing named [K508]
              name addresses, or --name NAME with --namespace TENANT/NAMESPACE
            """,
        ),
        (
            "forget topic.orders",
            """
            Error: not a namespace [K507]
              'topic.orders': write it as a plan prints it, such as
              topic.persistent://kodo/trade/orders
            """,
        ),
        (
            "apply plan.json --adopt topic.x --allow-share 0.5",
            """
            Error: a plan file is carried out as it is [K428]
              --adopt and --allow-share belong to its plan
            """,
        ),
        (
            "apply trade.yaml --resume kodo/trade",
            """
            Error: a plan file is carried out as it is [K428]
              --resume continues the plan in the journal of kodo/trade: leave trade.yaml out
            """,
        ),
        (
            "import kodo/trade/orders",
            """
            Error: not a namespace [K507]
              'kodo/trade/orders' is not a namespace: write TENANT/NAMESPACE, for example
              kodo/trade
            """,
        ),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(line: str, expected: str, folder: Path) -> None:
    (folder / "kodoctl-user.toml").write_text(CONTEXTS)
    ran = run_main(*line.split())
    assert (ran.code, ran.out, ran.err) == (64, "", said(expected))


def test_without_any_cluster_named_the_ways_to_name_one_are_told() -> None:
    ran = run_main("plan")
    assert (ran.code, ran.err) == (64, said("""
        Error: no cluster named [K503]
          name one with --context or --admin-url, or start one with
          `kodoctl dev up --use`
        """))  # fmt: skip


@pytest.mark.parametrize("line", ["plan gone.yaml", "lint gone.yaml", "explain K999", "apply --approved gone.json"])
def test_an_error_is_json_as_well_where_json_was_asked_for(line: str) -> None:
    ran = run_main(*line.split(), "--format", "json")
    document = ran.json()
    assert (document["type"], document["exit_code"], ran.code) == ("error", 64, 64)
    (problem,) = document["problems"]
    assert f"Error: {problem['summary']} [{problem['code']}]\n" in ran.err
    assert run_main(*line.split()).out == ""


def test_an_error_behind_a_document_is_no_second_document(capsys: pytest.CaptureFixture[str]) -> None:
    @console.command
    def printed(output: Format) -> None:
        console.say("{}")
        raise UsageError(error("K016", "cannot read file", output.value))

    with pytest.raises(typer.Exit):
        printed(output=Format.JSON)
    assert capsys.readouterr().out == "{}\n"


def test_without_contexts_the_list_says_how_to_make_one() -> None:
    ran = run_main("context", "list")
    assert (ran.code, ran.out) == (0, "No contexts yet. `kodoctl dev up` makes one for a development broker.\n")
    assert run_main("context", "show").code == 64


@pytest.mark.parametrize("command", ["plan", "apply", "drift", "status", "destroy"])
def test_a_file_that_is_not_there_is_named(command: str) -> None:
    ran = run_main(command, "gone.yaml", *NOBODY)
    assert (ran.code, ran.err) == (64, said("""
        Error: cannot read file [K016]
          at gone.yaml
          it does not exist; `kodoctl init` writes an example
        """))  # fmt: skip


def test_all_files_that_are_not_there_are_told_at_once(folder: Path) -> None:
    (folder / "empty").mkdir()
    ran = run_main("plan", "gone.yaml", "empty", *NOBODY)
    assert (ran.code, ran.err) == (64, said("""
        Error: cannot read file [K016]
          at gone.yaml
          it does not exist; `kodoctl init` writes an example
        Error: no topology files [K016]
          at empty
          no *.yaml and no *.yml below this folder; `kodoctl init` writes an example
        """))  # fmt: skip


def test_a_file_that_may_not_be_read_is_named_with_the_systems_reason(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def deny(path: Path, *arguments: object, **options: object) -> object:
        if path.name == file.name:
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", deny)
    ran = run_main("plan", *NOBODY)
    assert (ran.code, ran.err) == (1, said("""
        Error: cannot read file [K016]
          at topologies/trade.yaml
          Permission denied
        """))  # fmt: skip


@pytest.mark.parametrize(
    ("line", "code"), [("init closed/new.yaml", "K020"), ("fmt closed/a.yaml", "K016"), ("show closed/a.yaml", "K016")]
)
def test_a_folder_that_may_not_be_entered_is_no_defect(line: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stat", "open"):
        monkeypatch.setattr(Path, name, _closed(getattr(Path, name)))
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    ran = run_main(*line.split())
    assert (ran.code, ran.out) == (64, "")
    assert f"[{code}]" in ran.err
    assert "Permission denied" in ran.err


def _closed(real: Any) -> Any:
    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if "closed" in path.parts[:-1]:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    return refuse


def test_a_file_of_the_user_that_may_not_be_used_is_no_defect_wherever_it_is_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "closed/a")

    monkeypatch.setattr("kodoctl.topology.load.read_files", surprise)
    ran = run_main("fmt", "shop.yaml")
    assert (ran.code, ran.err) == (64, "Error: cannot read file [K016]\n  at closed/a\n  Permission denied\n")


def test_what_is_no_file_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    ran = run_main("lint", "pipe.yaml")
    assert (ran.code, ran.out.splitlines()[0]) == (1, "pipe.yaml K016 error cannot read file: it is not a regular file")


@pytest.mark.parametrize(
    "line",
    [
        *(
            f"{name} gone.yaml"
            for name in ("lint", "fmt", "expand", "graph", "plan", "apply", "drift", "destroy", "status")
        ),
        "exporter gone.yaml --once",
        "recall plan gone.yaml --topic orders --subscription billing --where true",
        "waiting list gone.yaml",
        *(f"{name} gone.json" for name in ("show", "apply", "recall apply", "waiting apply")),
        *(
            f"dev {name} --name gone"
            for name in ("logs", "kill broker-1", "pause broker-1", "resume broker-1", "token role")
        ),
        *(f"dev {name} --name gone" for name in ("stop broker-1", "start broker-1")),
        *(f"context {name} gone" for name in ("use", "show", "test")),
        "plan --context gone",
        "plan --env gone",
        "plan --token-file gone",
        "graph --topic gone",
        "lint topologies --against gone",
    ],
)
def test_whatever_a_line_names_that_is_not_there_exits_64(line: str, folder: Path) -> None:
    (folder / "kodoctl-user.toml").write_text(CONTEXTS)
    words = line.split()
    reaches = words[0] in {"plan", "apply", "drift", "destroy", "status", "exporter", "recall", "waiting"}
    ran = run_main(*words, *(NOBODY if reaches and "--context" not in words else ()))
    assert (ran.code, ran.out) == (64, ""), ran.text
    assert "gone" in ran.err


@pytest.mark.parametrize("content", ["{}", "not json", '{"format_version": 99}', "[]", "\x00"])
def test_a_file_that_is_no_plan_is_refused_before_any_cluster_is_asked(folder: Path, content: str) -> None:
    (folder / "plan.json").write_text(content)
    ran = run_main("apply", "plan.json", *NOBODY)
    assert ran.code in (1, 4, 64)
    assert ran.err.startswith("Error: ")
    assert "plan.json" in ran.err


@pytest.mark.usefixtures("one_try")
def test_a_broker_that_is_not_there_is_named_with_reason_and_advice() -> None:
    for command in ("plan", "apply", "drift", "status", "destroy topologies", "import kodo/trade"):
        ran = run_main(*command.split(), *NOBODY)
        assert (ran.code, ran.out, ran.err) == (1, "", said("""
            Error: no broker answers [K514]
              http://127.0.0.1:1: Connection refused; is the broker running?
              `kodoctl dev status` tells for a development one
            """)), command  # fmt: skip


@pytest.mark.usefixtures("one_try")
def test_a_broker_elsewhere_is_no_development_broker() -> None:
    ran = run_main("plan", "--admin-url", "http://127.0.0.2:1")
    assert "http://127.0.0.2:1: Connection refused; is the broker running?\n" in ran.err
    assert "kodoctl dev" not in ran.err


@pytest.mark.usefixtures("one_try")
def test_a_broker_that_is_not_there_is_named_with_the_context_it_came_from(folder: Path) -> None:
    (folder / "kodoctl-user.toml").write_text(CONTEXTS)
    assert "  http://127.0.0.1:1 (context dev): Connection refused;" in run_main("plan").err
    tried = run_main("context", "test", "dev")
    assert tried.code == 1
    assert tried.out.startswith("admin API: failed\n")


@pytest.mark.parametrize("role", ["planner", "../x"])
def test_a_token_needs_an_instance_that_has_authentication(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KODOCTL_DEV_HOME", str(Path.cwd() / "dev"))
    ran = run_main("dev", "token", role)
    assert ran.out == ""
    assert ran.code != 0
    assert ran.err.startswith("Error: ")
    assert "kodoctl dev up" in ran.err


def test_what_nobody_foresaw_is_told_without_a_traceback_which_goes_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise ZeroDivisionError("one over none")

    monkeypatch.setattr("kodoctl.topology.load.read_files", surprise)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Path("shop.yaml").write_text("version: 1\n", encoding="utf-8")
    run = run_main("fmt", "shop.yaml", defect=True)
    assert run.code == 1
    assert "Error: a defect of kodoctl [K599]\n  ZeroDivisionError: one over none\n" in run.err
    assert "Traceback" not in run.text
    (report,) = tmp_path.glob("kodoctl-*.txt")
    assert "in surprise" in report.read_text(encoding="utf-8")

"""A token never appears in any output: not with -v, not in an error, not in a file that is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.workspace import Run, run_main
from tests.services.servers import Answer, Request, answer_html, answer_json, serving

CANARY = "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0LWNhbmFyeQ.0123456789abcdef"
FILE = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics: {orders: {}}\n"
COMMANDS = [
    ("plan", "-v"), ("plan", "-v", "--format", "json"), ("plan", "-v", "--format", "markdown"), ("plan", "--out", "plan.json"),
    ("apply", "-v", "--auto-approve"), ("drift", "-v"), ("drift", "--format", "json"), ("status",), ("status", "--format", "json"),
    ("import", "kodo/trade"), ("destroy", "topologies", "--auto-approve"), ("forget", "topic.persistent://kodo/trade/orders"),
    ("context", "show", "canary"), ("context", "list", "--format", "json"), ("context", "test", "canary"),
]  # fmt: skip


def echo(request: Request) -> Answer:
    """A server that repeats what it was sent, in the body and in the reason."""
    return answer_json({"reason": f"refused: {dict(request.headers)}", "headers": dict(request.headers)}, 403)


def unauthorised(request: Request) -> Answer:
    """A token that the broker does not take."""
    return answer_html(f"<h1>401</h1>{dict(request.headers)}", 401)


def broken(request: Request) -> Answer:
    """JSON of no shape that is known."""
    return answer_json({"oops": dict(request.headers)})


def foreign(request: Request) -> Answer:
    """Sends clients elsewhere."""
    return Answer(307, b"", {"Location": f"http://elsewhere.invalid{request.path}"})


def cut(_: Request) -> Answer:
    """Says nothing at all."""
    return Answer(cut=True)


def _by_flag(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return ["--token-file", str(folder / "token")]


def _by_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("KODOCTL_TOKEN", CANARY)
    return []


def _by_named_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("KODOCTL_TOKEN_FILE", str(folder / "token"))
    return []


def _run(command: tuple[str, ...], url: str, options: list[str]) -> Run:
    connection = (
        [] if command[0] == "context" else ["--admin-url", url, "--broker-url", "pulsar://127.0.0.1:1", *options]
    )
    return run_main(*command, *connection)


def _written(folder: Path) -> str:
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != "token"]
    return "".join(file.read_text(errors="replace") for file in files)


@pytest.fixture(autouse=True)
def files(folder: Path, one_try: None) -> None:
    """A topology and a token; nothing waits between tries."""
    (folder / "topologies").mkdir()
    (folder / "topologies" / "trade.yaml").write_text(FILE)
    (folder / "token").write_text(f"{CANARY}\n")


@pytest.mark.parametrize("given", [_by_flag, _by_variable, _by_named_file], ids=["flag", "variable", "file"])
@pytest.mark.parametrize("answer", [echo, unauthorised, broken, foreign, cut], ids=lambda answer: answer.__name__)
def test_no_command_prints_or_writes_the_token(
    answer: Callable[[Request], Answer],
    given: Callable[[Path, pytest.MonkeyPatch], list[str]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(answer) as server:
        (folder / "kodoctl-user.toml").write_text(
            f'current = "canary"\n[contexts.canary]\nadmin_url = "{server.url}"\ntoken_file = "token"\n'
        )
        options = given(folder, monkeypatch)
        for command in COMMANDS:
            ran = _run(command, server.url, options)
            assert CANARY not in ran.text, command
            assert "Traceback" not in ran.text, command
        sent = [request.headers.get("Authorization") for request in server.requests]
    assert f"Bearer {CANARY}" in sent, "the test itself: the token was sent"
    assert CANARY not in _written(folder)


def test_a_token_in_an_address_or_in_the_place_of_a_file_is_not_repeated() -> None:
    assert CANARY not in run_main("plan", "--admin-url", f"http://me:{CANARY}@host:80x").text
    shown = json.loads(run_main("context", "list", "--format", "json").out)
    assert shown == []

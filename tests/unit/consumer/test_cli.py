"""`kodo-consumer` without a cluster: exit codes and what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from consumer.cli.main import main
from tests.unit.consumer.topologies import DOUBLE, write


def _exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["kodo-consumer", *arguments])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KODOCTL_CONFIG", str(tmp_path / "none.toml"))
    for name in ("KODOCTL_ADMIN_URL", "KODOCTL_BROKER_URL", "KODOCTL_ENV"):
        monkeypatch.delenv(name, raising=False)


def test_usage_errors_exit_64(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(monkeypatch, "--nonsense") == 64
    assert _exit_code(monkeypatch, "run") == 64
    assert _exit_code(monkeypatch, "--help") == 0
    assert "drain and exit 0" in capsys.readouterr().out


def test_what_is_wrong_is_said_with_its_code_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, DOUBLE)
    asked = ["run", path, "--topic", "orders", "--handler", "app:bill", "--subscription"]
    assert _exit_code(monkeypatch, *asked, "nobody") == 64
    assert "Error: no such subscription in the file [K703]\n  orders has billing" in capsys.readouterr().err
    assert _exit_code(monkeypatch, *asked, "billing") == 64
    assert "no such handler [K718]" in capsys.readouterr().err
    (tmp_path / "app.py").write_text("def bill(message): ...\n", encoding="utf-8")
    assert _exit_code(monkeypatch, *asked, "billing") == 64
    assert "no cluster named [K503]" in capsys.readouterr().err
    assert _exit_code(monkeypatch, *asked, "billing", "--admin-url", "http://127.0.0.1:1") == 1
    assert "no address of the broker's binary port [K516]" in capsys.readouterr().err
    assert _exit_code(monkeypatch, "check", path) == 64
    assert _exit_code(monkeypatch, "check", path, "--topic", "x", "--admin-url", "http://127.0.0.1:1") == 64
    assert "no such topic in the file [K702]" in capsys.readouterr().err
    broken = write(tmp_path, "  J: {subscriptions: {s: {concurrency: adaptive}}}\n")
    assert _exit_code(monkeypatch, "run", broken, "--topic", "J", "--subscription", "s", "--handler", "app:bill") == 1
    assert f"at {broken}:" in capsys.readouterr().err


def test_what_nobody_foresaw_shows_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise ZeroDivisionError("one over none")

    monkeypatch.setattr("consumer.application.Consumer.load", surprise)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert _exit_code(monkeypatch, "run", "x", "--topic", "J", "--subscription", "s", "--handler", "app:bill") == 1
    assert "Error: a defect of kodoctl [K599]\n  ZeroDivisionError: one over none\n" in capsys.readouterr().err
    assert len(list(tmp_path.glob("kodoctl-*.txt"))) == 1

"""The command `kodo-consumer outbox` in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kodo_consumer.cli.main import main

from tests.brokers.workspace import this_process_goes_on

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    return runner("outbox", monkeypatch, capsys, tmp_path)


def runner(group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs commands of a group of `kodo-consumer` in a folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KODOCTL_CONFIG", str(tmp_path / "none.toml"))
    for name in ("KODOCTL_ADMIN_URL", "KODOCTL_BROKER_URL", "KODOCTL_ENV"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kodo-consumer", group, *arguments])
        with pytest.raises(SystemExit) as end, this_process_goes_on():
            main()
        out, err = capsys.readouterr()
        assert "K599" not in err
        assert isinstance(end.value.code, int)
        return end.value.code, out, err

    return command

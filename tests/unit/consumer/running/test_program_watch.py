"""Files of a program in development: which changes start its workers anew."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from kodo_consumer.running.program_watch import restarting_on_change

from tests.services.polling import eventually


def test_changes_of_the_program_call_for_a_restart_and_others_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Folders above the program have any name."""
    caplog.set_level(logging.INFO)
    tmp_path = tmp_path / "build"
    package, cache = tmp_path / "shop", tmp_path / "__pycache__"
    for folder in (tmp_path, package, cache, tmp_path / "env"):
        folder.mkdir()
    calls: list[float] = []
    with restarting_on_change(tmp_path, lambda: calls.append(time.monotonic())):
        time.sleep(0.5)  # the watch has begun
        (tmp_path / "worker.log").write_text("x", encoding="utf-8")
        (cache / "app.py").write_text("x", encoding="utf-8")
        (tmp_path / "env" / "app.py").write_text("x", encoding="utf-8")
        (package / "app.py").write_text("x", encoding="utf-8")
        eventually(lambda: len(calls) == 1)
        for name in "abcd":
            (tmp_path / f"{name}.yaml").write_text("x", encoding="utf-8")
        eventually(lambda: len(calls) >= 2)
    changes = [text for text in caplog.messages if "changed" in text]
    assert changes[0] == "shop/app.py changed: the workers start anew"
    assert changes[1].startswith("a.yaml, b.yaml, c.yaml and 1 more changed") or len(calls) > 2
    assert not [record for record in caplog.records if record.name.startswith("watchfiles")]

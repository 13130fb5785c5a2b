"""What people see of Spark's work while they wait."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from kodo_pipeline.spark.spark_progress import Bar
from kodo_pipeline.spark.spark_session import SparkSettings

from kodoctl.cli.common.options import Format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Makes standard error one, and reads it; what it gives takes that back, and tells what was written there."""
    ours, theirs = pty.openpty()
    terminal, usual = os.fdopen(theirs, "w"), sys.stderr
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", terminal)
    found = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal that nobody has open
            while piece := os.read(ours, 65536):
                found.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()

    def ended() -> str:
        monkeypatch.setattr(sys, "stderr", usual)
        terminal.close()
        reader.join(30)
        os.close(ours)
        return CONTROLS.sub("", found.decode())

    return ended


def test_a_terminal_shows_how_many_tasks_are_over_and_lines_stand_above(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = a_terminal(monkeypatch)
    bar = Bar(Format.TEXT)
    bar.begin("r1", "rollup")
    with bar.session(SparkSettings()) as session:
        bar.tell("Counting 3 batches.")
        session.range(0, 4, numPartitions=4).selectExpr("reflect('java.lang.Thread', 'sleep', 400L)").collect()
    told = shown()
    assert told.startswith("Run r1: rollup. Spark takes 5 to 15 s to start.")
    assert "Counting 3 batches.\r\n" in told
    assert re.search(r"Spark starts .* \d+ s", told)
    assert re.search(r"Spark works .* \d of \d tasks? +\d+ s", told), told


def test_for_machines_there_is_no_bar(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = a_terminal(monkeypatch)
    with Bar(Format.JSON).session(SparkSettings()) as session:
        assert session.version
    assert shown() == ""

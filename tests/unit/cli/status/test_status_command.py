"""status --watch while the cluster does not answer: the earlier status stays, and says why it is not a new one."""

from __future__ import annotations

import json
import time

import pytest

from kodoctl.cli.status.status_command import StatusFormat, _watch
from kodoctl.errors import ClusterError, KodoctlError, error
from kodoctl.plan.fleet import ONLY
from kodoctl.status.lane_status import StatusReading


def watched(output: StatusFormat, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What is printed for a reading, one that fails, another, and Ctrl-C."""
    now = int(time.time() * 1000)
    readings: list[ClusterError | dict[str, StatusReading | KodoctlError]] = [
        ClusterError(error("K514", "no broker answers", "away")),
        {ONLY: StatusReading(now + 1, ())},
    ]

    def look() -> dict[str, StatusReading | KodoctlError]:
        if not readings:
            raise KeyboardInterrupt
        one = readings.pop(0)
        if isinstance(one, ClusterError):
            raise one
        return one

    _watch({ONLY: StatusReading(now, ())}, look, 0.01, {ONLY: "context dev"}, output, everything=False)
    return capsys.readouterr()


def test_a_failed_reading_is_shown_above_the_earlier_status(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = watched(StatusFormat.TEXT, capsys)
    first, failed, last = out.split("context dev")[1:]
    assert "not read since: K514 error no broker answers: away" in " ".join(failed.split())
    assert "not read" not in first + last
    assert "no broker answers [K514]" in err


def test_a_failed_reading_is_no_document(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = watched(StatusFormat.JSON, capsys)
    first, second = (json.loads(line)["now"] for line in out.splitlines())
    assert second == first + 1

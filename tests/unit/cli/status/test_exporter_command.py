"""The exporter tells of each topic that can no longer be read, once."""

from __future__ import annotations

import pytest

from kodoctl.cli.status.exporter_command import _tell_unread
from kodoctl.status.lane_status import UnreadTopic


def test_topics_of_one_name_in_two_namespaces_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (UnreadTopic(f"kodo/{name}", "orders", "orders", "gone") for name in ("trade", "stock"))
    _tell_unread((first,), ())
    _tell_unread((first, second), (first,))
    _tell_unread((), (first, second))
    assert capsys.readouterr().err.splitlines() == [
        "kodo/trade/orders cannot be read: gone",
        "kodo/stock/orders cannot be read: gone",
        "All topics can be read again.",
    ]

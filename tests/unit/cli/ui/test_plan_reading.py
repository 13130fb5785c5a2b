"""Applies that the console calls stopped: not one that ends while the console reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kodoctl.cli.ui.plan_reading import PlanReading
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import NamespaceName
from kodoctl.ui.first_screen import StoppedApply

SPACE = NamespaceName.parse("kodo/trade")
CUT, OTHER = (StoppedApply("trade", "kodo/trade", text) for text in ("a1: 3 of 9", "a2: 0 of 2"))


@pytest.mark.parametrize(
    ("looks", "stopped"), [([CUT, CUT], (CUT,)), ([CUT, None], ()), ([CUT, OTHER], ()), ([None], ())]
)
def test_an_apply_is_stopped_if_two_readings_say_so(
    monkeypatch: pytest.MonkeyPatch, looks: list[StoppedApply | None], stopped: tuple[StoppedApply, ...]
) -> None:
    unused: Any = None
    desired = SimpleNamespace(expansions=(SimpleNamespace(name="trade", namespace=SPACE),))
    reading = PlanReading(Connection(""), unused, cast("Any", desired), None, None, "", unused)
    left = list(looks)
    monkeypatch.setattr(PlanReading, "_stopped_in", lambda *_: left.pop(0))
    assert reading.stopped() == stopped
    assert left == []

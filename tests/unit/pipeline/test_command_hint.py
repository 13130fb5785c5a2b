"""Commands to copy."""

from __future__ import annotations

import pytest

from kodoctl.errors import UsageError
from kodoctl.pipeline.command_hint import command_line, duration


def test_what_was_typed_is_typed_again():
    assert command_line("topologies/trade.yaml", None, ".kodoctl/landing") == "topologies/trade.yaml"
    assert command_line("my file.yaml", "base", "s3a://b/k") == "'my file.yaml' --env base --landing s3a://b/k"


def test_a_time_is_ms_and_what_is_none_is_told_with_its_option():
    assert (duration("--goal", "10s"), duration("--goal", "5ms")) == (10_000, 5)
    for text, told in (("soon", "--goal: "), ("0s", "--goal: must be longer than zero")):
        with pytest.raises(UsageError, match=f"K804.*{told}"):
            duration("--goal", text)

"""Commands to copy."""

from __future__ import annotations

from kodoctl.pipeline.typed import typed


def test_what_was_typed_is_typed_again():
    assert typed("topologies/trade.yaml", None, ".kodoctl/landing") == "topologies/trade.yaml"
    assert typed("my file.yaml", "base", "s3a://b/k") == "'my file.yaml' --env base --landing s3a://b/k"

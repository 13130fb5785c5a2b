"""A verdict stays, and the reason is known, if the state for the next audit cannot be written."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Never, cast

import pytest

pytest.importorskip("pyspark")

from kodo_pipeline.audit import state_writer
from kodo_pipeline.audit.state_writer import StateWriter
from kodo_pipeline.landing.landing_store import Landing


class Gone:
    """A frame after the end of Spark's JVM, to which py4j opens a new connection for each call."""

    def persist(self) -> Gone:
        return self

    def count(self) -> Never:
        raise ConnectionRefusedError(111, "Connection refused")

    unpersist = count


@pytest.mark.parametrize("at_once", [False, True])
def test_the_end_of_the_jvm_fails_no_audit(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, *, at_once: bool) -> None:
    def places(*_: object) -> Gone:
        return Gone().count() if at_once else Gone()

    monkeypatch.setattr(state_writer, "open_places", places)
    with ExitStack() as stack:
        writer = StateWriter(Landing(str(tmp_path), "orders", None), cast("Any", None), "run", stack)
        reason = writer.save(cast("Any", SimpleNamespace(messages=None)), cast("Any", None), None)
    assert reason == "[Errno 111] Connection refused"

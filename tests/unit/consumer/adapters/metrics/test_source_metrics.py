"""Metrics and health of a change-data source, as Prometheus and probes read them."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from kodo_consumer.adapters.metrics.source_metrics import SOURCE_METRICS, SourceView
from kodo_consumer.adapters.metrics.view_metrics import ViewCollector
from prometheus_client import CollectorRegistry, generate_latest


def _source(**values: Any) -> Any:
    shown = {"lag": 0.25, "waiting": 3, "confirmed": 77, "trouble": "", "turned_at": time.monotonic(), **values}
    return SimpleNamespace(counts=Counter(sent=5, known=2), **shown)


def test_each_metric_is_read_from_the_source_while_it_is_shown() -> None:
    registry = CollectorRegistry()
    collector = ViewCollector(SOURCE_METRICS, "source", registry)
    view = SourceView(cast("Any", _source(trouble="no database")))
    collector.add(view)
    text = generate_latest(registry).decode()
    for line in (
        "kodo_source_sent_total 5.0", "kodo_source_known_total 2.0", "kodo_source_truncates_total 0.0",
        "kodo_source_lag_seconds 0.25", "kodo_source_waiting_messages 3.0", "kodo_source_confirmed_bytes 77.0",
        "kodo_source_away 1.0",
    ):  # fmt: skip
        assert line in text.splitlines(), text
    assert collector.health(SourceView.not_ready) == [{"source": "0", "problems": ["no database"]}]
    collector.remove(view)
    assert generate_latest(registry) == b""


def test_of_several_sources_messages_are_summed_and_the_worst_lag_is_shown() -> None:
    registry = CollectorRegistry()
    collector = ViewCollector(SOURCE_METRICS, "source", registry)
    for values in ({"trouble": "gone", "lag": 3.0}, {"trouble": "gone"}, {"lag": None}):
        collector.add(SourceView(cast("Any", _source(**values))))
    lines = generate_latest(registry).decode().splitlines()
    for line in ("sent_total 15.0", "waiting_messages 9.0", "lag_seconds 3.0", "away 1.0", "confirmed_bytes 77.0"):
        assert f"kodo_source_{line}" in lines


def test_a_source_is_ready_without_trouble_and_alive_while_it_takes_turns() -> None:
    assert SourceView(cast("Any", _source())).not_ready() == SourceView(cast("Any", _source())).unhealthy() == []
    (problem,) = SourceView(cast("Any", _source(turned_at=time.monotonic() - 120))).unhealthy()
    assert problem == "the source took no turn for 120 s"

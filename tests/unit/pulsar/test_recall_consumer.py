"""The consumer of a recall, as the broker shows it to others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kodoctl.pipeline.ingest.recording_workers import _is_unrecorded
from kodoctl.pulsar.recall_transport import _locked


def test_it_says_that_it_records_what_it_acknowledges() -> None:
    said: dict[str, Any] = {}
    opened = SimpleNamespace(subscribe=lambda *_, **options: said.update(options))
    client: Any = SimpleNamespace(ask=lambda call, *_, **__: call(opened))
    _locked(client, "persistent://kodo/trade/orders-billing-RETRYING-partition-0", "billing")
    part = {"subscriptions": {"billing": {"consumers": [{"metadata": said["properties"]}]}}}
    assert not _is_unrecorded(part, "billing"), "an ingest beside `waiting apply` would begin every proof anew"

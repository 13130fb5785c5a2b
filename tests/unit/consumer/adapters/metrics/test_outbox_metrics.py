"""Metrics and health of the outbox's relay, over real HTTP."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_consumer.adapters.metrics import outbox_metrics
from kodo_consumer.adapters.metrics.http_server import HttpEndpoint, serving
from kodo_consumer.adapters.metrics.outbox_metrics import METRICS, RELAYS, RelaySight
from kodo_consumer.core.values.broker import Rejected, Unconfirmed
from kodo_consumer.outbox.outbox_store import OutboxScope
from prometheus_client import REGISTRY
from sqlalchemy import text

from tests.unit.consumer.outbox_setting import Setting
from tests.unit.consumer.watching import get, series

ROOT = Path(__file__).parents[5]


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setattr(outbox_metrics, "_READ_EVERY", 0.0)
    found = Setting(f"sqlite:///{tmp_path}/o.db", tmp_path)
    yield found
    found.engine.dispose()


def _value(window: HttpEndpoint, name: str) -> float | None:
    found = [value for _, value in series(get(window.address, "/metrics")[1], name, {})]
    return sum(found) if found else None


def test_what_a_relay_did_and_what_waits_is_shown(setting: Setting) -> None:
    relay = setting.relay()
    window = HttpEndpoint(RelaySight(relay, setting.store()), "127.0.0.1", 0)
    try:
        setting.add()
        setting.add(delay="1h")
        setting.clock.advance(30)
        assert _value(window, "kodo_outbox_waiting_rows") == 2
        assert _value(window, "kodo_outbox_overdue_seconds") == 30
        setting.broker.fail_sends(setting.full("ledger"), Unconfirmed("gone"))
        setting.turn(relay)
        assert _value(window, "kodo_outbox_sent_again_total") == 1
        setting.clock.advance(60)
        setting.turn(relay)
        assert _value(window, "kodo_outbox_sent_total") == 1
        assert _value(window, "kodo_outbox_waiting_rows") == 1
        assert _value(window, "kodo_outbox_overdue_seconds") == 0
        setting.broker.fail_sends(setting.full("ledger"), Rejected("too big"))
        setting.add()
        setting.turn(relay)
        assert _value(window, "kodo_outbox_failed_total") == 1
        page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
        for metric in METRICS:
            assert _value(window, metric.name) is not None, metric.name
            assert f"`{metric.name}`" in page
    finally:
        window.close()
    assert not any(name.startswith("kodo_outbox") for name in REGISTRY._names_to_collectors)


def test_a_relay_without_its_database_is_not_ready_and_one_that_takes_no_turns_is_not_alive(setting: Setting) -> None:
    relay = setting.relay()
    window = HttpEndpoint(RelaySight(relay, setting.store()), "127.0.0.1", 0)
    try:
        assert get(window.address, "/readyz")[0] == 200
        with setting.engine.begin() as connection:
            connection.execute(text("ALTER TABLE kodo_outbox RENAME TO gone"))
        relay.turn()
        status, body = get(window.address, "/readyz")
        assert status == 503
        [problem] = json.loads(body)["relays"][0]["problems"]
        assert problem == "the database lacks a table or a right: no such table: kodo_outbox"
        assert _value(window, "kodo_outbox_database_away") == 1
        assert _value(window, "kodo_outbox_waiting_rows") is None, "not known is not none"
        assert _value(window, "kodo_outbox_overdue_seconds") is None
        assert get(window.address, "/healthz")[0] == 200
        relay.turned_at = time.monotonic() - 100
        status, body = get(window.address, "/healthz")
        assert (status, json.loads(body)["relays"][0]["problems"]) == (503, ["the relay took no turn for 100 s"])
    finally:
        window.close()


def test_the_rows_of_several_relays_of_one_process_are_counted_once(setting: Setting) -> None:
    alone = OutboxScope(app="shop")
    sights = [RelaySight(setting.relay(scope), setting.store(scope)) for scope in (None, None, alone)]
    windows = [HttpEndpoint(sight, "127.0.0.1", 0) for sight in sights]
    try:
        for _ in range(3):
            setting.add()
        setting.clock.advance(30)
        sights[0].relay.counts["sent"] = sights[1].relay.counts["sent"] = 2
        assert [sight.waiting() for sight in sights] == [3, 3, 0], "the third relay has other rows"
        for name, value in (("waiting_rows", 3), ("overdue_seconds", 30), ("sent_total", 4)):
            assert _value(windows[0], f"kodo_outbox_{name}") == value, name
        with setting.engine.begin() as connection:
            connection.execute(text("ALTER TABLE kodo_outbox RENAME TO gone"))
        for sight in sights:
            sight.relay.turn()
        assert _value(windows[0], "kodo_outbox_database_away") == 1
    finally:
        for window in windows:
            window.close()


def test_the_table_is_not_asked_at_every_scrape(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_metrics, "_READ_EVERY", 100.0)
    sight = RelaySight(setting.relay(), setting.store())
    assert sight.waiting() == 0
    setting.add()
    assert sight.waiting() == 0


def test_the_command_shows_its_relay_where_a_port_is_named(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    relay, store = setting.relay(), setting.store()
    sight = RelaySight(relay, store)
    with caplog.at_level("INFO"), serving(sight, "127.0.0.1", 0, logging.getLogger("kodo.outbox")):
        address = caplog.text.partition("http://")[2].split()[0]
        assert "kodo_outbox_sent_total 0.0" in get(address, "/metrics")[1]
    with serving(sight, "127.0.0.1", None, logging.getLogger("kodo.outbox")):
        assert RELAYS.views == ()

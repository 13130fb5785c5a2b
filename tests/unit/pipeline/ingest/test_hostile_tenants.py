"""Names that whoever may produce can give a tenant, through the commands that ask for one without Spark."""

from __future__ import annotations

from pathlib import Path

from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import CURSORS, EVENTS

from tests.brokers.workspace import run_main
from tests.samples.reports import EVIL
from tests.unit.pipeline.landings import event, stored

FILE = "version: 1\nname: trade\ntenant: t\nnamespace: n\ntopics: {orders: {fair_by: uid}}\n"
TENANTS = (
    "o'hara", 'quo"te', "line\nbreak", "a/b", "a%2Fb", "..", "/", "__HIVE_DEFAULT_PARTITION__", "date=2026-01-01", "' OR 1=1 --",
    "%", "\\", "{x}", "$" + "{x}", "x" * 5_000, "\u00fc\u202e", "\x1b[31m", "null", "(unknown)", EVIL, "-", "*",
)  # fmt: skip


def test_whatever_a_tenant_calls_itself_its_payloads_are_erased_and_no_others(tmp_path: Path, landing: Landing) -> None:
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    looked = landing.write_rows(CURSORS, "r", [{"ingest_run": "r", "msg_topic": "orders"}])
    landing.commit(LandingCommit("r", 1, tables={CURSORS.name: looked}))
    rows = [
        event(number) | {"tenant": tenant, "payload": b"x", "state": "ready"} for number, tenant in enumerate(TENANTS)
    ]
    landing.commit(LandingCommit("r", 1, 0, {EVENTS.name: landing.write_rows(EVENTS, "000000000-r", rows)}))
    landing.commit(LandingCommit("r-end", 1, facts={"complete": True}))
    at = (str(file), "--landing", str(tmp_path))
    answered = run_main("pipeline", "sql", at[0], *at[1:], "--format", "json", "SELECT tenant FROM events")
    assert {one["tenant"] for one in answered.json()} == set(TENANTS), answered.text
    assert "\x1b[31m" not in run_main("pipeline", "sql", *at, "SELECT tenant FROM events").out
    for number, tenant in enumerate(TENANTS):
        erased = run_main("pipeline", "erase", *at, f"--tenant={tenant}", "--reason", EVIL, "--yes", "--format", "json")
        assert erased.code == 0, erased.text
        assert erased.lines_json()[-1]["messages"] == 1, tenant
        assert "\x1b[31m" not in erased.text
        left = {row["tenant"] for row in stored(landing) if row["payload"] is not None}
        assert left == set(TENANTS[number + 1 :])
    assert run_main("pipeline", "maintain", *at, "--retain", "0s").code == 0
    assert {row["tenant"] for row in stored(landing)} == set(TENANTS)

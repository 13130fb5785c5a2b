"""From counted tables to a patch that git takes, after which the same data recommends nothing."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.recommend.noisy_neighbours import LevelMove
from kodo_pipeline.recommend.subscription_routes import movable_subscriptions
from kodo_pipeline.recommend.verified_patch import Recommendations, patch_topology
from kodo_pipeline.rollup.job import count

from kodoctl.errors import KodoctlError
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.brokers.workspace import run_main
from tests.spark.landed import event, land, record

pytestmark = pytest.mark.timeout(1200)
FILE = """\
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders:  # what is bought
    fair_by: uid
    message_properties: {uid: required}
    backup: true
    subscriptions:
      billing:
        audit: true  # needed by the pipeline
        routes:
          # small fish, for months
          - {when: {property: uid, in: [calm]}, to: B1}
  payments:
    subscriptions: {ledger: {}}
"""
BEGIN = datetime(2026, 1, 1, 9, tzinfo=UTC)


def traffic():
    """Fourteen windows: `noisy` floods the last four, and `quiet` ones wait; `calm` has been in B1, and small, all the time.
    Somebody dates a message ahead: that is no newest window.
    """
    events, records = [], []
    for window in range(14):
        at = BEGIN + timedelta(minutes=5 * window + 1)
        flood = window >= 10
        for tenant, many, age in (
            ("noisy", 150 if flood else 5, 100),
            ("q1", 12, 30_000 if flood else 50),
            ("q2", 12, 40),
            ("q3", 9, 40),
        ):
            events += [event("orders", "ready", at, tenant) for _ in range(many)]
            records += [record("orders", "done", at, tenant, age) for _ in range(many)]
        events += [event("orders", "ready", at, "calm"), event("orders-B1", "ready", at, "calm", level="B1")]
        records.append(record("orders-B1", "done", at, "calm"))
    return [*events, event("orders", "ready", datetime(9999, 12, 30, tzinfo=UTC), "evil")], records


def test_a_noisy_tenant_goes_a_calm_one_comes_back_and_then_there_is_nothing_more(spark, tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    (repository / "topologies").mkdir(parents=True)
    file = repository / "topologies" / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    landing = Landing(str(tmp_path / "landed"), "trade", None)
    land(landing, 0, *traffic())
    monkeypatch.chdir(repository)

    def run(*arguments):
        return run_main(
            "pipeline", "recommend", "topologies/trade.yaml", "--landing", str(tmp_path / "landed"), *arguments
        )

    missing = run()
    assert (missing.code, missing.out) == (64, "")
    assert "nothing has been counted [K802]" in missing.err
    count(spark, landing, expand(load_topology(str(file))), "r1")
    assert "[K804]" in run("--goal", "soon").err

    found = run()
    assert found.code == 0, found.text
    head, _, diff = found.out.partition("--- a/topologies/trade.yaml")
    assert "orders / billing: isolate noisy, L1 -> B1" in head
    assert "orders / billing: upgrade calm, B1 -> L1" in head
    assert "note: payments has no `fair_by`" in head
    name, done, late, p95, other = next(line.split() for line in head.splitlines() if line.startswith("  q1"))
    assert (name, done, late, other) == ("q1", "48", "48", "50")
    assert float(p95.replace(",", "")) == pytest.approx(30_000, rel=0.0104)
    assert max(map(len, head.splitlines())) <= 80
    assert [line for line in diff.splitlines() if line.startswith(("+", "-"))] == [
        "+++ b/topologies/trade.yaml",
        "-          - {when: {property: uid, in: [calm]}, to: B1}",
        "+          - {when: {property: uid, in: [noisy]}, to: B1}",
    ]
    assert file.read_text(encoding="utf-8") == FILE

    subprocess.run(["git", "apply"], cwd=repository, input=found.out.encode(), check=True)
    assert file.read_text(encoding="utf-8") == FILE.replace("[calm]", "[noisy]")
    again = json.loads(run("--format", "json").out)
    assert (again["moves"], again["patch"]) == ([], "")


def asked(tmp_path, text, environment=None):
    """The file, and what `noisy` to its first level below L1 makes of it."""
    file = tmp_path / "trade.yaml"
    file.write_text(text, encoding="utf-8")
    expansion = expand(load_topology(str(file), environment))
    place = movable_subscriptions(expansion)[0][0]
    move = LevelMove("orders", "billing", "noisy", "isolate", "L1", place.ladder[0], (0,), 0.9, 0.5, 0.0)
    return patch_topology(expansion, Recommendations([(place, [move])], []))


def test_routes_are_written_where_the_environment_has_them(tmp_path):
    overlay = """\
environments:
  prod:
    topics: {orders: {subscriptions: {billing: {routes: []}}}}
  test:
    topics: {orders: {partitions: 2}}
"""
    text = FILE.replace("    backup: true\n", "").replace(
        "{property: uid, in: [calm]}, to: B1", "{property: uid, equals: vip}, to: L2"
    )
    text = text.replace("    message_properties", "    levels: double\n    message_properties") + overlay
    before, after = asked(tmp_path, text, "prod")
    assert before == text
    assert "routes: [{when: {property: uid, in: [noisy]}, to: B1}]" in after
    assert after.count("noisy") == 1
    assert "    backup: true\n" in after
    after = asked(tmp_path, "\ufeff" + text, "test")[1]
    assert after.startswith("\ufeffversion: 1\n")
    assert "          - {when: {property: uid, in: [noisy]}, to: B1}\n" in after


@pytest.mark.parametrize(
    ("old", "new"),
    [("routes:\n", "routes: &r\n"), ("{property: uid, in: [calm]}", "{property: uid, exists: true}")],
    ids=["it would change another place, too", "an earlier route takes all"],
)
def test_a_patch_that_would_say_something_else_is_refused(tmp_path, old, new):
    text = FILE.replace(old, new)
    if "&r" in new:
        reader = "fair_by: uid\n    backup: true\n    message_properties: {uid: required}\n    subscriptions: {ledger: {routes: *r}}"
        text = text.replace("subscriptions: {ledger: {}}", reader)
    with pytest.raises(KodoctlError, match="K803") as found:
        asked(tmp_path, text)
    assert "orders / billing: noisy from L1 to B1" in found.value.diagnostics[0].detail


def test_who_cannot_be_judged_is_named(tmp_path):
    file = tmp_path / "trade.yaml"
    head, _, _ = FILE.partition("  orders:")
    uid = "fair_by: uid, message_properties: {uid: required}"
    topics = f"""\
  a: {{fair_by: key, subscriptions: {{s: {{audit: true}}}}}}
  b: {{{uid}, subscriptions: {{s: {{audit: true, type: key_shared}}, t: {{}}}}}}
"""
    file.write_text(head + topics, encoding="utf-8")
    places, notes = movable_subscriptions(expand(load_topology(str(file))))
    assert [(one.topic, one.fair_by) for one in places] == [("a", "key")]
    assert [note.partition(":")[0] for note in notes] == [
        "b / s keeps order",
        "b / t has no `audit",
    ]

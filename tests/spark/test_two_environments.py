"""Two environments of one file under one landing, on one cluster: each has its own verdict. And a file of the same name that is in
another namespace.
"""

from __future__ import annotations

from typing import Any

import pytest
from kodo_pipeline.landing.landing_store import Landing

from tests.brokers.topics import create_topics
from tests.brokers.workspace import Run, Workspace, run_main

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]
FILE = """
version: 1
name: trade
tenant: $tenant
namespace: dev
environments:
  dev: {}
  prod: {namespace: prod}
topics:
  orders:
    fair_by: uid
    partitions: 1
    subscriptions:
      billing: {audit: true}
"""
AT = ("topologies/trade.yaml", "--landing", "landed")


@pytest.fixture
def shop(workspace: Workspace) -> Workspace:
    """The topics of both environments, created and empty."""
    _made(workspace, FILE, "trade.yaml", "dev", "prod")
    return workspace


def _made(workspace: Workspace, text: str, name: str, *environments: str) -> None:
    """A file, and its topics in these environments. Nothing is deleted."""
    file = str(workspace.write(text, name))
    for environment in environments:
        namespace = f"namespaces/{workspace.tenant}/{environment}"
        workspace.admin("PUT", namespace)
        workspace.admin("POST", f"{namespace}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
        create_topics(workspace.broker, file, environment)


def _judged(shop: Workspace, environment: str, page: str = "--no-report") -> tuple[str, dict[str, int]]:
    """Verdict of a run, and messages by fate."""
    run = ("pipeline", "run", *AT, "--env", environment, "--ledger", "recalls", page, "--format", "json")
    lines = shop.run(*run, code=None).lines_json()
    (found,) = [one for one in lines if one["event"] == "verdict"]
    return found["verdict"], found["audit"]["subscriptions"][0]["messages"]


def _apart(*words: str) -> Run:
    """A command that needs no broker."""
    found = run_main("pipeline", *words, "--format", "json")
    assert found.code == 0, found.text
    return found


def _payloads(environment: str) -> Any:
    """How many messages, and how many payloads, have landed."""
    (found,) = _apart(
        "sql", *AT, "--env", environment, "SELECT count(*) AS n, count(payload) AS kept FROM events"
    ).json()
    return found["n"], found["kept"]


def test_environments_of_one_file_under_one_landing_have_verdicts_of_their_own(spark: object, shop: Workspace) -> None:
    for environment in ("dev", "prod"):
        assert _judged(shop, environment) == ("no loss", {})
    shop.publish(shop.full("orders", "prod"), 2)
    shop.publish(shop.full("orders", "dev"), 3)
    shop.admin("POST", f"{shop.path('orders', 'dev')}/subscription/billing/skip_all")
    dev, prod = ("loss", {"lost": 3}), ("no loss", {"open": 2})
    for _ in range(2):  # by increments the second time
        assert (_judged(shop, "prod"), _judged(shop, "dev")) == (prod, dev)
    assert (_payloads("prod"), _payloads("dev")) == ((2, 2), (3, 3))
    _apart("erase", *AT, "--env", "dev", "--tenant", "(none)", "--reason", "asked for", "--yes")
    _apart("maintain", *AT, "--env", "dev", "--retain", "0s")
    assert (_payloads("prod"), _payloads("dev")) == ((2, 2), (3, 0))
    assert (_judged(shop, "prod", "--out=pages"), _judged(shop, "dev", "--out=pages")) == (prod, dev)
    pages = sorted(one.name for one in (shop.folder / "pages").iterdir())
    assert pages == ["trade-dev-report.html", "trade-prod-report.html"], "neither is in the place of the other"
    with Landing(str(shop.folder / "landed"), "trade", "dev").alone("run"):
        assert _judged(shop, "prod") == prod, "a run of one is none of the other"


def test_a_file_of_the_same_name_in_another_namespace_is_refused_before_anything_is_written(
    spark: object, shop: Workspace
) -> None:
    shop.publish(shop.full("orders", "prod"), 2)
    shop.run("pipeline", "ingest", *AT, "--env", "prod")
    landing = Landing(str(shop.folder / "landed"), "trade", "prod")
    before = landing.commits()
    _made(shop, FILE.replace("  prod: {namespace: prod}", "  prod: {namespace: theirs}\n  theirs: {namespace: theirs}"),
          "theirs.yaml", "theirs")  # fmt: skip
    shop.publish(shop.full("orders", "theirs"), 5)
    theirs = ("topologies/theirs.yaml", "--landing", "landed", "--env", "prod")
    for command in (("ingest", *theirs), ("run", *theirs, "--no-report")):
        found = shop.run("pipeline", *command, code=1)
        assert "[K590]" in found.err, found.text
        assert f"topics of {shop.tenant}/prod, and trade is in {shop.tenant}/theirs" in " ".join(found.err.split())
    assert landing.commits() == before
    assert _judged(shop, "prod") == ("no loss", {"open": 2})

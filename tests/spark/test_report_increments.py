"""A calm history, audited by increments and of all rows: both find the same, and so does a page made of either."""

from __future__ import annotations

import dataclasses

import pytest
from kodo_pipeline.audit.audit_inputs import landed_inputs
from kodo_pipeline.audit.incremental_audit import AuditOptions, judged_landing
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.report.job import gather_facts
from kodo_pipeline.rollup.job import count

from tests.spark.histories import History
from tests.spark.test_audit_increments import expansion, of_all_rows

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
__all__ = ["expansion"]


def page(spark, landing, expansion, letters, options):
    """(what the page is made of, how it was judged)."""
    inputs = landed_inputs(spark, landing, expansion, tuple(letters), {}, None)
    with judged_landing(spark, landing, inputs, options) as judged:
        facts = gather_facts(spark, landing, expansion, judged)
    basis = facts.audit.pop("judged")
    return dataclasses.replace(facts, waiting=sorted(facts.waiting, key=str)), basis


def test_a_page_of_what_is_new_is_that_of_all_rows(spark, tmp_path, expansion):
    landing = Landing(str(tmp_path / "landing"), "histories", None)
    history = History(expansion, landing, 3, calm=True)
    for number in range(3):
        history.step(60)
        count(spark, landing, expansion, f"20260101-000000-c{number}")
        facts, basis = page(
            spark, landing, expansion, history.letters, AuditOptions(f"20260101-000000-{number}", few=0)
        )
        assert (basis["all_rows"], basis["unsaved"]) == (number == 0, "")
        if number:
            full = of_all_rows(spark, landing, expansion, history.letters)
            assert {key: value for key, value in full.items() if key != "waiting"} == facts.audit, (number, basis)
    assert basis["settled_before"] > 50, "else nothing was tried"
    before = landing.commits()
    for options in (AuditOptions("", few=0, is_read_only=True), AuditOptions("", few=1 << 62)):
        again, basis = page(spark, landing, expansion, history.letters, options)
        assert again == facts, basis
        assert basis["all_rows"] == bool(options.few)
    assert landing.commits() == before, "a report writes nothing"
    assert {one["msg_topic"] for one in facts.waiting if one["state"] == "dead"}, "else nothing was tried"

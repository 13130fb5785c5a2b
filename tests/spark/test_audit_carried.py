"""Every planted disaster, judged again from what the state of an audit keeps of it: the same messages, places and causes."""

from __future__ import annotations

from collections import Counter

import pytest

from kodoctl.pipeline.audit.audit_state import SettledTotals, letter_hash
from kodoctl.pipeline.audit.classify import findings, judged, messages, outcomes, tallied
from kodoctl.pipeline.audit.job import AuditResult
from kodoctl.pipeline.audit.judged_rows import CarriedRows, LandedTables, RecalledLetter, judged_rows
from kodoctl.pipeline.audit.positions import LANES, hops, places
from kodoctl.pipeline.audit.recalled import with_evidence
from kodoctl.pipeline.audit.settlement import open_places, settled_messages, state_frames, surprises
from kodoctl.pipeline.ingest.state_tables import DEAD_LETTERS, MARKS, NUMBERS, OPEN_EVENTS, OPEN_RECORDS, SETTLED
from tests.spark import disasters, world
from tests.spark.world import waiting_of

pytestmark = pytest.mark.timeout(900)


def classified(rows, lanes):
    letters = with_evidence(rows.booked, rows.events)
    known = outcomes(places(rows.events, rows.transitions, letters, lanes, rows.booked), lanes).persist()
    return known, judged(known, hops(rows.events, lanes))


def counted(verdicts):
    found = Counter()
    for row in tallied(messages(verdicts)).collect():
        found[row["family"], row["rank"]] += row["messages"]
    return found


def named(verdicts, lanes):
    return sorted(tuple(row)[:6] for row in findings(verdicts, lanes).collect())


def test_what_is_kept_is_judged_as_it_was(spark, tmp_path):
    worlds = [one.world for one in disasters.ALL]
    events = spark.createDataFrame([row for w in worlds for row in w.events], world.EVENTS)
    transitions = spark.createDataFrame([row for w in worlds for row in w.transitions], world.TRANSITIONS)
    letters = [RecalledLetter(*row) for w in worlds for row in w.letters]
    table = [row for w in worlds for row in w.lanes()]
    lanes = spark.createDataFrame(table, LANES)
    tables = LandedTables(events, transitions, events, events)
    rows = judged_rows(spark, tables, lanes, letters, None, None)
    known, verdicts = classified(rows, lanes)
    first = counted(verdicts)
    result = AuditResult(tables, None, lanes, verdicts, known, rows, SettledTotals())
    decided = result.messages.persist()
    columns = ["family", "identity", "rank"]
    alone = settled_messages(known).where("settled").select(columns)
    assert sorted(alone.collect()) == sorted(decided.where("settled").select(columns).collect()), (
        "next hops settle nothing"
    )
    done = tallied(decided).where("settled").collect()
    settled = Counter({(row["family"], row["rank"]): row["messages"] for row in done})
    assert settled.total() > len(worlds) / 2, "or nothing was tried"
    kept = {}
    for one, frame in state_frames(result, decided, open_places(result, decided).persist()).items():
        frame.write.parquet(str(tmp_path / one.name))
        kept[one] = spark.read.schema(one.spark()).parquet(str(tmp_path / one.name))
    seen = {letter_hash(one) for one in letters}
    frames = [kept[one] for one in (OPEN_EVENTS, OPEN_RECORDS, SETTLED, DEAD_LETTERS, NUMBERS, MARKS)]
    carried = CarriedRows(*frames, seen, SettledTotals(settled), events)
    nothing = LandedTables(events.limit(0), transitions.limit(0), events, events)
    again = judged_rows(spark, nothing, lanes, letters, None, carried)
    outcome, later = classified(again, lanes)
    assert settled + counted(later) == first
    assert named(later, lanes) == named(verdicts, lanes)
    ends = {(one["msg_topic"], 0): (one["last_ledger"], one["last_entry"]) for one in table}
    second = AuditResult(nothing, None, lanes, later, outcome, again, SettledTotals(settled))
    assert surprises(second, carried, ends) == []
    assert kept[DEAD_LETTERS].count() > 1, "or nothing was tried"
    assert waiting_of(second) == waiting_of(result)

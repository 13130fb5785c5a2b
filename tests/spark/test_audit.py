"""Every planted disaster is found, every clean run says so, what cannot be proved is inconclusive: all in one pass. And judged again
from what the state of an audit keeps of it: the same messages, places and causes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pytest
from kodo_pipeline.audit.audit_state import SettledTotals, letter_hash
from kodo_pipeline.audit.classify import findings, messages, outcomes, place_outcomes, status_counts
from kodo_pipeline.audit.completeness import (
    contradictions,
    gaps_of,
    missing_of,
    overview,
    producer_marks,
    producer_ranges,
    record_ranges,
    strays,
)
from kodo_pipeline.audit.job import AuditResult
from kodo_pipeline.audit.judged_rows import CarriedRows, JudgedRows, LandedTables, RecalledLetter, judged_rows
from kodo_pipeline.audit.positions import LANES, hops, places
from kodo_pipeline.audit.recalled import WEIGHED, with_evidence
from kodo_pipeline.audit.settlement import open_places, settled_messages, state_frames, surprises
from kodo_pipeline.audit.signatures import genuine
from kodo_pipeline.audit.verdict import decide_verdict
from kodo_pipeline.evidence.audit_evidence import AuditEvidence, MessageStatus, Misaddressed
from kodo_pipeline.landing.state_tables import DEAD_LETTERS, MARKS, NUMBERS, OPEN_EVENTS, OPEN_RECORDS, SETTLED

from kodoctl.pulsar.connection.secret import Secret
from tests.spark import disasters, world
from tests.spark.world import waiting_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FATES = list(MessageStatus)
WORLDS = [one.world for one in disasters.ALL]
pytestmark = pytest.mark.timeout(900)  # one pass for all of them, and a busy machine plans it slowly


class Planted(NamedTuple):
    """All disasters as tables, and what an audit of all rows makes of them. `known`: of
    kodo_pipeline.audit.classify.outcomes; `verdicts`: of `judged` there; `counted`: messages by family and rank;
    `named`: its findings.
    """

    tables: LandedTables
    letters: list[RecalledLetter]
    lanes: DataFrame
    rows: JudgedRows
    known: DataFrame
    verdicts: DataFrame
    counted: Counter
    named: list


@pytest.fixture(scope="module")
def planted(spark):
    events = spark.createDataFrame([row for w in WORLDS for row in w.events], world.EVENTS)
    transitions = spark.createDataFrame([row for w in WORLDS for row in w.transitions], world.TRANSITIONS)
    letters = [RecalledLetter(*row) for w in WORLDS for row in w.letters]
    lanes = spark.createDataFrame([row for w in WORLDS for row in w.lanes()], LANES)
    tables = LandedTables(events, transitions, events, events)
    rows = judged_rows(spark, tables, lanes, letters, None, None)
    known, verdicts = classified(rows, lanes)
    verdicts = verdicts.persist()
    named = findings(verdicts, lanes).collect()
    return Planted(tables, letters, lanes, rows, known, verdicts, counted(verdicts), named)


def classified(rows, lanes):
    letters = with_evidence(rows.booked, rows.events)
    known = outcomes(places(rows.events, rows.transitions, letters, lanes, rows.booked), lanes).persist()
    return known, place_outcomes(known, hops(rows.events, lanes))


def counted(verdicts):
    found = Counter()
    for row in status_counts(messages(verdicts)).collect():
        found[row["family"], row["rank"]] += row["messages"]
    return found


@pytest.fixture(scope="module")
def found(planted):
    """(verdict, counts by fate, findings) by the world's name."""
    events, transitions, lanes = planted.tables.events, planted.tables.transitions, planted.lanes
    fates = defaultdict(Counter)
    for (family, rank), count in planted.counted.items():
        fates[family][FATES[rank]] += count
    missing = {row.family: row.missing for row in missing_of(record_ranges(transitions, lanes)).collect()}
    forged = {row.family: row.contradictions for row in contradictions(transitions, lanes).collect()}
    gaps = defaultdict(list)
    for keys in {one.keys for one in WORLDS}:
        numbered = events.where(events["msg_topic"].isin([w.topic("ready") for w in WORLDS if w.keys == keys]))
        marks = producer_marks(numbered, genuine(Secret(keys)) if keys else None)
        for row in gaps_of(producer_ranges(numbered), marks, signed=bool(keys)).collect():
            gaps[row.msg_topic].append((row.seq_partition, row.seq_run, row.missing, row.overdue, row.claimed))
    astray = defaultdict(list)
    for row in strays(events, lanes).collect():
        astray[row.msg_topic].append(Misaddressed(*row))
    places_of = defaultdict(list)
    for row in planted.named:
        places_of[row.topic].append(row)
    verdicts = {}
    for one in WORLDS:
        tally = one.tally(fates[one.family], missing.get(one.family, 0), forged.get(one.family, 0))
        own = tuple(one.gap(*gap) for gap in gaps[one.topic("ready")])
        verdict = decide_verdict(
            AuditEvidence(tuple(one.parts), (tally,), own, one.clock, strays=tuple(astray[one.topic("ready")]))
        )
        verdicts[one.name] = (verdict, tally, places_of[one.name])
    return verdicts


@pytest.mark.parametrize("disaster", disasters.ALL, ids=[one.world.name for one in disasters.ALL])
def test_what_is_found(found, disaster):
    verdict, tally, rows = found[disaster.world.name]
    told = [reason.text for reason in verdict.reasons]
    expected = {fate: count for fate, count in disaster.fates.items() if count}
    seen = {
        fate: count for fate, count in tally.fates.items() if fate is not MessageStatus.NOT_FOR_ME or fate in expected
    }
    assert seen == expected, rows
    assert verdict.outcome is disaster.outcome, told
    assert disaster.says in (told or [""])[0]


def test_a_lost_message_is_named(found):
    rows = found["skipped"][2]
    message = disasters.ALL[[one.world.name for one in disasters.ALL].index("skipped")].world
    assert [(row.fate, row.subscription, row.msg_topic, row.id) for row in rows] == [
        ("lost", "billing", message.topic("ready"), f"{message.ledger('ready')}:1:0:-1")
    ]
    assert rows[0].cause.startswith("acknowledged without")


def test_the_newest_message_and_first_hops_without_a_number(spark):
    one = world.World("numbers")
    one.number(1)
    one.move(one.done(age=-5))
    row = overview(spark.createDataFrame(one.events, world.EVENTS)).collect()[0]
    assert (row.newest, row.unnumbered) == (world.NOW + 5, 1)


def test_a_message_of_the_most_hops_ends_no_audit(spark):
    """Whoever sends one writes its number of hops, and the next one had no place in 32 bits."""
    one = world.World("hops")
    one.done(hop=2**31 - 1)
    one.move(one.store())
    frames = [
        spark.createDataFrame(rows, schema)
        for rows, schema in ((one.events, world.EVENTS), (one.transitions, world.TRANSITIONS))
    ]
    nothing, lanes = spark.createDataFrame([], WEIGHED), spark.createDataFrame(list(one.lanes()), LANES)
    verdicts = place_outcomes(outcomes(places(*frames, nothing, lanes), lanes), hops(frames[0], lanes))
    assert {FATES[rank] for _, rank in counted(verdicts)} >= {MessageStatus.DONE}


def test_the_place_that_a_record_names_is_split_once(spark):
    nothing = [spark.createDataFrame([], schema) for schema in (world.EVENTS, world.TRANSITIONS, WEIGHED, LANES)]
    plan = places(*nothing)._jdf.queryExecution().optimizedPlan().toString()
    filters = [line for line in plan.splitlines() if "Filter " in line and "split(" in line]
    assert [line.count("split(") for line in filters] == [1], filters  # of records that name a next place
    assert all("split(if ((target_id#" in line for line in filters)


def test_what_is_kept_is_judged_as_it_was(spark, planted, tmp_path):
    tables, letters, lanes, rows, known, verdicts, first, named = planted
    events, transitions = tables.events, tables.transitions
    result = AuditResult(tables, None, lanes, verdicts, known, rows, SettledTotals())
    decided = result.messages.persist()
    columns = ["family", "identity", "rank"]
    alone = settled_messages(known).where("settled").select(columns)
    assert sorted(alone.collect()) == sorted(decided.where("settled").select(columns).collect()), (
        "next hops settle nothing"
    )
    done = status_counts(decided).where("settled").collect()
    settled = Counter({(row["family"], row["rank"]): row["messages"] for row in done})
    assert settled.total() > len(WORLDS) / 2, "or nothing was tried"
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
    assert sorted(tuple(row)[:6] for row in findings(later, lanes).collect()) == sorted(tuple(row)[:6] for row in named)
    ends = {(one["msg_topic"], 0): (one["last_ledger"], one["last_entry"]) for w in WORLDS for one in w.lanes()}
    second = AuditResult(nothing, None, lanes, later, outcome, again, SettledTotals(settled))
    assert surprises(second, carried, ends) == []
    assert kept[DEAD_LETTERS].count() > 1, "or nothing was tried"
    assert waiting_of(second) == waiting_of(result)

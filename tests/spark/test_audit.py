"""Every planted disaster is found, every clean run says so, what cannot be proved is inconclusive: all in one pass."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from kodoctl.pipeline.audit.classify import findings, judged, messages, outcomes, tallied
from kodoctl.pipeline.audit.completeness import contradictions, missing_records, overview, producer_gaps, strays
from kodoctl.pipeline.audit.judged_rows import RecalledLetter
from kodoctl.pipeline.audit.positions import LANES, hops, places
from kodoctl.pipeline.audit.recalled import LETTERS, WEIGHED, with_evidence
from kodoctl.pipeline.audit.signatures import genuine
from kodoctl.pipeline.audit.verdict import AuditEvidence, MessageStatus, Misaddressed, decide_verdict
from kodoctl.pulsar.secret import Secret
from tests.spark import disasters, world

FATES = list(MessageStatus)
pytestmark = pytest.mark.timeout(900)  # one pass for all of them, and a busy machine plans it slowly


@pytest.fixture(scope="module")
def found(spark):
    """(verdict, counts by fate, findings) by the world's name."""
    worlds = [one.world for one in disasters.ALL]
    events = spark.createDataFrame([row for w in worlds for row in w.events], world.EVENTS)
    transitions = spark.createDataFrame([row for w in worlds for row in w.transitions], world.TRANSITIONS)
    booked = [RecalledLetter(*row) for w in worlds for row in w.letters]
    letters = with_evidence(spark.createDataFrame(booked, LETTERS), events)
    lanes = spark.createDataFrame([row for w in worlds for row in w.lanes()], LANES)
    came = outcomes(places(events, transitions, letters, lanes), lanes).persist()
    known = judged(came, hops(events, lanes)).persist()
    fates = defaultdict(Counter)
    for row in tallied(messages(known)).collect():
        fates[row.family][FATES[row["rank"]]] += row.messages
    missing = {row.family: row.missing for row in missing_records(transitions, lanes).collect()}
    forged = {row.family: row.contradictions for row in contradictions(transitions, lanes).collect()}
    gaps = defaultdict(list)
    for keys in {one.keys for one in worlds}:
        numbered = events.where(events["msg_topic"].isin([w.topic("ready") for w in worlds if w.keys == keys]))
        for row in producer_gaps(numbered, genuine(Secret(keys)) if keys else None).collect():
            gaps[row.msg_topic].append((row.seq_partition, row.seq_run, row.missing, row.overdue, row.claimed))
    astray = defaultdict(list)
    for row in strays(events, lanes).collect():
        astray[row.msg_topic].append(Misaddressed(*row))
    places_of = defaultdict(list)
    for row in findings(known, lanes).collect():
        places_of[row.topic].append(row)
    verdicts = {}
    for one in worlds:
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


def test_the_place_that_a_record_names_is_split_once(spark):
    nothing = [spark.createDataFrame([], schema) for schema in (world.EVENTS, world.TRANSITIONS, WEIGHED, LANES)]
    plan = places(*nothing)._jdf.queryExecution().optimizedPlan().toString()
    filters = [line for line in plan.splitlines() if "Filter " in line and "split(" in line]
    assert [line.count("split(") for line in filters] == [1], filters  # of records that name a next place
    assert all("split(if ((target_id#" in line for line in filters)

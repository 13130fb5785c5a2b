"""The state of audits: what a commit says of it, and when the next audit may begin with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kodo_pipeline.audit.audit_state import (
    AuditState,
    SettledTotals,
    basis_of,
    dead_cursors,
    ends_of,
    fresh_files,
    is_of_other_rules,
    landed_rows,
    last_batch,
    letter_hash,
)
from kodo_pipeline.evidence.readings import AuditedSubscription, AuditScope
from kodo_pipeline.landing.data_files import DataFile
from kodo_pipeline.landing.landing_commits import AUDIT_RUN, LandingCommit, TableFiles
from kodo_pipeline.landing.removal_record import RemovalRecord, RemovedTotals
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS

from kodoctl.pulsar.connection.secret import Secret

TOTALS = SettledTotals({(0, 3): 7, (1, 1): 2}, {0: 1}, 17, 4, {("t", "nobody"): 3})
STATE = AuditState(
    "digest",
    4,
    {"events": 9, "transitions": 8},
    {("t", 0): (7, 12)},
    TOTALS,
    {"audit_settled": 9},
    dead={("t-DLQ", 0): "digest"},
)


def file(batch: int, rows: int) -> DataFile:
    return DataFile(f"{batch:09d}-r1/part.parquet" if batch >= 0 else "compacted/part.parquet", 1, rows, {})


def batch(number: int, events: int, records: int) -> LandingCommit:
    tables = {EVENTS.name: TableFiles(events), TRANSITIONS.name: TableFiles(records)}
    return LandingCommit("r1", 1, number, tables, number=number)


def ground(**lane: object) -> AuditScope:
    known = {"msg_topic": "t", "msg_partition": 0, "subscription": "s", "state": "ready", "family": 0, "last_ledger": 7,
             "last_entry": 12} | lane  # fmt: skip
    return AuditScope((AuditedSubscription(0, "t", "s", "wait"),), (), (known,))


def test_a_commit_holds_it() -> None:
    commits = [batch(0, 9, 8), LandingCommit(AUDIT_RUN, 1, facts=STATE.to_facts(), number=5)]
    assert AuditState.of(commits) == replace(STATE, number=5)
    assert AuditState.of(commits[:1]) is None
    other = LandingCommit(AUDIT_RUN, 1, facts=STATE.to_facts() | {"rules": -1})
    assert AuditState.of([other]) is None, "another kodoctl judged by other rules"
    assert [is_of_other_rules(one) for one in ([other], commits, commits[:1])] == [True, False, False]
    assert STATE.totals.messages == 9
    assert STATE.is_small
    many = {("t", str(number)): 1 for number in range(10_001)}
    assert not replace(STATE, totals=replace(TOTALS, meant=many)).is_small


@pytest.mark.parametrize(("rows", "whole"), [([9], True), ([4, 5], True), ([5], False), ([], False), ([9, 1], False)])
def test_tables_that_lack_rows_are_none_of_its(rows: list[int], whole: bool) -> None:
    assert STATE.is_whole({"audit_settled": [file(-1, one) for one in rows]}) is whole


def test_whatever_changes_what_is_settled_is_in_its_basis() -> None:
    keys = Secret("a key of the platform")
    found = [
        basis_of(ground(), None),
        basis_of(ground(), keys),
        basis_of(ground(msg_partition=1), None),
        basis_of(ground(state="retrying"), None),
        basis_of(replace(ground(), families=(AuditedSubscription(0, "t", "s", "none"),)), None),
    ]
    assert len(set(found)) == len(found)
    assert basis_of(ground(last_entry=99), None) == found[0], "what was read since is no other basis"


def test_ends_are_those_of_what_was_read() -> None:
    assert ends_of(ground()) == {("t", 0): (7, 12)}
    assert ends_of(ground(last_ledger=None, last_entry=None)) == {}


def test_a_cursor_of_dead_letters_that_moves_is_another() -> None:
    cursor: dict[str, Any] = {
        "state": "dead",
        "mark_ledger": 7,
        "mark_entry": 3,
        "acknowledged": [{"ledger": 7, "first": 5, "last": 6}],
    }
    known = dead_cursors(ground(**cursor))
    assert list(known) == [("t", 0)]
    assert dead_cursors(ground(**cursor, last_entry=99)) == known, "another letter is there, and none is released"
    moved: list[dict[str, Any]] = [
        {"mark_entry": 4},
        {"mark_ledger": None, "mark_entry": None, "acknowledged": None},
        {"acknowledged": []},
    ]
    found = [dead_cursors(ground(**(cursor | one)))["t", 0] for one in [{}, *moved]]
    assert len(set(found)) == len(found)
    assert dead_cursors(ground(**(cursor | {"state": "ready"}))) == {}, "of others records tell"


def test_what_is_behind_it_is_new() -> None:
    commits = [batch(0, 5, 4), batch(4, 4, 4), batch(5, 2, 1), LandingCommit("r1-end", 1)]
    assert (last_batch(commits), last_batch([])) == (5, -1)
    assert landed_rows(commits) == {"events": 11, "transitions": 9}


@pytest.mark.parametrize(("events", "fresh"), [
    ([file(0, 5), file(4, 4), file(5, 2)], 1),
    ([file(-1, 9), file(5, 2)], 1),  # put together
    ([file(-1, 11)], None),  # with what is new
    ([file(0, 5), file(5, 2)], None),  # removed
])  # fmt: skip
def test_new_files_are_those_of_later_batches_if_the_others_have_what_was_judged(
    events: list[DataFile], fresh: int | None
) -> None:
    files = {EVENTS.name: events, TRANSITIONS.name: [file(0, 8)]}
    found = fresh_files(STATE, files)
    counts = None if found is None else {table.name: len(one) for table, one in found.items()}
    assert counts == (None if fresh is None else {"events": fresh, "transitions": 0})


def test_rows_that_were_removed_are_not_missing_and_their_counts_go_on() -> None:
    files = {EVENTS.name: [file(0, 3)], TRANSITIONS.name: [file(0, 8)]}
    assert fresh_files(STATE, files, {EVENTS.name: 6}) == {EVENTS: [], TRANSITIONS: []}
    assert fresh_files(STATE, files, {EVENTS.name: 5}) is None
    totals = RemovedTotals(6, 0, 17, 2, {("t", "nobody"): 3})
    found = SettledTotals.of_removed(RemovalRecord("m1", 99, 4, totals=totals))
    assert found == SettledTotals(newest=17, unnumbered=2, meant={("t", "nobody"): 3}, since=99, removal="m1")
    assert SettledTotals.of_removed(None) == SettledTotals()
    commits = [LandingCommit(AUDIT_RUN, 1, facts=replace(STATE, totals=found).to_facts())]
    assert AuditState.of(commits) == replace(STATE, totals=found)


def test_a_letter_whose_state_changes_has_another_hash() -> None:
    assert letter_hash(("t", 0, "sent")) == letter_hash(["t", 0, "sent"])
    assert letter_hash(("t", 0, "sent")) != letter_hash(("t", 0, "discarded"))
    assert -(2**63) <= letter_hash(("t",)) < 2**63

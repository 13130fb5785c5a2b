"""Statuses of commits, from a reading of the log and a reading of the topics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kodo_consumer.source.commit_proof import (
    MOST_FINDINGS,
    CommitStatus,
    ProofInputs,
    RequiredMessage,
    prove,
)
from kodo_consumer.source.identity import Span
from kodo_consumer.source.positions import Position

HERE = Position(100, 0)
ONE = RequiredMessage(end=148, time=5_000, table="public.orders", ground="orders", partition="orders-0")
HOW = "r1"
READING = ProofInputs(
    50, 500, {HERE: ONE}, {("orders", HERE): 1}, 300, [Span(50, 300, HOW)], {"orders-0": Position(40, 0)}, HOW
)


def status(reading: ProofInputs) -> tuple[CommitStatus, str]:
    """CommitStatus of the only commit, and the text of its finding."""
    proof = prove(reading)
    (found,) = (one for one, count in proof.commits.items() if count)
    return found, proof.findings[0].text if proof.findings else ""


def test_a_commit_whose_messages_are_stored_is_proved() -> None:
    proof = prove(READING)
    assert proof.commits[CommitStatus.STORED] == 1
    assert (proof.messages, proof.findings, proof.end) == (1, [], 500)
    assert proof.is_conclusive
    assert not proof.is_loss


def test_a_commit_is_as_bad_as_the_worst_of_its_messages() -> None:
    expected = {HERE: ONE, Position(100, 1): ONE}
    for place in (HERE, Position(100, 1)):
        proof = prove(replace(READING, expected=expected, stored={("orders", place): 1}))
        assert (proof.commits[CommitStatus.MISSING], proof.commits[CommitStatus.STORED]) == (1, 0)


def test_a_commit_without_messages_is_no_commit_of_the_proof() -> None:
    proof = prove(replace(READING, expected={}, stored={}))
    assert sum(proof.commits.values()) == 0
    assert proof.is_conclusive


@pytest.mark.parametrize(
    ("change", "wanted", "text"),
    [
        ({}, CommitStatus.MISSING, "though a mark says that all up to 0/94 is stored"),
        ({"spans": [Span(10, 90, HOW)]}, CommitStatus.MISSING, "no stored mark covers it"),
        ({"spans": [Span(10, 90, HOW), Span(200, 300, HOW)]}, CommitStatus.MISSING, "no stored mark covers it"),
        ({"covered": 147}, CommitStatus.NOT_COVERED, "committed at 1970-01-01 00:00:05 UTC"),
        ({"spans": [Span(0, 300, HOW)]}, CommitStatus.UNKNOWN, "a snapshot came later"),
        (
            {"first": {"orders-0": None}},
            CommitStatus.UNKNOWN,
            "orders-0 stores no message of this source that is older",
        ),
        ({"first": {"orders-0": Position(101, 0)}}, CommitStatus.UNKNOWN, "so retention may have removed it"),
        ({"expected": {HERE: ONE._replace(doubt="its row is gone")}}, CommitStatus.UNKNOWN, "unknown, its row is gone"),
        ({"doubts": {("orders", HERE): "it is not signed"}}, CommitStatus.UNKNOWN, "unknown, it is not signed"),
        ({"spans": []}, CommitStatus.UNKNOWN, "no mark from before it is stored"),
        ({"spans": [Span(200, 300, HOW)]}, CommitStatus.UNKNOWN, "no mark from before it is stored"),
        ({"spans": [Span(50, 300)]}, CommitStatus.UNKNOWN, "the mark of an earlier release does not say"),
        (
            {"spans": [Span(50, 200, "r0"), Span(200, 300, HOW)]},
            CommitStatus.UNKNOWN,
            "the topology changed at 0/C8: verify with the file of before",
        ),
        ({"spans": [Span(50, 300, "r0")]}, CommitStatus.UNKNOWN, "no run has used the present file yet"),
        ({"spans": [Span(50, 300, "r0"), Span(90, 300, HOW)]}, CommitStatus.MISSING, "though a mark says"),
        ({"spans": [Span(10, 90, HOW), Span(200, 300, "r2")]}, CommitStatus.UNKNOWN, "the topology changed since then"),
        ({"spans": [Span(10, 90, "r0"), Span(200, 300, HOW)]}, CommitStatus.UNKNOWN, "the topology changed at 0/C8"),
    ],
)
def test_a_message_without_copy(change: dict[str, object], wanted: CommitStatus, text: str) -> None:
    reading = replace(READING, stored={}, **change)  # type: ignore[arg-type]
    found, said = status(reading)
    assert found is wanted
    assert text in said
    assert said.startswith(f"public.orders at 0/64#0: {wanted}")
    proof = prove(reading)
    assert (proof.is_conclusive, proof.is_loss, proof.end) == (False, wanted is CommitStatus.MISSING, 100)


def test_a_copy_on_another_topic_is_not_that_of_the_change() -> None:
    reading = replace(READING, stored={("bills", HERE): 1})
    proof = prove(reading)
    assert proof.commits[CommitStatus.MISSING] == 1
    both = prove(replace(READING, stored={("bills", HERE): 1, ("orders", HERE): 1}))
    assert [one.text for one in both.findings] == [
        "0/64#0: unknown, it is stored once on bills, and the log has no such change for this topic"
    ]


def test_copies_in_doubt_are_never_proof() -> None:
    found, said = status(replace(READING, doubts={("orders", HERE): "it is out of order"}))
    assert (found, said) == (CommitStatus.UNKNOWN, "public.orders at 0/64#0: unknown, it is out of order")


def test_messages_of_others_are_counted_beside_the_proof() -> None:
    proof = prove(replace(READING, strangers={"shop-4-2": 3}))
    assert (proof.strangers, proof.is_conclusive) == ({"shop-4-2": 3}, True)


def test_a_change_without_message_is_unknown_where_the_topology_was_another() -> None:
    """A topology that sends no tombstones cannot say that those of the earlier one are stored."""
    silent = {Position(160, 0): "public.orders"}
    assert prove(replace(READING, silent=silent)).is_conclusive
    assert prove(replace(READING, silent=silent, spans=[])).commits[CommitStatus.UNKNOWN] == 0
    proof = prove(replace(READING, silent=silent, spans=[Span(50, 150, HOW), Span(150, 300, "r0")]))
    (finding,) = proof.findings
    assert finding.text == (
        "public.orders at 0/A0#0: unknown, the topology changed since then, and no run has used the present file yet:"
        " verify with the file of before, or pass it by --accept"
    )


def test_copies_and_strangers() -> None:
    assert status(replace(READING, stored={("orders", HERE): 2})) == (
        CommitStatus.TWICE,
        "public.orders at 0/64#0: twice, it is stored 2 times",
    )
    assert prove(replace(READING, stored={("orders", HERE): 2})).is_loss
    places = (HERE, Position(100, 9), Position(49, 0), Position(500, 0))
    strange = prove(replace(READING, stored={("orders", place): 1 for place in places}))
    assert [one.text for one in strange.findings] == [
        "0/64#9: unknown, it is stored once on orders, and the log has no such change for this topic"
    ]
    expected = {HERE: ONE, Position(100, 2): ONE, Position(100, 4): ONE}
    both = prove(replace(READING, expected=expected, stored={("orders", HERE): 2}))
    (found,) = both.findings
    assert found.text.endswith("up to 0/94 is stored; 1 more message of this commit likewise")
    assert found.text.startswith("public.orders at 0/64#2: missing")
    assert strange.commits[CommitStatus.UNKNOWN] == 1, "the commit has the worst status of its messages"
    assert strange.commits[CommitStatus.STORED] == 0


def test_a_stored_message_is_not_proved_while_the_source_may_send_it_again() -> None:
    """A source that was killed before it reported the commit sends it again, to another partition after new routes."""
    proof = prove(replace(READING, covered=147))
    assert proof.commits[CommitStatus.NOT_COVERED] == 1
    assert (proof.is_conclusive, proof.is_loss, proof.end) == (False, False, 100)
    assert prove(replace(READING, covered=147, stored={("orders", HERE): 2})).is_loss


def test_the_worst_findings_come_first_and_not_all_of_many() -> None:
    many = {Position(100 + number, 0): ONE._replace(end=101 + number) for number in range(MOST_FINDINGS + 5)}
    proof = prove(replace(READING, end=9_999, expected=many, stored={("orders", HERE): 2}, covered=9_999))
    assert len(proof.findings) == MOST_FINDINGS
    assert proof.findings[0].status is CommitStatus.MISSING
    assert proof.commits[CommitStatus.MISSING] == MOST_FINDINGS + 4
    assert proof.end == 100

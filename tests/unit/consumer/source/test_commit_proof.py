"""Statuses of commits, from a reading of the log and a reading of the topics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kodo_consumer.source.commit_proof import (
    MOST_FINDINGS,
    CommitStatus,
    ProofInputs,
    RequiredMessage,
    Span,
    prove,
    read_span,
    without_copy,
)
from kodo_consumer.source.positions import Position

HERE = Position(100, 0)
ONE = RequiredMessage(end=148, time=5_000, table="public.orders", partition="orders-0")
READING = ProofInputs(50, 500, {HERE: ONE}, {HERE: 1}, 300, [Span(50, 300)], {"orders-0": 1_000})


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
    assert without_copy(READING) == set()


def test_a_commit_is_as_bad_as_the_worst_of_its_messages() -> None:
    expected = {HERE: ONE, Position(100, 1): ONE}
    for stored in ({HERE: 1}, {Position(100, 1): 1}):
        proof = prove(replace(READING, expected=expected, stored=stored))
        assert (proof.commits[CommitStatus.MISSING], proof.commits[CommitStatus.STORED]) == (1, 0)


def test_a_commit_without_messages_is_no_commit_of_the_proof() -> None:
    proof = prove(replace(READING, expected={}, stored={}))
    assert sum(proof.commits.values()) == 0
    assert proof.is_conclusive


@pytest.mark.parametrize(
    ("change", "wanted", "text"),
    [
        ({}, CommitStatus.MISSING, "though a mark says that all up to 0/94 is stored"),
        ({"spans": [Span(200, 300)]}, CommitStatus.MISSING, "no stored mark covers it"),
        ({"covered": 147}, CommitStatus.NOT_COVERED, "committed at 1970-01-01 00:00:05 UTC"),
        ({"spans": [Span(0, 300)]}, CommitStatus.UNKNOWN, "a snapshot came later"),
        ({"oldest": {"orders-0": None}}, CommitStatus.UNKNOWN, "orders-0 stores nothing any more"),
        (
            {"oldest": {"orders-0": 5_001}},
            CommitStatus.UNKNOWN,
            "orders-0 stores messages since 1970-01-01 00:00:05 UTC only",
        ),
        ({"expected": {HERE: ONE._replace(doubt="its row is gone")}}, CommitStatus.UNKNOWN, "unknown, its row is gone"),
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


def test_only_partitions_of_messages_that_have_to_be_there_are_looked_at() -> None:
    gone = replace(READING, stored={})
    assert without_copy(gone) == {"orders-0"}
    assert without_copy(replace(gone, covered=100)) == set()
    assert without_copy(replace(gone, expected={HERE: ONE._replace(doubt="its row is gone")})) == set()


def test_copies_and_strangers() -> None:
    assert status(replace(READING, stored={HERE: 2})) == (
        CommitStatus.TWICE,
        "public.orders at 0/64#0: twice, it is stored 2 times",
    )
    assert prove(replace(READING, stored={HERE: 2})).is_loss
    strange = prove(replace(READING, stored={HERE: 1, Position(100, 9): 1, Position(49, 0): 1, Position(500, 0): 1}))
    assert [one.text for one in strange.findings] == [
        "0/64#9: unknown, it is stored once, and the log has no such change"
    ]
    both = prove(replace(READING, expected={HERE: ONE, Position(100, 2): ONE, Position(100, 4): ONE}, stored={HERE: 2}))
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
    assert prove(replace(READING, covered=147, stored={HERE: 2})).is_loss


def test_the_worst_findings_come_first_and_not_all_of_many() -> None:
    many = {Position(100 + number, 0): ONE._replace(end=101 + number) for number in range(MOST_FINDINGS + 5)}
    proof = prove(replace(READING, end=9_999, expected=many, stored={Position(100, 0): 2}, covered=9_999))
    assert len(proof.findings) == MOST_FINDINGS
    assert proof.findings[0].status is CommitStatus.MISSING
    assert proof.commits[CommitStatus.MISSING] == MOST_FINDINGS + 4
    assert proof.end == 100


def test_spans_of_marks() -> None:
    assert read_span("0/0..0/1AFC660") == Span(0, 0x1AFC660)
    assert read_span("") is None
    assert read_span("0/0..0/x") is None

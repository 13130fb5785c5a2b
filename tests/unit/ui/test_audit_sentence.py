"""The sentence about lost messages: when it is good news, and the steps that lead to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kodo_pipeline.evidence.audit_evidence import Cause, MessageStatus

from kodoctl.ui.audit_sentence import (
    BEFORE_AUDIT,
    AuditedTopology,
    AuditVerdict,
    Sentence,
    audit_sentence,
    audit_steps,
    audit_verdict,
)
from kodoctl.ui.first_screen import CommandWords
from tests.samples.consoles import NOW, WORDS

TRADE = AuditedTopology("trade", {"persistent://kodo/trade/orders", "persistent://kodo/trade/orders-AUDIT"}, "a.json")
BANK = replace(TRADE, name="bank", topics={"persistent://kodo/bank/cards"}, document="b.json")


def verdict_of(
    verdict: str = "no loss", age: int | None = 180_000, topic: str = "trade/orders", **values: Any
) -> AuditVerdict:
    """An audit of one topic; `age`: ms since its topics were read, None: unknown."""
    coverage = [{"topic": f"persistent://kodo/{topic}"}]
    made = {"verdict": verdict, "reasons": [], "coverage": coverage, **values}
    return audit_verdict(f"{topic[:5]}.json", made if age is None else {**made, "read_at": NOW - age})


@pytest.mark.parametrize(
    ("verdict", "style", "text"),
    [
        ("no loss", "good", "No message was lost, as read 3 min ago"),
        ("loss", "bad", "Messages were lost, as read 3 min ago: 2 messages of orders"),
        ("inconclusive", "open", "It is open whether a message was lost, as read 3 min ago: 2 messages of orders"),
    ],
)
def test_the_sentence_says_the_verdict_and_its_age(verdict: str, style: str, text: str) -> None:
    reasons = [] if verdict == "no loss" else [{"text": "2 messages of orders"}, {"text": "more"}]
    assert audit_sentence([verdict_of(verdict, reasons=reasons)], NOW, [TRADE]) == Sentence(
        style, text, is_judged=True, files=("trade.json",)
    )


def test_without_an_audit_nothing_is_claimed() -> None:
    sentence = Sentence("open", "Not judged whether a message was lost", unjudged=("bank", "trade"))
    assert audit_sentence([], NOW, [TRADE, BANK]) == sentence


@pytest.mark.parametrize(
    ("audit", "text"),
    [
        (verdict_of(age=3 * 86_400_000), "as read 3 d ago"),
        (verdict_of(age=-3_600_000), "as read 0 s ago"),
        (verdict_of(age=None), "as read at an unknown time"),
        (verdict_of(topic="trade/others"), "Not judged whether a message was lost; trade.json judges none of these"),
    ],
)
def test_an_audit_that_is_old_or_of_something_else_is_no_good_news(audit: Any, text: str) -> None:
    sentence = audit_sentence([audit], NOW, [TRADE])
    assert sentence.style == "open"
    assert text in sentence.text


def test_good_news_needs_an_audit_of_each_topology_whose_time_can_be_believed() -> None:
    audits = [verdict_of(), verdict_of(topic="bank/cards", age=-3_600_000)]
    assert audit_sentence(audits, NOW, [TRADE, BANK]).style == "open"


def test_of_several_audits_the_worst_counts_and_then_the_oldest() -> None:
    def sentence(*audits: Any) -> Sentence:
        return audit_sentence(audits, NOW, [TRADE, BANK])

    good, bank = verdict_of(), verdict_of(age=3_600_000, topic="bank/cards")
    assert sentence(good, bank).text == "No message was lost, as read 1 h ago"
    assert sentence(good, bank).style == "good"
    assert sentence(good).unjudged == ("bank",)
    assert sentence(good).text == "No message was lost, as read 3 min ago; not judged: bank"
    assert sentence(good, bank, verdict_of("loss", topic="other/x")).text.endswith(
        "; other.json judges none of these topologies"
    )
    assert sentence(bank, verdict_of("loss")).text == "Messages were lost, as read 3 min ago"
    assert sentence(verdict_of("inconclusive"), bank).style == "open"
    assert sentence(good, verdict_of(age=None, topic="bank/cards")).text.endswith("as read at an unknown time")


def test_steps_lead_to_a_verdict_in_their_order_with_names_that_can_be_pasted() -> None:
    silent = replace(TRADE, unrecorded=[("orders / billing", "topologies/trade.yaml:12:7")])
    steps = audit_steps(WORDS, [silent], lacks_spark=True, lacks_java=True)
    assert [one.commands for one in steps] == [
        ("pip install '.[spark]'",),
        (),
        (),
        ("kodoctl apply topologies/trade.yaml --context prod",),
        (),
        ("kodoctl pipeline ingest topologies/trade.yaml --context prod",),
        ("kodoctl pipeline audit topologies/trade.yaml --format json --context prod > a.json",),
    ]
    assert steps[2].text.startswith("Write audit: true below orders / billing (topologies/trade.yaml:12:7).")


def test_steps_that_are_done_are_left_out() -> None:
    steps = audit_steps(WORDS, [TRADE], lacks_spark=False, lacks_java=False)
    assert [one.text.split()[0] for one in steps] == ["Read", "Audit"]


def test_steps_of_many_topologies_name_a_few() -> None:
    names = [f"t{number}" for number in range(9)]
    words = CommandWords({name: f"{name}.yaml" for name in names}, [])
    silent = [replace(TRADE, name=name, unrecorded=[(f"{name} / a", "x:1")]) for name in names]
    record, apply, _, ingest, audit = audit_steps(words, silent, lacks_spark=False, lacks_java=False)
    assert "t0 / a (x:1), t1 / a (x:1), t2 / a (x:1), t3 / a (x:1) and 5 others." in record.text
    assert [len(one.commands) for one in (apply, ingest, audit)] == [4, 4, 4]
    assert ingest.text.endswith(", and so for 5 others.")


EARLIER: dict[str, Any] = {
    "reasons": [{"kind": "unproved", "proves": "inconclusive", "text": "2 messages acknowledged, not proved done"}],
    "subscriptions": [{"messages": {"unproved": 2, "done": 5}}, {"messages": {}}],
    "findings": [*[{"fate": "unproved", "cause": BEFORE_AUDIT}] * 2, {"fate": "overdue", "cause": ""}],
}


def test_messages_from_before_the_audit_are_told_apart_and_written_off() -> None:
    assert Cause.BEFORE.value == BEFORE_AUDIT
    assert MessageStatus.UNPROVED.value == "unproved"
    sentence = audit_sentence([verdict_of("inconclusive", **EARLIER)], NOW, [TRADE])
    assert sentence.earlier == 2
    assert sentence.text.endswith(
        "3 min ago: 2 messages left a lane before the audit began, and nothing can prove any more how; of later ones no "
        "loss was found"
    )
    steps = audit_steps(WORDS, [TRADE], lacks_spark=False, lacks_java=False, earlier=sentence.earlier)
    assert steps[0].text.startswith("Write the 2 messages off, once and by name")
    assert [one.split(" --")[0] for one in steps[0].commands] == [
        "kodoctl pipeline write-off plan topologies/trade.yaml",
        "kodoctl pipeline write-off apply trade-write-off.json",
    ]


def test_messages_from_before_an_audit_do_not_hide_the_doubts_of_another() -> None:
    """Their steps write off all that is open, with a reason that is not that of the others."""
    older = verdict_of("inconclusive", age=3_600_000, **EARLIER)
    other = verdict_of("inconclusive", topic="bank/cards", reasons=[{"kind": "ttl", "text": "may have expired"}])
    sentence = audit_sentence([older, other], NOW, [TRADE, BANK])
    assert sentence.earlier == 0
    assert sentence.text.endswith("may have expired")


@pytest.mark.parametrize(
    "changes",
    [
        {"findings": [*EARLIER["findings"], {"fate": "unproved", "cause": "of something else"}]},
        {"findings": []},
        {"reasons": [*EARLIER["reasons"], {"kind": "ttl", "text": "may have expired"}]},
    ],
)
def test_other_doubts_are_not_taken_for_messages_from_before_the_audit(changes: dict[str, Any]) -> None:
    sentence = audit_sentence([verdict_of("inconclusive", **{**EARLIER, **changes})], NOW, [TRADE])
    assert sentence.earlier == 0
    assert sentence.text.endswith("2 messages acknowledged, not proved done")


def test_a_sample_from_before_the_audit_proves_nothing_of_the_others() -> None:
    """An audit names some of many messages: the others could be lost, and would be written off."""
    many_more = {**EARLIER, "subscriptions": [{"messages": {"unproved": 3_110}}]}
    sentence = audit_sentence([verdict_of("inconclusive", **many_more)], NOW, [TRADE])
    assert sentence.earlier == 0
    assert sentence.text.endswith("not proved done; all that the audit names left a lane before it began")

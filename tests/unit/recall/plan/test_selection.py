"""What a plan takes, leaves out and numbers; and how a letter looks when it is sent again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kodoctl.errors import UsageError
from kodoctl.protocol.signing import Signer
from kodoctl.recall.filter.condition import literal, parse
from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEvent
from kodoctl.recall.message.payload_patch import Edit
from kodoctl.recall.message.recall_headers import recalled_properties, trusted_letter
from kodoctl.recall.message.stored_message import NotJsonError, Position, parse_json, tenant_of
from kodoctl.recall.plan.destinations import family_of, fits
from kodoctl.recall.plan.recall_plan import (
    ExclusionReason,
    LetterRef,
    PlannedPartition,
    RecallAction,
    partition_of,
    recall_id,
)
from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest, age_of
from kodoctl.render.recall import recall_plan_lines
from kodoctl.topology.load import load_topology
from kodoctl.topology.names import PLAIN, Level
from tests.unit.recall.letters import DEAD, NOW, family, letter

DOUBLE = "    levels: double\n    backup: true\n    partitions: 4\n    fair_by: uid\n"


def select(tmp_path: Path, letters: list[Any], **changes: Any) -> Any:
    found = family(tmp_path, ground=DOUBLE)
    values: dict[str, Any] = {
        "action": RecallAction.SEND,
        "where": "true",
        "run": "r1",
        "to": None,
        "limit": 100,
        "again": False,
        "edit": None,
        "known": {},
    }
    values.update(changes)
    condition = parse(values.pop("where"), NOW)
    selection = LetterSelection(SelectionRequest(family=found, condition=condition, **values))
    for one in letters:
        selection.offer(one)
    return selection.finish()


def standing(
    position: str, event: RecallEvent, run: str = "r0", published: int = NOW - 1000
) -> dict[str, LetterStatus]:
    name = recall_id(DEAD, Position.parse(position), published)
    return {name: LetterStatus(run, event, position)}


def test_letters_go_to_retrying_of_the_level_they_died_in_and_keep_their_partition(tmp_path: Path) -> None:
    letters = [
        letter(1, entry=1, level="L2", origin="5:1:3:-1"),
        letter(2, entry=2, level="L1", origin="5:2:9:-1", key="k"),
        letter(3, entry=3, level="B1"),
        letter(4, entry=4, level="nonsense", origin="no"),
        letter(5, entry=5, level="L2", origin="5:3:3:-1"),
    ]
    lanes, chosen, _, summary = select(tmp_path, letters)
    topics = [lanes[one.lane].topic.rpartition("/")[2] for one in chosen]
    assert topics == ["orders-L2-billing-RETRYING", *["orders-billing-RETRYING"] * 3, "orders-L2-billing-RETRYING"]
    assert lanes[chosen[0].lane].part.endswith("-L2-billing-RETRYING-partition-3")
    assert lanes[chosen[1].lane].partition == partition_of(None, "k", 4)
    assert (chosen[0].number, chosen[4].number) == (1, 2)
    assert chosen[0].lane == chosen[4].lane
    assert summary["chosen"] == 5


class Workers:
    """Their store: it is asked in bundles."""

    def __init__(self, *done: str) -> None:
        self.done, self.asked = frozenset(done), list[int]()

    def __call__(self, identities: Any) -> frozenset[str]:
        self.asked.append(len(identities))
        return self.done & set(identities)


def test_letters_that_a_worker_is_done_with_are_left_out_and_take_no_place_below_the_limit(tmp_path: Path) -> None:
    letters = [letter(n, entry=n, origin=f"5:{n}:0:-1") for n in range(8)]
    workers = Workers("5:0:0:-1", "5:1:0:-1", "5:7:0:-1")
    _, chosen, settle, summary = select(tmp_path, letters, limit=3, done=workers)
    assert [one.position.entry for one in chosen] == [2, 3, 4]
    assert (summary["left_out"], settle) == ({"already_done": 3, "beyond": 2}, ())
    _, chosen, _, summary = select(tmp_path, letters, done=workers, again=True)
    assert (len(chosen), summary["left_out"], workers.asked) == (8, {}, [8])


def test_the_workers_store_is_asked_in_bundles_and_not_for_what_goes_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [letter(n, entry=n, origin=f"5:{n}:0:-1") for n in range(1_203)]
    workers = Workers("5:0:0:-1", "5:501:0:-1")
    _, chosen, _, summary = select(tmp_path, letters, limit=800, done=workers, where="payload != '3'")
    assert (len(chosen), summary["left_out"]) == (800, {"already_done": 2, "beyond": 400})
    assert workers.asked == [500, 500], "what is beyond the limit is nobody's question"
    monkeypatch.setattr("kodoctl.recall.plan.selection._HELD", 40)
    large = [letter("x" * 30, entry=n, origin=f"5:{n}:0:-1") for n in range(5)]
    bundles = Workers()
    assert len(select(tmp_path, large, done=bundles)[1]) == 5
    assert bundles.asked == [2, 2, 1], "payloads that wait are few"
    nothing = Workers()
    assert select(tmp_path, large, done=nothing, where="payload = 'y'")[1] == ()
    assert nothing.asked == []


def test_a_named_level_takes_all(tmp_path: Path) -> None:
    lanes, chosen, _, _ = select(tmp_path, [letter(1, level="L2", origin="5:1:2:-1")], to=Level.B1)
    assert (lanes[0].topic.rpartition("/")[2], lanes[0].ready, lanes[0].partition) == ("orders-B1", True, 2)
    assert chosen[0].number == 1


def test_copies_of_a_message_are_one_recall_but_another_payload_is_another_message(tmp_path: Path) -> None:
    copies = [letter(1, entry=entry, origin="5:1:0:-1") for entry in (1, 2, 3)]
    _, chosen, _, summary = select(tmp_path, [*copies, letter(2, entry=4, origin="5:1:0:-1")])
    assert [one.position.entry for one in chosen] == [1, 4]
    assert [one.position.entry for one in chosen[0].repeats] == [2, 3]
    assert summary["left_out"] == {"repeat": 2}
    _, discarded, _, _ = select(tmp_path, copies, action=RecallAction.DISCARD)
    assert len(discarded) == 3


def test_the_oldest_are_taken_up_to_the_limit(tmp_path: Path) -> None:
    _, chosen, _, summary = select(tmp_path, [letter(n, entry=n) for n in range(5)], limit=2)
    assert [one.position.entry for one in chosen] == [0, 1]
    assert summary["left_out"] == {"beyond": 3}
    assert (summary["read"], summary["matched"]) == (5, 5)


@pytest.mark.parametrize(
    ("event", "word"),
    [
        (RecallEvent.SENT, "already"),
        (RecallEvent.DISCARDED, "already"),
        (RecallEvent.INTENT, "unfinished"),
        (RecallEvent.UNCLEAR, "unfinished"),
        (RecallEvent.REFUSED, None),
    ],
)
def test_what_the_ledger_knows_is_not_taken_twice(tmp_path: Path, event: RecallEvent, word: str | None) -> None:
    known = standing("1:3:0:-1", event)
    _, chosen, settle, summary = select(tmp_path, [letter(1, entry=3)], known=known)
    assert len(chosen) == (word is None)
    assert len(settle) == (word == "already")
    assert summary["left_out"] == ({word: 1} if word else {})
    _, again, settle, _ = select(tmp_path, [letter(1, entry=3)], known=known, again=True)
    assert len(again) == 1
    assert settle == ()
    assert again[0].recall_id not in known


def test_letters_that_an_earlier_recall_left_with_the_holder_are_settled_whatever_the_condition(tmp_path: Path) -> None:
    known = standing("1:3:0:-1", RecallEvent.SENT)
    _, chosen, settle, summary = select(tmp_path, [letter(1, entry=3)], known=known, where="false")
    assert (chosen, settle, summary["left_out"]) == ((), (LetterRef(Position(0, 1, 3), NOW - 1000),), {})


def test_a_ledger_of_another_cluster_says_nothing_of_the_letter_at_the_same_place(tmp_path: Path) -> None:
    known = standing("1:3:0:-1", RecallEvent.SENT, published=NOW - 999)
    _, chosen, settle, _ = select(tmp_path, [letter(1, entry=3)], known=known)
    assert (len(chosen), settle) == (1, ())


def test_no_loop_what_died_again_after_a_recall_stays_unless_asked_for(tmp_path: Path) -> None:
    back = letter(1, entry=9, recall="a" * 32)
    assert select(tmp_path, [back])[3]["left_out"] == {"recalled": 1}
    assert len(select(tmp_path, [back], again=True)[1]) == 1
    assert len(select(tmp_path, [back], action=RecallAction.DISCARD)[1]) == 1


def test_a_letter_whose_recall_came_back_was_sent_even_if_the_ledger_is_gone(tmp_path: Path) -> None:
    first, other = letter(1, entry=1), letter(2, entry=2)
    back = letter(1, entry=9, recall=recall_id(DEAD, first.position, first.publish_time))
    _, chosen, settle, summary = select(tmp_path, [first, other, back])
    assert [one.position.entry for one in chosen] == [2]
    assert settle == (LetterRef(first.position, first.publish_time),)
    assert summary["left_out"] == {"already": 1, "recalled": 1}


def test_copies_of_a_letter_whose_recall_came_back_are_settled_with_it(tmp_path: Path) -> None:
    copies = [letter(1, entry=entry, origin="5:1:0:-1") for entry in (1, 2, 3)]
    back = letter(1, entry=9, recall=recall_id(DEAD, copies[0].position, copies[0].publish_time))
    others = [letter(2, entry=entry, origin="5:2:0:-1") for entry in (4, 5)]
    _, chosen, settle, summary = select(tmp_path, [*copies, *others, back])
    assert [(one.position.entry, len(one.repeats)) for one in chosen] == [(4, 1)]
    assert settle == tuple(LetterRef(one.position, one.publish_time) for one in copies)
    assert summary["left_out"] == {"already": 1, "recalled": 1, "repeat": 3}


def test_what_cannot_be_carried_on_is_left_and_counted(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["a"]}
    edit = Edit({"a": None}, schema)
    letters = [letter({"a": 1}, entry=1), letter(b"\xff", entry=2), letter({"b": 1}, entry=3, broken="no text")]
    _, chosen, _, summary = select(tmp_path, [*letters, letter([1, 2], entry=4)], edit=edit)
    assert chosen == ()
    assert summary["left_out"] == {"not_editable": 3}
    assert len(summary["not_editable"]) == 3
    assert summary["not_editable"]["it is no JSON object"] == 1
    assert summary["read"] == 4


def test_nowhere_to_go(tmp_path: Path) -> None:
    found = family(tmp_path, "{states: []}")
    asked = SelectionRequest(
        RecallAction.SEND, found, parse("true", NOW), "r", None, 5, again=False, edit=None, known={}
    )
    selection = LetterSelection(asked)
    selection.offer(letter(1))
    assert selection.finish()[3]["left_out"] == {"nowhere": 1}


def test_the_summary_counts_by_reason_tenant_and_age_and_shows_the_oldest(tmp_path: Path) -> None:
    letters = [
        letter({"n": n}, entry=n, reason=f"r{n % 2}", tenant=f"u{n}", publish_time=NOW - n * 3_600_000)
        for n in range(30)
    ]
    letters += [
        letter(b"\xff", entry=40, publish_time=NOW - 9 * 86_400_000),
        letter(entry=41),
        letter("x" * 500, entry=42),
    ]
    _, _, _, summary = select(tmp_path, letters)
    assert summary["by_reason"] == {"r0": 15, "r1": 15, "(none)": 3}
    assert len(summary["by_tenant"]) == 21
    assert sum(summary["by_tenant"].values()) == 33
    assert summary["by_age"] == {"under 1 h": 3, "1 h to 1 d": 23, "1 d to 7 d": 6, "over 7 d": 1}
    assert [sample["payload"] for sample in summary["samples"]] == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
    shown = select(tmp_path, letters[30:])[3]["samples"]
    assert [sample["payload"][:10] for sample in shown] == ["(1 byte, n", "(no payloa", '"xxxxxxxxx']
    assert len(shown[2]["payload"]) == 160
    assert age_of(0) == "under 1 h"


def test_marks_of_the_way_into_death_are_reset_and_all_else_is_kept() -> None:
    dead = letter(
        {"a": 1}, entry=4, uid="u1", reason="x", level="L2", recall="old", origin="1:2:3:4",
        properties={"kodo-attempts-retrying": "12", "kodo-attempts-backup": "1", "kodo-due": "5", "kodo-reserved": "1",
                    "kodo-hop": "7", "kodo-for": "else", "kodo-quota": "1", "kodo-id": "me", "kodo-seq": "r:0:1",
                    "kodo-parent": "p", "kodo-schema": "2", "kodo-unknown": "kept", "kodo-origin-time": "9"},
    )  # fmt: skip
    kept = {"uid": "u1", "kodo-id": "me", "kodo-seq": "r:0:1", "kodo-parent": "p", "kodo-schema": "2", "kodo-unknown": "kept",
            "kodo-origin-id": "1:2:3:4", "kodo-origin-time": "9"}  # fmt: skip
    assert recalled_properties(dead, "new", "billing", ready=False) == {**kept, "kodo-recall": "new"}
    assert recalled_properties(dead, "new", "billing", ready=True)["kodo-for"] == "billing"
    again = recalled_properties(dead, "new", "billing", ready=False, again=True)
    assert again == {**kept, "kodo-recall": "new", "kodo-again": "1"}
    once_more = replace(dead, properties=again)
    assert recalled_properties(once_more, "newer", "billing", ready=False) == {**kept, "kodo-recall": "newer"}


def test_with_keys_only_what_was_signed_is_believed() -> None:
    signer = Signer(["a key of many characters"])
    forged = letter(1, uid="u", properties={"kodo-id": "another", "kodo-signature": "1.x"})
    genuine = replace(forged, properties=signer.signed(DEAD, forged.payload, forged.properties))
    assert trusted_letter(forged, None) is forged
    assert trusted_letter(genuine, signer) is genuine
    assert trusted_letter(forged, signer).properties == {"uid": "u"}


def test_a_letter_nobody_moved_gets_its_origin() -> None:
    found = recalled_properties(letter(1, entry=4), "new", "billing", ready=False)
    assert found == {
        "kodo-origin-id": "1:4:0:-1", "kodo-origin-topic": DEAD, "kodo-origin-time": str(NOW - 1000), "kodo-recall": "new",
    }  # fmt: skip


def test_what_a_recalled_letter_carries_is_a_first_delivery_with_fresh_counters_to_the_consumer() -> None:
    from kodo_consumer.core.values.envelope import read_headers

    dead = letter(1, properties={"kodo-attempts-retrying": "12", "kodo-hop": "9", "kodo-quota": "1", "kodo-due": "99"})
    headers = read_headers(recalled_properties(dead, "rid", "billing", ready=True))
    assert (headers.retrying, headers.hop, headers.due, headers.quota_taken) == (0, 0, None, False)
    assert (headers.recall, headers.meant_for, headers.first_receipt) == ("rid", "billing", False)


def test_names_that_are_not_there_are_told_with_those_that_are(tmp_path: Path) -> None:
    family(tmp_path)
    topology = load_topology(str(tmp_path / "trade.yaml"))
    with pytest.raises(UsageError, match="has orders, not 'x'"):
        family_of(topology, "x", "billing")
    with pytest.raises(UsageError, match="has billing, not 'x'"):
        family_of(topology, "orders", "x")
    with pytest.raises(UsageError, match="stay in their lanes"):
        family(tmp_path, "{dead_letter: false}")


def test_dead_letters_are_for_their_subscription_whatever_they_say(tmp_path: Path) -> None:
    assert family(tmp_path).is_for({"kodo-for": "another"})


def test_a_target_must_take_messages(tmp_path: Path) -> None:
    family(tmp_path).check_target(None)
    family(tmp_path, "{states: []}").check_target(Level.L1)
    with pytest.raises(UsageError, match="name a level with --to: L1"):
        family(tmp_path, "{states: []}").check_target(None)
    with pytest.raises(UsageError, match="name a level with --to: L1"):
        family(tmp_path, "{states: [pending], draining: [retrying]}").check_target(None)
    with pytest.raises(UsageError, match="takes messages on L1, not on B1"):
        family(tmp_path).check_target(Level.B1)
    (tmp_path / "o.avsc").write_text('{"type": "record", "name": "o", "fields": []}', encoding="utf-8")
    avro = family(tmp_path, ground="    payload: {type: avro, schema: o.avsc}\n")
    avro.check_target(None)
    with pytest.raises(UsageError, match="check Avro schemas"):
        avro.check_target(Level.L1)


def test_a_plan_whose_lanes_the_file_no_longer_has_is_told_why(tmp_path: Path) -> None:
    found = family(tmp_path)
    own = "persistent://kodo/trade/orders-billing-RETRYING"
    assert fits(found, "trade", DEAD, "kodo-hold", [(own, False, 1)]) == []
    problems = fits(
        found, "other", DEAD, "kodo-hold", [(own, False, 4), ("persistent://x/y/z", False, 1), (own, True, 1)]
    )
    assert len(problems) == 4


def test_small_things_of_letters() -> None:
    assert tenant_of(None, {"uid": "u"}, "k") == "(none)"
    assert tenant_of("uid", {"uid": "u"}, "k") == "u"
    assert tenant_of("uid", {}, "k") == "(none)"
    assert tenant_of("key", {}, "k") == "k"
    assert letter(None).digest != letter(b"").digest
    assert Position.parse("5:6:7:8") == Position(7, 5, 6, 8)
    assert letter(1, properties={"kodo-hop": "9" * 19}).number("kodo-hop") is None
    with pytest.raises(NotJsonError):
        parse_json(None)


def test_how_deep_json_may_be_does_not_depend_on_who_reads_it() -> None:
    def below(frames: int, text: str) -> Any:
        if frames:
            return below(frames - 1, text)
        try:
            return parse_json(text)
        except NotJsonError:
            return None

    def nested(depth: int) -> str:
        return '{"a":[' * (depth // 2) + "[" * (depth % 2) + "]" * (depth % 2) + "]}" * (depth // 2)

    for depth, readable in ((499, True), (500, True), (501, False), (700, False), (5_000, False)):
        assert [below(frames, nested(depth)) is not None for frames in (0, 250)] == [readable, readable], depth
    assert parse_json("[" + "[]," * 600 + "1]")[-1] == 1, "many brackets are no depth"
    assert parse_json('"' + "[" * 600 + '"') == "[" * 600


def test_ten_thousand_letters_of_twelve_causes_are_twelve_lines_and_each_can_be_chosen(tmp_path: Path) -> None:
    words = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
    letters = [
        letter(
            {"n": n},
            entry=n,
            reason="ConnectionError",
            properties={
                "kodo-error": f"bank {words[n % 12]}'s line {n} answered {500 + n % 7} for 3f2504e0-4f89-{n:04}"
            },
        )
        for n in range(10_000)
    ]
    summary = select(tmp_path, letters, limit=20_000)[3]
    causes = {f"ConnectionError: bank {word}'s line # answered # for #" for word in words}
    assert set(summary["by_cause"]) == causes
    assert sum(summary["by_cause"].values()) == 10_000
    assert summary["samples"][0]["error"].startswith("bank a's line 0")
    document: Any = {
        **dict.fromkeys(("action", "topic", "subscription", "where", "dead_topic", "because"), ""),
        "lanes": [],
        "letters": [],
        "edit": None,
        "settle": [],
        "made_at": NOW,
        "seal": "0" * 64,
        "summary": summary,
        "action": "send",
    }
    shown = [line.text for line in recall_plan_lines(document, "")]
    assert len(shown) < 50
    assert "    834  ConnectionError: bank a's line # answered # for #" in shown
    assert """    one of them: --where "cause = '…'\"""" in shown
    assert "      bank a's line 0 answered 500 for 3f2504e0-4f89-0000" in shown
    for number, cause in enumerate(sorted(causes)):
        chosen = select(tmp_path, letters, limit=20_000, where=f"cause = {literal(cause)}")[1]
        assert {one.position.entry % 12 for one in chosen} == {number}
    old: Any = {**document, "summary": {name: value for name, value in summary.items() if name != "by_cause"}}
    assert "  by reason" in [line.text for line in recall_plan_lines(old, "")]


def test_letters_that_died_without_a_later_attempt_are_counted(tmp_path: Path) -> None:
    attempted = {"kodo-attempts-backup": "1"}
    letters = [letter({"n": n}, entry=n, properties=attempted if n else {}) for n in range(3)]
    assert select(tmp_path, letters)[3]["died_at_once"] == 1
    assert "died_at_once" not in select(tmp_path, letters[1:])[3]


def test_lost_messages_that_are_not_landed_are_named(tmp_path: Path) -> None:
    found = family(tmp_path)
    assert found.target_name is None, "each letter has a lane of its own"
    asked = SelectionRequest(
        RecallAction.SEND, found, parse("true", NOW), "r", None, 5, again=False, edit=None, known={}
    )
    selection = LetterSelection(asked)
    selection.leave_out(ExclusionReason.NOT_LANDED, "orders 1:2:0:-1")
    selection.leave_out(ExclusionReason.MOVED_ON, "orders 1:3:0:-1")
    summary = selection.finish()[3]
    assert summary["not_landed"] == ["orders 1:2:0:-1"]
    assert sum(summary["left_out"].values()) == 2


def test_a_letter_for_a_plain_topic_goes_to_the_topic_itself() -> None:
    assert partition_of(3, "k", 0) == PLAIN
    assert PlannedPartition("persistent://t/n/J", PLAIN, ready=True, partitions=0).part == "persistent://t/n/J"

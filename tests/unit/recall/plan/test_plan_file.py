"""Plan files, patches, the ledger's last word, and what is decided after a crash."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kodoctl.documents.json_form import seal_of
from kodoctl.documents.recall_document import SendReport
from kodoctl.errors import KodoctlError
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent, has_begun, highest_booked, latest_status
from kodoctl.recall.ledger.recovery import SOUND_FOR, LaneScan, Recovery, recover
from kodoctl.recall.message.message_json import as_json, preview
from kodoctl.recall.message.payload_patch import Edit, NotEditableError, merge, read_patch
from kodoctl.recall.message.stored_message import NotJsonError, Position
from kodoctl.recall.plan import recall_plan_file
from kodoctl.recall.plan.recall_plan import LetterRef, PlannedLetter, PlannedPartition, RecallAction, RecallPlan
from kodoctl.recall.send.rate_limit import RateLimit
from tests.unit.recall.letters import DEAD, NOW, letter

SCHEMA_FILE = Path(__file__).parents[4] / "schemas/recall-plan.v1.json"
LANE = PlannedPartition("persistent://kodo/trade/orders-billing-RETRYING", 0, ready=False, partitions=1)
SUMMARY: Any = {
    "read": 1,
    "matched": 1,
    "chosen": 1,
    "by_reason": {},
    "by_tenant": {},
    "by_age": {},
    "samples": [],
    "left_out": {},
    "not_editable": {},
}
PLAN = RecallPlan(
    RecallAction.SEND, "20270115-080000-abcd0123", NOW, None, "trade", "trade.yaml", None, "orders", "billing", DEAD, 1, "kodo-hold",
    "true", None, 10, again=False, because="", edit={"a": 1}, lanes=(LANE,),
    letters=(PlannedLetter(Position(0, 1, 2, 3), 5, "a" * 32, "b" * 32, 0, 1, (LetterRef(Position(0, 1, 3), 6),)),),
    settle=(LetterRef(Position(0, 1, 9), 7),), summary=SUMMARY,
)  # fmt: skip


def test_a_plan_file_comes_back_as_it_was_and_fits_the_published_schema() -> None:
    text = recall_plan_file.dumps(PLAN)
    assert recall_plan_file.loads(text, "p.json") == PLAN
    jsonschema.validate(json.loads(text), json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
    assert recall_plan_file.hash_of(recall_plan_file.to_json(PLAN)) == json.loads(text)["seal"][:12]
    bare = replace(PLAN, letters=(), settle=())
    assert recall_plan_file.loads(recall_plan_file.dumps(bare), "p.json").empty
    assert not PLAN.empty
    assert LANE.part.endswith("-RETRYING-partition-0")
    assert PLAN.producer == "kodo-recall-20270115-080000-abcd0123"


def test_a_plan_of_lost_messages_names_its_landing() -> None:
    lost = replace(PLAN, landing="landed", lane="L1/ready", edit=None)
    text = recall_plan_file.dumps(lost)
    assert recall_plan_file.loads(text, "p.json") == lost
    jsonschema.validate(json.loads(text), json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def as_dict(plan: RecallPlan) -> dict[str, Any]:
    return {**recall_plan_file.to_json(plan)}


def sealed(**changes: Any) -> str:
    form = as_dict(PLAN) | changes
    return json.dumps({**form, "seal": seal_of(form)})


LETTER = as_dict(PLAN)["letters"][0]
BAD = [
    ("no json", "K558", "kodoctl recall plan --out FILE"),
    ("[]", "K558", "kodoctl recall plan --out FILE"),
    ('{"format_version": 1}', "K558", "kodoctl recall plan --out FILE"),
    ("[" * 100_000, "K558", "kodoctl recall plan --out FILE"),
    ('{"format_version": 3, "letters": []}', "K559", "it has format 3"),
    (sealed(format_version=3), "K559", "it has format 3"),
    (sealed(format_version=2), "K558", "letters: Input should be a valid dictionary"),
    (recall_plan_file.dumps(PLAN).replace('"limit": 10', '"limit": 11'), "K559", "does not match its seal"),
    (sealed(action="steal"), "K558", "action: Input should be 'send'"),
    (sealed(extra=1), "K558", "extra: Extra inputs are not permitted"),
    (sealed(limit="10"), "K558", "limit: Input should be a valid integer"),
    (sealed(run="../../etc"), "K558", "run: String should match pattern"),
    (sealed(letters=7), "K558", "letters: Input should be a valid list"),
    (sealed(letters=[{**LETTER, "lane": 5}]), "K558", "a letter goes to a lane that is not there"),
    (sealed(letters=[LETTER] * 100 + [{"position": "x"}]), "K558", "letters.100.position: String should match"),
]


@pytest.mark.parametrize(("text", "code", "said"), BAD, ids=range(len(BAD)))
def test_a_file_that_is_no_plan_or_was_changed_is_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(KodoctlError) as caught:
        recall_plan_file.loads(text, "p.json")
    [found] = caught.value.diagnostics
    assert found.code == code
    assert said in found.detail


def test_a_merge_patch_sets_removes_and_merges() -> None:
    assert merge({"a": "b", "c": {"d": "e", "f": "g"}}, {"a": "z", "c": {"f": None}}) == {"a": "z", "c": {"d": "e"}}
    assert merge([1], {"a": {"b": None}}) == {"a": {}}
    assert merge({"a": 1}, 5) == 5
    assert (
        Edit({"x": "é"}).apply(b'{"n": 1.50, "k": 12345678901234567890}')
        == '{"n":1.5,"k":12345678901234567890,"x":"é"}'.encode()
    )


@pytest.mark.parametrize(
    ("payload", "why"),
    [(b"x", "no JSON"), (None, "no JSON"), (b"\xff", "no JSON"), (b'{"a": NaN}', "NaN"), (b'{"a": 1, "a": 2}', "twice"),
     (b'{"n": 0.1234567890123456789}', "digits"), (b'{"n": 1e400}', "digits"), (b'{"n": ' + b"1" * 70 + b".5}", "digits"),
     (b"[" * 100_000, "deep"), (b'{"s": "\\ud800"}', "surrogate"), (b'{"b": "text"}', "schema")],
)  # fmt: skip
def test_a_payload_that_writing_again_would_harm_is_not_patched(payload: bytes | None, why: str) -> None:
    schema = {"type": "object", "properties": {"b": {"type": "number"}}}
    with pytest.raises(NotEditableError, match=why):
        Edit({"a": 1}, schema).apply(payload)


@pytest.mark.parametrize("payload", [b"[1, 2]", b'"text"', b"7", b"null", b"true"])
def test_a_payload_that_is_no_object_is_not_replaced_by_the_patch(payload: bytes) -> None:
    with pytest.raises(NotEditableError, match="it is no JSON object"):
        Edit({"currency": "EUR"}).apply(payload)


@pytest.mark.parametrize("text", ["", "[]", "{}", "7", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000])
def test_a_patch_file_is_an_object(text: str) -> None:
    with pytest.raises((NotJsonError, NotEditableError)):
        read_patch(text)


def test_a_patch_file() -> None:
    assert read_patch('{"a": null}') == {"a": None}


def entry(event: RecallEvent, number: int = 1, recall_id: str = "x", run: str = "r", lane: str = "l") -> RecallEntry:
    return RecallEntry(run, event, recall_id, DEAD, "1:1:0:-1", NOW, lane, number)


def test_the_furthest_a_letter_came_counts_in_whatever_order_the_book_is_read() -> None:
    book = [
        entry(RecallEvent.SENT),
        entry(RecallEvent.INTENT),
        entry(RecallEvent.INTENT, 2, "y"),
        entry(RecallEvent.SENT, 7, "z", run="other"),
    ]
    known = latest_status(book)
    assert [known[name].event for name in "xyz"] == [RecallEvent.SENT, RecallEvent.INTENT, RecallEvent.SENT]
    assert known["x"].settled
    assert not known["y"].settled
    assert highest_booked(known, "r") == {"l": 1}


@pytest.mark.parametrize("order", [1, -1])
def test_what_one_run_refused_says_nothing_of_what_another_began(order: int) -> None:
    book = [entry(RecallEvent.REFUSED, run="a"), entry(RecallEvent.INTENT, run="b")]
    assert latest_status(book[::order])["x"][:2] == ("b", RecallEvent.INTENT)
    book = [entry(RecallEvent.INTENT), entry(RecallEvent.REFUSED)]
    assert latest_status(book[::order])["x"].event is RecallEvent.REFUSED


def test_a_run_has_begun_once_a_letter_of_it_may_be_stored_or_was_discarded() -> None:
    refused = [entry(RecallEvent.INTENT), entry(RecallEvent.REFUSED)]
    assert not has_begun(refused, "r")
    assert not has_begun([*refused, entry(RecallEvent.SENT, run="other")], "r")
    assert has_begun([*refused, entry(RecallEvent.INTENT, recall_id="y")], "r")
    for event in (RecallEvent.UNCLEAR, RecallEvent.SENT, RecallEvent.DISCARDED):
        assert has_begun([*refused, entry(event)], "r")


@pytest.mark.parametrize("order", [1, -1])
def test_a_letter_meant_twice_counts_from_the_first_time(order: int) -> None:
    book = [entry(RecallEvent.INTENT)._replace(at=at, note=f"7:{at}") for at in (10, 20, 30)]
    found = latest_status(book[::order])["x"]
    assert (found.at, found.note) == (10, "7:10")


@pytest.mark.parametrize("order", [1, -1])
def test_a_letter_that_is_booked_twice_is_where_a_line_says(order: int) -> None:
    book = [
        entry(RecallEvent.SENT)._replace(at=at, receipt=receipt) for at, receipt in ((10, ""), (20, "8:1"), (30, ""))
    ]
    assert latest_status(book[::order])["x"].receipt == "8:1"


DOUBTS = [
    # watermark, booked, age, read back -> verdict; the run may have sent numbers up to 5
    (5, 3, 0, LaneScan(), Recovery.SEND),  # the broker remembers: it drops what it has
    (3, 3, 10**9, LaneScan(), Recovery.SEND),
    (5, 3, 0, LaneScan({"x": "7:0"}, whole=False), Recovery.STORED),  # read back: not even sent again
    (
        5,
        3,
        0,
        LaneScan({"y": "7:0"}, whole=True),
        Recovery.SKIPPED_BY_BROKER,
    ),  # later ones are stored, this is not: not to be told "had it"
    (3, 3, 0, LaneScan({"y": "7:0"}, whole=True), Recovery.SEND),
    (4, 9, 0, LaneScan({"y": "7:0"}, whole=True), Recovery.SKIPPED_BY_BROKER),
    (5, 3, 0, LaneScan({"y": "7:0"}, whole=False), Recovery.SEND),
    (-1, 0, 0, LaneScan(), Recovery.SEND),  # the very first bundle, a moment ago
    (-1, 0, SOUND_FOR, LaneScan(), Recovery.UNKNOWN),  # it may have forgotten
    (0, 0, 0, LaneScan(), Recovery.UNKNOWN),  # somebody's message came by that name: no first bundle
    (-1, 0, SOUND_FOR, LaneScan({}, whole=True), Recovery.SEND),
    (-1, 0, SOUND_FOR, LaneScan({"x": "7:0"}, whole=False), Recovery.STORED),
    (-1, 0, SOUND_FOR, LaneScan({}, whole=False), Recovery.UNKNOWN),
    (2, 3, 0, LaneScan(), Recovery.UNKNOWN),  # it forgot what was booked
    (-1, 3, 0, LaneScan({"x": "7:0"}, whole=True), Recovery.STORED),
    (-1, 3, 0, LaneScan({}, whole=True), Recovery.SEND),
    (-1, 3, 0, LaneScan({}, whole=False), Recovery.UNKNOWN),
    (6, 3, 0, LaneScan(), Recovery.UNKNOWN),  # somebody else sent by that name: the broker would drop what it lacks
    (6, 3, 0, LaneScan({"x": "7:0"}, whole=False), Recovery.STORED),
    (6, 3, 0, LaneScan({}, whole=True), Recovery.SKIPPED_BY_BROKER),
]


@pytest.mark.parametrize(("watermark", "booked", "age", "read_back", "verdict"), DOUBTS)
def test_a_letter_in_doubt(watermark: int, booked: int, age: int, read_back: LaneScan, verdict: Recovery) -> None:
    assert recover({"x": 4}, watermark, booked, 5, age, read_back) == {"x": verdict}


class Clock:
    """Seconds that pass only by waiting."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Stop(threading.Event):
    """Waiting takes no time, but moves the clock."""

    def __init__(self, clock: Clock, stop_at: float = 1e9) -> None:
        super().__init__()
        self.clock, self.stop_at = clock, stop_at

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.now += timeout or 0
        if self.clock.now > self.stop_at:
            self.set()
        return self.is_set()


def test_the_pace_is_never_above_the_rate_and_does_not_catch_up() -> None:
    clock = Clock()
    stop, pace = Stop(clock), RateLimit(10, clock)
    starts = []
    for _ in range(20):
        assert pace.wait(stop)
        starts.append(clock.now)
    assert starts[-1] - starts[0] == pytest.approx(1.9)
    assert not pace.free
    clock.now += 60
    assert pace.free
    later = [pace.wait(stop) and clock.now for _ in range(3)]
    assert later[2] - later[0] == pytest.approx(0.2)
    assert RateLimit(0.5).a_second == 1
    assert not RateLimit(1, clock).wait(_set(stop))


def test_a_stop_ends_the_waiting() -> None:
    clock = Clock()
    stop, pace = Stop(clock, stop_at=100.5), RateLimit(1, clock)
    assert pace.wait(stop)
    assert not pace.wait(stop)


def _set(stop: threading.Event) -> threading.Event:
    stop.set()
    return stop


def test_a_report_is_complete_when_nothing_needs_a_person() -> None:
    assert SendReport(sent=1, gone=2).complete
    assert not SendReport(unclear=["x"]).complete
    assert not SendReport(interrupted=True).complete
    assert not SendReport(refused=["x"]).complete
    assert not SendReport(elsewhere=["x"]).complete
    assert not SendReport(unacknowledged=1).complete


def test_a_message_explained() -> None:
    odd = letter(
        b"\xff" * 200,
        uid="u",
        properties={
            "kodo-due": "1800000000000",
            "kodo-origin-time": "9" * 15,
            "kodo-reserved": "x",
            "kodo-new": "1",
            "kodo-hop": "2",
        },
    )
    shown = as_json(odd)
    means = {one["name"]: one["means"] for one in shown["control"]}
    assert means == {"kodo-due": "not before 2027-01-15 08:00:00 UTC", "kodo-hop": "moves so far", "kodo-new": "",
                     "kodo-origin-time": "first published no moment", "kodo-reserved": "a limiter reserved no moment"}  # fmt: skip
    assert shown["properties"] == {"uid": "u"}
    assert shown["preview"].endswith("ff …")
    assert preview(letter(b"\xff")) == "ff"
    assert preview(letter(None)) == ""
    assert len(preview(letter("x" * 999))) == 400


def test_a_json_patch_is_told_from_other_mistakes() -> None:
    with pytest.raises(NotJsonError, match="RFC 6902"):
        read_patch('[{"op": "replace", "path": "/currency", "value": "EUR"}]')
    for text in ("[]", "[1]", '[{"currency": "EUR"}]'):
        with pytest.raises(NotJsonError, match="a merge patch is a JSON object"):
            read_patch(text)


def test_a_plan_ages_and_a_clock_that_was_ahead_makes_it_no_younger_than_new() -> None:
    assert PLAN.age(NOW + 5) == 5
    assert PLAN.age(NOW - 5) == 0

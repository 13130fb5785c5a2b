"""Error texts that travel with messages: opt-in, replaced at each failure, never the reason that a message is stuck, and
nothing that is to be redacted is in any output.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from kodo_consumer import Consumer, Message, Retry
from kodo_consumer.cli.history_reader import _places
from kodo_consumer.cli.message_history import FoundMessage, Search, lines, to_json
from kodo_consumer.core.values.broker import Confirmed, Rejected
from kodo_consumer.core.values.envelope import FRESH, Level, Outgoing, State, read_headers
from kodo_consumer.core.values.error_text import ErrorTextReader
from kodo_consumer.core.values.outcomes import DeadLettered, ErrorDetails, Failed, MoveAsked, RetryAsked
from kodo_consumer.core.values.policy import AuditTo, ErrorTextPolicy
from kodo_consumer.runtime.async_executor import AsyncExecutor
from kodo_consumer.runtime.process_pool.wire_format import pack_outcome, unpack_outcome
from kodo_consumer.testing import Harness
from kodo_consumer.testing.memory_broker import StoredMessage

from kodoctl.errors import KodoctlError
from kodoctl.protocol.audit_records import decode
from kodoctl.protocol.signing import Signer
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.message_json import as_json
from kodoctl.recall.message.recall_headers import recalled_properties
from kodoctl.recall.message.stored_message import DeadLetter, Position
from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest
from kodoctl.render.recall import recall_plan_lines
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import FAILED, Bench, delivery, policy
from tests.unit.consumer.runtime.test_thread_executor import TestDesk
from tests.unit.consumer.topologies import write
from tests.unit.recall.letters import family

CANARY = "4111222233334444"
SPAN = "in_place: [], retrying: {delays: [10s], attempts: 1}"


def consumer_of(folder: Path, settings: str, **more: Any) -> Consumer:
    topics = f"  J: {{subscriptions: {{s: {{{SPAN}, {settings}}}}}}}\n"
    return Consumer.load(write(folder, topics), topic="J", subscription="s", environ=more)


def texts(message: StoredMessage) -> tuple[str | None, str | None]:
    return message.properties.get("kodo-error"), message.properties.get("kodo-error-stack")


def test_nothing_travels_unless_it_is_asked_for(tmp_path: Path) -> None:
    for settings in ("audit: false", "error_text: false"):
        consumer = consumer_of(tmp_path, settings)

        @consumer.handler
        def handle(message: Message) -> None:
            raise ValueError(CANARY)

        harness = Harness(consumer)
        harness.send(b"x")
        harness.advance("1m")
        assert [texts(one) for one in harness.dead_letters] == [(None, None)]


def test_text_and_stack_of_the_last_run_are_with_the_letter_and_replace_those_of_the_one_before(tmp_path: Path) -> None:
    consumer = consumer_of(tmp_path, "error_text: true")

    @consumer.handler
    def handle(message: Message) -> None:
        raise ConnectionError(f"bank answered 503 in attempt {message.attempt}")

    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    (waiting,) = harness.waiting("L1", "retrying")
    assert texts(waiting)[0] == "bank answered 503 in attempt 1"
    harness.advance("1m")
    (dead,) = harness.dead_letters
    text, stack = texts(dead)
    assert text == "bank answered 503 in attempt 2"
    assert stack is not None
    assert stack.rpartition(":")[0].endswith("<locals>.handle")
    assert dead.properties["kodo-reason"] == "ConnectionError"
    assert sum(name.startswith("kodo-error") for name in dead.properties) == 2


def finish(bench: Bench, outcome: Any) -> Outgoing:
    """The message at work ends so; what is published of it, and its receipt."""
    bench.engine.finish(bench.take_one(), outcome)
    ((ticket, message),) = bench.published()
    bench.engine.receipt(ticket, Confirmed("(9,9,0,-1)"))
    return message


def errors(message: Outgoing) -> tuple[str | None, str | None]:
    return message.properties.get("kodo-error"), message.properties.get("kodo-error-stack")


KEPT = ErrorTextPolicy(500, 500)
OLD: dict[str, Any] = {"kodo_hop": 1, "kodo_error": "old", "kodo_error_stack": "old.f:1"}
BANK = Failed("ValueError", ErrorDetails("bank 7", "m.f:1"))


def test_a_failure_without_a_text_takes_the_old_one_away_and_a_move_that_is_no_failure_keeps_it() -> None:
    bench = Bench(policy(in_place=(), error_text=KEPT))
    for outcome, found in (
        (BANK, ("bank 7", "m.f:1")),
        (FAILED, (None, None)),
        (DeadLettered("bad", ErrorDetails("", "m.f:1")), (None, "m.f:1")),
        (MoveAsked(Level.L2), ("old", "old.f:1")),
    ):
        bench.give(delivery(len(bench.acked) + 1, **OLD), state=State.RETRYING)
        assert errors(finish(bench, outcome)) == found
        bench.acknowledged()


def test_a_wait_in_memory_keeps_the_text_until_the_message_leaves() -> None:
    bench = Bench(policy(in_place=(2_000,), error_text=KEPT))
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), BANK)
    bench.later(3)
    assert errors(finish(bench, MoveAsked(Level.L2))) == ("bank 7", "m.f:1")


def test_what_a_sender_claims_of_an_error_is_not_believed_on_a_ready_topic() -> None:
    bench = Bench(policy(in_place=(), error_text=KEPT))
    bench.give(delivery(1, **{**OLD, "kodo_hop": 0}))
    assert errors(finish(bench, MoveAsked(Level.L2))) == (None, None)
    bench.give(delivery(2, **{**OLD, "kodo_error": "x" * 2_049}), state=State.RETRYING)
    ((_, dead),) = bench.published()
    assert dead.properties["kodo-reason"] == "broken control property kodo-error"
    assert errors(dead) == (None, None)


def test_a_target_that_refuses_the_message_gets_it_without_the_text_signed_anew() -> None:
    signer = Signer(["a-key-of-16-or-more"])
    bench = Bench(policy(in_place=(), error_text=KEPT, signer=signer))
    bench.give(delivery(1))
    bench.engine.finish(bench.take_one(), BANK)
    ((ticket, message),) = bench.published()
    assert signer.genuine(message.topic, message.payload, message.properties)
    forged = {**message.properties, "kodo-error": "bank 8"}
    assert not signer.genuine(message.topic, message.payload, forged), "a signature covers the text"
    bench.engine.receipt(ticket, Rejected("too big"))
    ((ticket, smaller),) = bench.published()
    assert (smaller.topic, errors(smaller)) == (message.topic, (None, None))
    assert signer.genuine(smaller.topic, smaller.payload, smaller.properties)
    assert bench.alarms() == []
    bench.engine.receipt(ticket, Rejected("too big"))
    ((_, dead),) = bench.published()
    assert dead.properties["kodo-reason"] == "refused by its target: too big"


def test_audit_records_of_failed_runs_have_the_text_where_the_file_asks_for_it() -> None:
    for audit, found in ((True, ["bank 7", ""]), (False, ["", ""])):
        of = ErrorTextPolicy(500, 500, audit=audit)
        bench = Bench(policy(in_place=(), error_text=of, audit=AuditTo("persistent://p/n/t-s-AUDIT", wait=False)))
        assert bench.engine.flow.recorder is not None
        bench.engine.flow.recorder.run = "r"
        bench.give(delivery(1))
        finish(bench, BANK)
        bench.give(delivery(2, **OLD), state=State.RETRYING)
        finish(bench, MoveAsked(Level.L2))
        bench.later(1)
        ((_, message),) = bench.published()
        assert [record.error for record in decode(message.payload or b"")] == found


def test_records_with_long_texts_are_many_messages() -> None:
    of = ErrorTextPolicy(2_000, 0, audit=True)
    bench = Bench(policy(in_place=(), error_text=of, audit=AuditTo("persistent://p/n/t-s-AUDIT", wait=False)))
    assert bench.engine.flow.recorder is not None
    for number in range(60):
        bench.give(delivery(number))
        bench.engine.finish(bench.take_one(), Failed("E", ErrorDetails("x" * 2_000, "")))
        sent = bench.published()
        bench.engine.receipt(sent[0][0], Confirmed("x"))
        assert bench.engine.context.effects.publish == [] or len(decode(bench.published()[0][1].payload or b"")) == 50


def test_a_text_goes_to_a_process_and_back() -> None:
    for outcome in (
        BANK,
        FAILED,
        RetryAsked(5, "r", "c", ErrorDetails("a", "b")),
        DeadLettered("x", ErrorDetails("a", "")),
    ):
        assert unpack_outcome(pack_outcome(outcome)) == outcome
    headers = read_headers({"kodo-error": "a", "kodo-error-stack": "b"})
    assert (headers.error, headers.error_stack) == ("a", "b")
    assert headers.unmoved_part == FRESH


def test_a_redact_hook_is_a_plain_function(tmp_path: Path) -> None:
    consumer = consumer_of(tmp_path, "error_text: true")

    @consumer.middleware("redact")  # type: ignore[type-var]
    async def hide(text: str) -> str:
        return text

    @consumer.handler
    async def handle(message: Message) -> None:
        pass

    with pytest.raises(KodoctlError, match="hooks around redact are plain functions"):
        _ = consumer.handler_function()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("error_text: {redact: ['(a+)+$']}", "(a+)+$ repeats what may also follow the repetition"),
        ("error_text: {redact: ['(']}", "is no regular expression"),
        ("error_text: {keep: 3KiB}", "at most 2KiB"),
        ("error_text: {keep: 500}", "no unit"),
        ("error_text: yes please", "error_text"),
    ],
)
def test_a_file_with_an_unsafe_pattern_is_refused(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(KodoctlError) as problem:
        consumer_of(tmp_path, setting)
    assert any(said in str(finding) for finding in problem.value.diagnostics)


# ---- the canary

REDACTED = "audit: true, error_text: {audit: true, redact: ['[0-9]{16}']}"


def everything(harness: Harness, folder: Path) -> str:
    """Every output that there is of the dead letters and of their way."""
    of = harness.policy
    assert of.audit is not None
    assert of.dead_letter is not None
    search = Search("id-1", _places(of))
    topics = [*(lane.topic for lane in of.lanes), of.dead_letter.topic]
    for topic in topics:
        for one in harness.broker.messages(topic):
            search.message(_found(one, topic))
    for one in harness.broker.messages(of.audit.topic):
        search.records(_found(one, of.audit.topic))
    why = to_json("id-1", search, _places(of))
    letters = [
        DeadLetter("t", Position(0, 1, n), one.payload, one.properties) for n, one in enumerate(harness.dead_letters)
    ]
    asked = SelectionRequest(
        RecallAction.SEND, family(folder), parse("true", 1), "r", None, 5, again=False, edit=None, known={}
    )
    selection = LetterSelection(asked)
    for letter in letters:
        selection.offer(letter)
    summary = selection.finish()[3]
    document: Any = {**_PLAN, "summary": summary}
    stored = [str(one) for topic in (*topics, of.audit.topic) for one in harness.broker.messages(topic)]
    shown = [json.dumps(as_json(one)) for one in letters]
    plan = [line.text for line in recall_plan_lines(document, "")]
    return "\n".join(
        [json.dumps(why), *lines(why, str), *shown, json.dumps(summary), *plan, *stored, str(harness.counts)]
    )


_PLAN: Final = {
    "action": "send", "topic": "J", "subscription": "s", "where": "true", "dead_topic": "t", "lanes": [], "letters": [],
    "edit": None, "because": "", "made_at": 1, "settle": [], "seal": "0" * 64,
}  # fmt: skip


def _found(one: StoredMessage, topic: str) -> FoundMessage:
    return FoundMessage(topic, f"0:{one.number}:0:-1", one.payload, one.properties, 1, acknowledged=False)


@pytest.mark.parametrize("kind", ["plain", "async", "batch", "returned", "retry", "caused"])
@pytest.mark.parametrize("by", ["pattern", "hook"])
def test_a_canary_is_in_no_output(tmp_path: Path, kind: str, by: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = REDACTED if by == "pattern" else "audit: true, error_text: {audit: true}"
    consumer = consumer_of(tmp_path, settings)
    if by == "hook":
        consumer.middleware("redact")(lambda text: text.replace(CANARY, "[redacted]"))

    def fail(message: Message) -> None:
        if kind == "retry":
            try:
                int(f"card {CARD_TEXT}")
            except ValueError:
                raise Retry("1s", "later")  # noqa: B904  # as handlers do
        if kind == "caused":
            raise KeyError("x") from ValueError(f"card {CARD_TEXT}")
        raise ValueError(f"card {CARD_TEXT}")

    async def fail_later(message: Message) -> None:
        await asyncio.sleep(0)
        fail(message)

    def fail_batch(messages: list[Message]) -> Any:
        if kind == "returned":
            return [ValueError(f"card {CARD_TEXT}") for _ in messages]
        return fail(messages[0])

    if kind in ("batch", "returned"):
        consumer.batch_handler(fail_batch)
    else:
        consumer.handler(fail_later if kind == "async" else fail)
    harness = Harness(consumer)
    harness.send(b"x", id="id-1")
    harness.advance("2m")
    (dead,) = harness.dead_letters
    assert "card [redacted]" in dead.properties["kodo-error"]
    found = everything(harness, tmp_path)
    assert found.count("card [redacted]") > 8
    assert CANARY not in found
    assert CANARY not in caplog.text
    assert kind in ("returned", "retry") or "card [redacted]" in caplog.text


@pytest.mark.parametrize("kind", ["task", "generator"])
@pytest.mark.parametrize("redacts", [True, False])
def test_a_canary_is_in_no_log_of_what_no_handler_waits_for(
    kind: str, redacts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio logs what a handler leaves behind and what fails, with a traceback; its message is done by then."""

    async def fail() -> None:
        raise ValueError(f"card {CARD_TEXT}")

    async def left() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await fail()

    async def handle(message: Message) -> None:
        if kind == "task":
            asyncio.ensure_future(fail())  # noqa: RUF006  # nobody keeps it: that is what is tried
        else:
            async for _ in left():
                break

    texts = ErrorTextReader(ErrorTextPolicy(500, 500, ("[0-9]{16}",)) if redacts else ErrorTextPolicy(500, 500))
    desk, runner = TestDesk(), AsyncExecutor(handle, 1, texts)
    runner.start(desk)
    try:
        desk.put(1)
        runner.wake()
        eventually(lambda: desk.ended and gc.collect() >= 0 and "never retrieved" in caplog.text)
    finally:
        runner.stop()
    assert ("Traceback" in caplog.text, CANARY in caplog.text) == (not redacts, not redacts)
    assert ("Task exception was never retrieved: ValueError: card [redacted] of order 42" in caplog.text) is redacts


@pytest.mark.parametrize("kind", ["decide", "receive", "chained"])
@pytest.mark.parametrize("by", ["pattern", "hook", "nobody"])
def test_a_canary_is_in_no_log_of_a_hook_that_fails(
    tmp_path: Path, kind: str, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A hook that raises brings along the exception that it was shown."""
    consumer = consumer_of(tmp_path, REDACTED if by == "pattern" else "audit: true, error_text: {audit: true}")
    if by == "hook":
        consumer.middleware("redact")(lambda text: text.replace(CANARY, "[redacted]"))

    def fails(*_: Any) -> None:
        raise ValueError(f"card {CARD_TEXT}")

    def chained(_message: Message, problem: BaseException | None) -> None:
        raise RuntimeError("no text of its own") from problem

    consumer.handler(fails if kind == "chained" else lambda _: None)
    consumer.middleware("receive" if kind == "receive" else "decide")(chained if kind == "chained" else fails)  # type: ignore[type-var]
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    complaints = "\n".join(one for one in caplog.text.splitlines() if "kodo.consumer" in one or "Error" in one)
    assert "failed; the message goes its way: " in complaints
    assert (CANARY in caplog.text) is (by == "nobody")
    assert by == "nobody" or "card [redacted] of order 42" in complaints.partition("goes its way")[2]


CARD_TEXT = f"{CANARY} of order 42"


def test_a_failing_hook_keeps_no_text_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    consumer = consumer_of(tmp_path, "error_text: true")

    @consumer.middleware("redact")
    def fails(text: str) -> str:
        raise KeyError(text)

    @consumer.handler
    def handle(message: Message) -> None:
        raise ValueError(CANARY)

    harness = Harness(consumer)
    harness.send(b"x")
    harness.send(b"y")
    harness.advance("2m")
    assert len(harness.dead_letters) == 2
    for one in harness.dead_letters:
        assert one.properties["kodo-error"].endswith("fails failed with KeyError)")
        assert CANARY not in str(one)
    assert CANARY not in caplog.text


# ---- recalls


def test_a_recalled_letter_begins_without_the_text() -> None:
    letter = DeadLetter("t", Position(0, 1, 2), b"x", {"kodo-error": "a", "kodo-error-stack": "b", "uid": "u"})
    recalled = recalled_properties(letter, "r", "s", ready=False)
    assert not any(name.startswith("kodo-error") for name in recalled)
    assert parse("error = 'a' AND error_stack LIKE 'b%' AND cause = 'a'", 1).chooses(letter)

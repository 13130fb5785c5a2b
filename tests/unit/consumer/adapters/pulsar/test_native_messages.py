"""The native module by itself, without a broker: what it reads of hostile messages, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.adapters.pulsar.delivery_decoding import _copy_message
from kodo_consumer.adapters.pulsar.native_border import DELIVERIES
from kodo_consumer.core.values.envelope import Delivery, Outgoing

from tests.native import allocations
from tests.native.client_messages import built, resident, wrapped
from tests.samples.profiles import examples

pytest.importorskip("kodo_fast", reason="the native border is not built (make setup)")
_pulsar = pytest.importorskip("_pulsar")
_hostile = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).filter(lambda text: text.isprintable() or "\x00" in text).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from([b"", b"\x00", b"a\x00b", b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"x" * 15, b"x" * 16, b"n" * 65, "ü\u0301\U0001f600".encode()]),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def native() -> Any:
    border, status = DELIVERIES.choose()
    assert border is not None, status
    from kodo_fast import _native

    return _native


def test_a_message_that_was_taken_out_before_is_refused() -> None:
    """It ended the process."""
    program = (
        "from kodo_consumer.adapters.pulsar.native_border import DELIVERIES; from tests.native.client_messages import built\n"
        "DELIVERIES.choose(); from kodo_fast import _native; message = built(b'x', {}); _native.delivery(message)\n"
        "try: _native.delivery(message)\n"
        "except ValueError as problem: print(problem)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "the message was taken out before\n"), done.stderr


@examples(300)
@given(
    payload=st.one_of(st.none(), st.binary(max_size=200)),
    properties=st.dictionaries(_hostile, _hostile, max_size=8),
    key=_hostile,
    ordering_key=_hostile,
    happened=st.sampled_from([0, 1, 1 << 40, (1 << 63) - 1]),
)
def test_hostile_metadata_is_read_as_the_binding_reads_it_or_left_to_it(
    native: Any, payload: bytes | None, properties: dict[bytes, bytes], key: bytes, ordering_key: bytes, happened: int
) -> None:
    build = lambda: built(payload, properties, key, happened, ordering_key)  # noqa: E731
    expected, raw = _copy_message(wrapped(build())), build()
    found = native.delivery(raw)
    if found is None:  # the message is as it was
        found = _copy_message(wrapped(raw))
        assert found.broken
    assert found._replace(token=None) == expected._replace(token=None)
    assert str(found.token) == str(expected.token)


def test_a_message_that_was_read_is_gone_and_its_delivery_is_a_plain_one(native: Any) -> None:
    found = native.delivery(built(b"x" * 5_000, {b"n": b"v"}))
    assert type(found) is Delivery
    assert found == Delivery((-1, -1, -1), found.token, b"x" * 5_000, {"n": "v"}, "", "", 0, 0)
    assert (found.position, found.partition) == ("-1:-1:-1:-1", "-1")
    with pytest.raises(TypeError):
        hash(found)
    with pytest.raises(TypeError):
        type(found.token)()


def test_a_token_answers_as_the_message_id_of_the_client_does(native: Any) -> None:
    token = native.delivery(built(b"", {})).token
    assert [token.ledger_id(), token.entry_id(), token.partition(), token.batch_index()] == [-1, -1, -1, -1]
    assert native.position(_pulsar.MessageId(2, 1 << 40, 5, 999)) == (1 << 40, 5, 2, 999)


@pytest.mark.parametrize("wrong", [5, None, "text", object()])
def test_what_is_no_object_of_the_client_is_refused(native: Any, wrong: object) -> None:
    for make in (native.Reader, lambda one: native.Producer(one, 1), native.delivery, native.position):
        with pytest.raises((TypeError, AttributeError)):
            make(wrong)


def test_another_object_of_the_client_is_refused(native: Any) -> None:
    message = built(b"x", {})
    for make in (native.Reader, lambda one: native.Producer(one, 1), native.position):
        with pytest.raises(TypeError, match="_pybind11_conduit_v1_ gives no"):
            make(message)
    with pytest.raises(TypeError, match="a producer and a list"):
        native.Sender().publish(message, [(1, Outgoing("t", b"", {}))], False)
    with pytest.raises(TypeError, match="3 arguments, not 1"):
        native.Sender().publish(message)


def test_whoever_waits_for_receipts_is_woken(native: Any) -> None:
    sender, found, began = native.Sender(), [], time.monotonic()
    waiting = threading.Thread(target=lambda: found.append(sender.receipts(30_000, 0)))
    waiting.start()
    sender.wake()
    waiting.join(25)
    assert found == [[]]
    assert time.monotonic() - began < 25
    assert sender.receipts(1, 0) == []


_START = """
import os, sys, threading, time
from kodo_consumer.adapters.pulsar.native_border import DELIVERIES
border, status = DELIVERIES.choose()
assert border, status
sender = border.sender()
"""


def _run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _START + script], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_process_may_end_while_a_thread_waits() -> None:
    ended = _run(
        "for _ in range(3): threading.Thread(target=lambda: [sender.receipts(20, 1) for _ in range(10**6)], daemon=True).start()\n"
        "time.sleep(0.3)\nsys.exit(7)"
    )
    assert (ended.returncode, ended.stderr) == (7, "")


def test_after_a_fork_every_call_raises() -> None:
    ended = _run(
        "if os.fork() == 0:\n"
        "    try: sender.receipts(0, 0)\n"
        "    except RuntimeError as problem: print(problem, flush=True); os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]), sender.receipts(0, 0))"
    )
    assert ended.stdout.split("\n") == ["the client library's objects do not survive a fork", "3 []", ""], ended.stderr


def test_an_allocation_that_fails_raises_and_the_process_lives(tmp_path: Path) -> None:
    ended = allocations.run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [line.partition(":")[0] for line in ended.stdout.splitlines()] == ["delivery", "columns", "sender"]
    assert ": 0 of" not in ended.stdout


def test_nothing_is_left_of_messages_that_were_read(native: Any) -> None:
    """Names of properties that a sender invents are not kept, nor is anything else."""

    def read(count: int, first: int) -> None:
        for number in range(first, first + count):
            native.delivery(
                built(b"x" * 1_000, {b"name-%d" % number: b"v" * 50, b"\xff": b"lost"} if number % 2 else {b"n": b"v"})
            )

    read(20_000, 0)
    before = resident()
    read(60_000, 20_000)
    assert resident() - before < 8 << 20

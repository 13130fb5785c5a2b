"""Columns of the native border, without a broker: what they hold of hostile messages, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.landing.tables import MESSAGES
from kodo_pipeline.source import native_batches
from kodo_pipeline.source.message_columns import Columns, NoMessage, record_batch
from kodo_pipeline.source.native_batches import BATCHES, EntrySpan, arrays_of
from kodo_pipeline.source.options import read_options
from kodo_pipeline.source.splits import LedgerRange, Split

from kodoctl.errors import UsageError
from kodoctl.topology.units import LATEST
from tests.native.client_messages import built, resident, wrapped
from tests.samples.profiles import examples

pa = pytest.importorskip("pyarrow")
pulsar = pytest.importorskip("pulsar")
kodo_fast = pytest.importorskip("kodo_fast", reason="the native border is not built (make setup)")
_pulsar = pytest.importorskip("_pulsar")
_SPLIT = Split("persistent://a/b/c", 0, (LedgerRange(1, 0, 99, 100),))
_hostile = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from([b"", b"\x00", b"a\x00b", b"\xff", b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf5\x80\x80\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xe2\x82", b"1234567\xc3", b"12345678\xc3\xa4", b"\x80"]),
)  # fmt: skip
_message = st.tuples(
    st.one_of(st.none(), st.binary(max_size=60)), st.dictionaries(_hostile, _hostile, max_size=4), _hostile,
    st.sampled_from([0, 1, 1 << 40, LATEST, LATEST + 1, (1 << 63) - 1]),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    vars(BATCHES).pop("loaded", None)
    yield
    vars(BATCHES).pop("loaded", None)


@pytest.fixture(scope="module")
def native() -> Any:
    assert BATCHES.choose().border is not None
    from kodo_fast import _native

    return _native


def _batch(native: Any, raw: list[Any], *, payload: bool = True) -> Any:
    columns = kodo_fast.Columns._make(native.columns(raw, native_batches._decode_message, payload, LATEST))
    return record_batch(_SPLIT, arrays_of(len(raw), columns))


@examples(100)
@given(messages=st.lists(_message, max_size=12), payload=st.booleans())
def test_columns_are_those_of_the_binding(native: Any, messages: list[Any], payload: bool) -> None:
    gathered = Columns(_SPLIT, 5_000, payload=payload)
    for one in messages:
        gathered.add(-1, -1, -1, [wrapped(built(*one))])
    expected, found = gathered.batch(), _batch(native, [built(*one) for one in messages], payload=payload)
    found.validate(full=True)
    assert found.schema == MESSAGES.arrow()
    assert found.equals(expected), (found.to_pylist(), expected.to_pylist())


def test_what_is_odd_is_odd_whatever_is_beside_it() -> None:
    """An odd ordering key was told or not, as the batch had another odd message."""
    columns = Columns(_SPLIT, 5_000, payload=True)
    columns.add(1, 0, -1, [wrapped(built(b"x", {}, ordering_key=b"\xff"))])
    columns.add(1, 1, -1, [wrapped(built(b"x", {b"\xff": b""}, b"", 0))])
    columns.add(1, 2, -1, [NoMessage(7)])
    broken = columns.batch().column("broken").to_pylist()
    assert broken[:2] == [None, "not UTF-8 text, and lost: properties"]
    assert broken[2].startswith("the client library gives out no message")


def test_buffers_are_read_where_they_are_and_outlive_their_reader(native: Any) -> None:
    columns = kodo_fast.Columns._make(native.columns([built(b"x" * 100, {}, b"", 0)] * 1, print, True, LATEST))
    array = arrays_of(1, columns).payload
    address = array.buffers()[2].address
    with memoryview(columns.payloads) as view:
        assert (view.readonly, len(view)) == (True, 100)
        assert pa.py_buffer(view).address == address
    del columns
    assert array.to_pylist() == [b"x" * 100]
    with pytest.raises(TypeError):
        native.Buffer()


@pytest.mark.parametrize(
    "answer", [None, (), (1, {}, "", ""), (b"", [], "", ""), (b"", {}, "\ud800", ""), (b"", {"a": 1}, "", "")]
)
def test_an_answer_that_is_none_ends_the_reading(native: Any, answer: Any) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        native.columns([built(b"x", {}, b"\xff", 0)], lambda *_: answer, True, LATEST)


def test_what_is_no_reader_is_refused(native: Any) -> None:
    good = (print, (1, 1), True, LATEST, 1, 1, 0, 1)
    for wrong in (5, None, object()):
        with pytest.raises((TypeError, AttributeError)):
            native.BatchReader(wrong, *good)
    with pytest.raises(TypeError, match="_pybind11_conduit_v1_ gives no"):
        native.BatchReader(built(b"x", {}, b"", 0), *good)
    for wrong_limits in ((0, 1, 0, 1), (1, 0, 0, 1), (1, 1, -1, 1), (1, 1, 0, 0)):
        with pytest.raises(ValueError, match="limits from 1"):
            native.BatchReader(built(b"x", {}, b"", 0), *good[:4], *wrong_limits)


def test_nothing_is_left_of_messages_that_were_read(native: Any) -> None:
    def read(count: int) -> None:
        for number in range(0, count, 100):
            made = [built(b"x" * 500, {b"name-%d" % number: b"v", b"\xff": b""}, b"k", 1) for _ in range(100)]
            native.columns(made, native_batches._decode_message, True, LATEST)

    read(4_000)
    before = resident()
    read(16_000)
    assert resident() - before < 8 << 20


def test_columns_that_the_package_refuses_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kodo_fast, "_test_columns", lambda *_: (_ for _ in ()).throw(ImportError("self-test")))
    assert BATCHES.choose() == (None, "pulsar-client 3.13.0 is not as expected: self-test")


def test_columns_that_look_otherwise_than_expected_are_refused(native: Any) -> None:
    def cut(*arguments: Any) -> Any:
        found = list(native.columns(*arguments))
        found[8] = b"k"
        return tuple(found)

    with pytest.raises(ImportError, match="self-test: columns differ"):
        kodo_fast._test_columns(cut, _pulsar)
    with pytest.raises(ValueError, match="self-test: a message at -1 is not read"):
        kodo_fast._none_is_odd(None, -1)


def test_the_option_and_the_variable_switch_it_off() -> None:
    good = {"topic": "persistent://a/b/c", "adminUrl": "http://h:8080", "serviceUrl": "pulsar://h:6650"}
    assert read_options(good, 1).native
    assert not read_options(good | {"native": "false"}, 1).native
    assert not read_options(good, 1, "false").native
    assert read_options(good | {"native": "true"}, 1, "false").native
    with pytest.raises(UsageError, match="KODO_CONSUMER_NATIVE = 'maybe'"):
        read_options(good, 1, "maybe")


class _Reader:
    def __init__(self, reads: list[Any]) -> None:
        self._reads = iter(reads)
        self._reader = self

    def __call__(self, *_: Any) -> Any:
        return self

    def read(self) -> Any:
        return next(self._reads)


def test_a_read_that_fails_is_an_error_of_the_client(native: Any) -> None:
    options = replace(read_options({"topic": "a/b/c", "adminUrl": "http://h:1", "serviceUrl": "pulsar://h:2"}, 1))
    closed = _Reader([(0, 4, int(_pulsar.Result.AlreadyClosed), [], ())])
    border = kodo_fast.BatchBorder(closed, kodo_fast.Columns, "")
    with pytest.raises(pulsar.PulsarException, match=r"^Pulsar error: AlreadyClosed$"):
        next(iter(native_batches.NativeBatches(closed, _SPLIT, options, border)))
    quiet = _Reader([(0, 4, int(_pulsar.Result.Timeout), [(1, 2, 3, 4, 5, b"")], native.columns([], print, True, 1))])
    (read,) = native_batches.NativeBatches(quiet, _SPLIT, options, border._replace(reader=quiet))
    assert read == (None, [EntrySpan(1, 2, 3, 4, 5, b"")], "timeout")
    assert native_batches.native_batches(closed, _SPLIT, replace(options, native=False)) is None
    assert native_batches.native_batches(closed, _SPLIT, options) is None  # no object of the client

"""A reader takes its messages in bundles by the native border, else one by one, and says the end and errors alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from kodoctl.pulsar.binary.client import BoundedReader
from kodoctl.pulsar.binary.deadlines import Patience
from kodoctl.pulsar.connection.native_border import NativeMessage
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor

PATIENCE = Patience(WaitMonitor())
FOUND = NativeMessage((1, 2, 0), "id", b"x", {}, "", "", 0, 0, -1, "", "")


def reader(*, available: bool = True) -> Any:
    return SimpleNamespace(_reader="theirs", has_message_available=lambda: available)


def border(*answer: Any) -> Any:
    def opened(owner: Any, kind: Any) -> Any:
        assert (owner, kind) == ("theirs", NativeMessage)
        return SimpleNamespace(
            read=lambda most, size, wait: answer if (most, size, wait) == (500, 1 << 23, 250) else ()
        )

    return SimpleNamespace(reader=opened)


def test_a_bundle_has_what_only_the_binding_reads_in_its_place() -> None:
    bounded = BoundedReader(reader(), PATIENCE, "a topic", 0, border([FOUND, None], [(1, "raw")], 0))
    first, second = bounded.take(0.25) or []
    assert first is FOUND
    assert (type(second), second._message) == (pulsar.Message, "raw")


def test_at_the_end_there_is_nothing_more() -> None:
    assert BoundedReader(reader(available=False), PATIENCE, "a topic", 0, border()).take(1) is None


def test_in_time_nothing_may_come() -> None:
    assert BoundedReader(reader(), PATIENCE, "a topic", 0, border([], [], 0)).take(0.25) == []


def test_an_error_is_the_client_librarys() -> None:
    failed = border([], [], int(pulsar.Result.AuthorizationError))
    with pytest.raises(pulsar.AuthorizationError, match="Pulsar error: AuthorizationError"):
        BoundedReader(reader(), PATIENCE, "a topic", 0, failed).take(0.25)
    some = border([FOUND], [], int(pulsar.Result.AuthorizationError))
    assert BoundedReader(reader(), PATIENCE, "a topic", 0, some).take(0.25) == [FOUND], "it comes again"


def test_without_the_border_or_where_it_does_not_know_the_reader_the_binding_reads() -> None:
    def refused(*_: Any) -> Any:
        raise TypeError("no reader")

    unknown: Any = SimpleNamespace(reader=refused)
    for given in (None, unknown):
        left = ["a", "b"]
        plain = SimpleNamespace(
            has_message_available=lambda left=left: left, read_next=lambda _, left=left: left.pop(0)
        )
        plain._reader = "theirs"
        assert BoundedReader(plain, PATIENCE, "a topic", 0, given).take(1) == ["a", "b"]


def test_messages_before_an_error_are_returned_and_the_error_is_raised_if_it_lasts() -> None:
    came: list[Any] = ["a", "b", pulsar.ConnectError(pulsar.Result.ConnectError), "c", "d"]

    def available() -> bool:
        if came and isinstance(came[0], Exception):
            raise came.pop(0)
        return bool(came)

    plain = SimpleNamespace(has_message_available=available, read_next=lambda _: came.pop(0), is_connected=lambda: True)
    bounded = BoundedReader(plain, Patience(WaitMonitor(pause=lambda _: None)), "a topic", 60)
    assert [bounded.take(1), bounded.take(1), bounded.take(1)] == [["a", "b"], ["c", "d"], None]
    came[:] = [pulsar.ConnectError(pulsar.Result.ConnectError)]
    with pytest.raises(pulsar.ConnectError):
        BoundedReader(plain, PATIENCE, "a topic", 0).take(1)


@pytest.mark.parametrize(("away", "found"), [(0, ["a"]), (40, ["a"]), (90, [])])
def test_a_broker_that_is_away_is_waited_for_and_no_longer(away: float, found: list[str]) -> None:
    now, left = [0.0], ["a"]

    def read_next(limit: int) -> str:
        if now[0] < away or not left:
            now[0] += limit / 1000
            raise pulsar.Timeout
        return left.pop()

    plain = SimpleNamespace(
        has_message_available=lambda: True, read_next=read_next, is_connected=lambda: now[0] >= away
    )
    bounded = BoundedReader(plain, Patience(WaitMonitor(clock=lambda: now[0])), "a topic", 60)
    assert bounded.take(2.0) == found
    assert now[0] == pytest.approx(min(away, 60), abs=0.1)
    if found:
        assert bounded.take(2.0) == [], "its broker is there"

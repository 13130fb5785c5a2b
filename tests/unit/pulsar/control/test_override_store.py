"""Live orders on a subscription: the history that people's changes leave, beside the orders and the other properties."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kodoctl.errors import ClusterError
from kodoctl.protocol.overrides import Override, OverrideKind, with_override
from kodoctl.pulsar.admin.admin import Admin, Reply
from kodoctl.pulsar.control.override_store import OverrideStore

NOW = 1_800_000_000_000
MOVE = Override(OverrideKind.MOVE, NOW, NOW + 3_600_000, "ann@desk", tenant="u1", to="L2")


class Properties:
    """The admin API of one subscription. `lost`: how many writes are overwritten by somebody else at once."""

    def __init__(self, lost: int = 0) -> None:
        self.now: dict[str, str] = {"kodoctl": "trade"}
        self.lost = lost

    def call(self, method: str, path: str, body: Any = None) -> Reply:
        assert path.endswith("/subscription/billing/properties")
        if method == "PUT" and self.lost:
            self.lost -= 1
        elif method == "PUT":
            self.now = dict(body)
        return cast("Reply", SimpleNamespace(missing=False, ok=True, status=200, data=dict(self.now)))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodoctl.pulsar.control.override_store.time.sleep", lambda _: None)


def store(admin: Properties, who: str = "ann@desk") -> OverrideStore:
    return OverrideStore(cast("Admin", admin), "persistent://kodo/trade/orders", "billing", Random(1), who)


@pytest.mark.parametrize("lost", [0, 2])
def test_people_leave_a_history_and_each_change_stands_there_once(lost: int) -> None:
    admin = Properties(lost)
    assert store(admin).history() == ()
    store(admin).change(lambda orders: with_override(orders, MOVE), NOW)
    admin.lost = lost
    store(admin, "bob@desk").change(lambda _: (), NOW + 60_000, replace=True)
    assert [(change.who, change.back, change.at - NOW) for change in store(admin).history()] == [
        ("ann@desk", False, 0),
        ("bob@desk", True, 60_000),
    ]
    assert admin.now.keys() == {"kodoctl", "kodo-steer-history"}


def test_who_is_no_person_leaves_none() -> None:
    admin = Properties()
    store(admin, "").change(lambda orders: with_override(orders, MOVE), NOW)
    assert admin.now.keys() == {"kodoctl", "kodo-steer"}


def test_a_history_that_cannot_be_read_is_told_and_begins_anew() -> None:
    admin = Properties()
    admin.now |= {"kodo-steer-history": "garbage", "kodo-steer": "garbage"}
    with pytest.raises(ClusterError, match="history"):
        store(admin).history()
    store(admin).change(lambda orders: with_override(orders, MOVE), NOW, replace=True)
    assert [change.order for change in store(admin).history()] == [MOVE]

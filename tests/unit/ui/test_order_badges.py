"""Badges of live orders: what, until when, by whom and why; many of one kind are one badge."""

from __future__ import annotations

from kodoctl.protocol.overrides import Override, OverrideKind, overrides_text
from kodoctl.ui.order_badges import order_badges, paused_tenants
from tests.samples.consoles import NOW, lane

END = NOW + 3_600_000


def order(kind: OverrideKind, **values: str) -> Override:
    return Override(kind, NOW - 1_000, END, "root@vm", **values)


def badges(*orders: Override) -> list[str]:
    text = overrides_text(orders)
    return list(order_badges([lane(steered=text), lane("retrying", steered=text), lane("dead")], NOW))


def test_each_order_says_until_when_by_whom_and_why() -> None:
    assert badges(
        order(OverrideKind.PAUSE, lane="L1/ready", why="bank"), order(OverrideKind.LIMIT, limit="rate", to="5/s")
    ) == [
        "lane L1/ready paused until 2026-01-01 12:55 UTC by root@vm: bank",
        "limited: rate limit 5/s until 2026-01-01 12:55 UTC by root@vm",
    ]


def test_many_of_a_kind_are_one() -> None:
    moves = [order(OverrideKind.MOVE, tenant=f"u{number}", to="D1") for number in range(100)]
    assert badges(*moves) == ["100 orders: moved, the last until 2026-01-01 12:55 UTC"]
    assert len(badges(*moves[:3])) == 3


def test_what_no_worker_follows_is_said() -> None:
    assert "steered by something workers cannot read" in next(order_badges([lane(steered="x")], NOW))
    assert list(order_badges([lane(steered=overrides_text([order(OverrideKind.PAUSE, lane="L1/ready")]))], END)) == []


def test_a_pause_in_force_is_known() -> None:
    pause = overrides_text([order(OverrideKind.PAUSE, tenant="u7"), order(OverrideKind.MOVE, tenant="u8", to="D1")])
    assert paused_tenants([lane(), lane(steered=pause)], NOW) == {"u7"}
    assert not paused_tenants([lane(steered=pause)], END)
    assert not paused_tenants([lane(steered="x"), lane()], NOW)
    assert paused_tenants([lane(steered=overrides_text([order(OverrideKind.PAUSE, lane="L1/ready")]))], NOW) == {""}

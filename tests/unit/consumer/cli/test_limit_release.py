"""Release of what waits because of a limit: its lanes, its condition, and the command that is run."""

from __future__ import annotations

import contextlib
from typing import Any, Self

import pytest
import typer
from kodo_consumer.cli import limit_release
from kodo_consumer.cli.override_commands import _because
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.lane_set import ALL_LANES, LaneSet
from kodo_consumer.core.values.limit_policy import Concurrency, Limit, Pace, Quota, Rate

from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.stored_message import DeadLetter, Position
from tests.unit.consumer.engine_bench import policy

OF = {"topology": "shop.yaml", "topic": "orders", "subscription": "billing"}


def order(**details: str) -> Override:
    return Override(OverrideKind.LIMIT, 1, 2, "ann@desk", **details)


def quota(within: LaneSet = ALL_LANES, **changes: Any) -> Limit:
    return Quota("uid", 1, 1_000, shared=False, within=within, **changes)


def letter(key: str = "", reason: str = "over its limit", **properties: str) -> DeadLetter:
    given = {"kodo-reason": reason, **properties}
    return DeadLetter("t", Position(0, 1, 1), b"x", given, key=key, tenant=given.get("uid") or "(none)")


def chosen(condition: str, message: DeadLetter) -> bool:
    return parse(condition, 0).chooses(message)


@pytest.mark.parametrize(
    ("limit", "kind", "lanes"),
    [
        (quota(), "quota", ["BLOCKING", "PENDING", "RETRYING"]),
        (Rate("uid", Pace(1, 1_000, 1), shared=False), "rate", ["PENDING", "RETRYING"]),
        (Concurrency("uid", 1, shared=False), "concurrency", []),
    ],
)
def test_lanes_are_those_where_the_kind_of_limit_makes_messages_wait(limit: Limit, kind: str, lanes: list[str]) -> None:
    found = limit_release.lanes_of_waits(policy(limits=(limit,)), order(limit=kind, by="uid"))
    assert sorted(name for name in found if name.startswith("L1/")) == [f"L1/{lane.lower()}" for lane in lanes]
    assert not any(name.startswith("B1/") for name in found)


def test_a_limit_of_some_lanes_is_about_their_waits_alone() -> None:
    states = tuple(State)[:-1]
    some = quota(LaneSet(levels=("L2",), states=states))  # type: ignore[arg-type]
    made = policy(limits=(quota(), some))
    found = limit_release.lanes_of_waits(made, order(limit="quota", by="uid", within=str(some.within)))
    assert found
    assert {name[:2] for name in found} == {"L2"}


@pytest.mark.parametrize("value", ["u1", "it's", "back\\slash", "a' OR true OR '"])
def test_the_condition_chooses_the_messages_of_a_value_and_no_others(value: str) -> None:
    fair = policy(fair_by="uid", limits=(quota(),))
    by_property = policy(
        limits=(Rate("shop", Pace(1, 1_000, 1), shared=False), Rate("key", Pace(1, 1_000, 1), shared=False))
    )
    for made, details, yes, no in (
        (fair, {"limit": "quota", "by": "uid"}, letter(uid=value), letter(uid="else")),
        (by_property, {"limit": "rate", "by": "shop"}, letter(shop=value), letter(uid=value)),
        (by_property, {"limit": "rate", "by": "key"}, letter(key=value), letter(shop=value)),
    ):
        text = limit_release.condition_of(made, order(value=value, **details))
        assert chosen(text, yes)
        assert not chosen(text, no)
        assert not chosen(text, letter("x", "ConnectionError", uid=value, shop=value))


def test_without_a_value_those_with_a_limit_of_their_own_stay() -> None:
    made = policy(fair_by="uid", limits=(quota(overrides={"vip": (9, 1_000), "big": (8, 1_000)}),))
    text = limit_release.condition_of(made, order(limit="quota", by="uid"))
    assert [uid for uid in ("u1", "vip", "big", "") if chosen(text, letter(uid=uid))] == ["u1", ""]
    everyone = policy(limits=(Quota(None, 1, 1_000, shared=False),))
    assert limit_release.condition_of(everyone, order(limit="quota")) == "reason = 'over its limit'"


class Child:
    """A process that is interrupted once and then ends."""

    def __init__(self, words: list[str], code: int) -> None:
        self.words, self._code, self._waited = words, code, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def wait(self) -> int:
        self._waited += 1
        if self._waited == 1:
            raise KeyboardInterrupt
        return self._code


@pytest.mark.parametrize(("code", "answer"), [(0, None), (4, 4), (-9, 1)])
def test_the_command_gets_the_connection_and_its_end_is_the_end(
    monkeypatch: pytest.MonkeyPatch, code: int, answer: int | None
) -> None:
    children: list[Child] = []

    def popen(words: list[str]) -> Child:
        children.append(Child(words, code))
        return children[-1]

    monkeypatch.setattr("kodo_consumer.cli.limit_release.subprocess.Popen", popen)
    made = policy(limits=(quota(),))
    given = order(limit="quota", by="uid", value="u1", to="9/h", why="they paid")
    ends = pytest.raises(typer.Exit) if answer is not None else contextlib.nullcontext()
    with ends as end:
        limit_release.release_waiting(made, given, OF, {"admin_url": "http://h:1", "env": None}, because="they paid")
    assert answer is None or (end is not None and end.value.exit_code == answer)
    words = children[0].words[1:]
    assert words[:9] == [
        "-P",
        "-m",
        "kodoctl",
        "waiting",
        "release",
        "shop.yaml",
        "--topic",
        "orders",
        "--subscription",
    ]
    assert words[-2:] == ["--admin-url", "http://h:1"]
    assert words[words.index("--because") + 1] == "they paid"


def test_the_reason_of_a_release_is_the_order_or_that_it_is_taken_back() -> None:
    given = order(limit="quota", by="uid", value="u1", to="1/s", why="they paid")
    assert _because(given, back=False) == "quota limit of uid u1 1/s: they paid"
    assert _because(given, back=True) == "quota limit of uid u1 as in the file again: they paid"

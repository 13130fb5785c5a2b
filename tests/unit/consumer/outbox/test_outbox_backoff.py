"""Backoff, rest and identities of the outbox; what its table cannot hold."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import kodo_consumer.outbox
import pytest
from kodo_consumer.outbox import TABLE, Outbox, outbox_table
from kodo_consumer.outbox.backoff import Backoff, TopicCooldown
from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import Session

from kodoctl.errors import UsageError
from tests.unit.consumer.outbox_setting import TOPICS
from tests.unit.consumer.topologies import write


def test_delays_go_by_business_code_and_the_last_one_stays() -> None:
    backoff = Backoff({"default": (100, 1_000), "refund": (50,)}, attempts=3)
    for code, tries, base in (("", 1, 100), ("x", 2, 1_000), ("x", 99, 1_000), ("refund", 1, 50), ("refund", 7, 50)):
        delays = {backoff.delay(code, tries, Random(seed)) for seed in range(50)}
        assert base <= min(delays) < max(delays) <= base * 1.25
    assert Backoff({}).delay("x", 1, Random(1)) >= 1_000
    assert [backoff.is_late(tries) for tries in (2, 3, 4)] == [False, True, True]


def test_a_topic_rests_longer_each_time_and_is_forgotten_when_it_works() -> None:
    rests = TopicCooldown()
    now = 0.0
    for rest in (1.0, 2.0, 4.0, 8.0, 16.0, *[30.0] * 1_020):
        assert rests.on_failure("t", now)
        assert not rests.on_failure("t", now), "it rests already"
        assert rests.to_probe(now + rest - 0.1) == []
        now += rest
        assert rests.to_probe(now) == ["t"]
        assert rests.topics == {"t"}
    assert rests.works("t")
    assert not rests.works("t")
    assert rests.topics == frozenset()


@pytest.fixture
def session(tmp_path: Path) -> Any:
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    TABLE.create(engine)
    with Session(engine) as found:
        yield found
    engine.dispose()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"topic": "x" * 256}, "topic: 256 characters, 255 are the most"),
        ({"topic": "t", "key": "a\x00"}, "key: a NUL character"),
        ({"topic": "t", "delay": -1}, "delay: -1 is in the past"),
        ({"topic": "t", "delay": "soon"}, "delay: "),
        ({"topic": "t", "payload": object()}, "K716"),
        ({"topic": "t", "properties": {"kodo-for": "x"}}, "reserved: kodo-for"),
    ],
)
def test_what_could_not_be_stored_or_sent_is_refused(session: Session, row: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Outbox().add(session, **{"payload": b"x", **row})


def test_with_a_topology_it_is_refused_before_it_is_written(session: Session, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"required": ["amount"]}', encoding="utf-8")
    outbox = Outbox.load(write(tmp_path, TOPICS), app="shop", environ={})
    with pytest.raises(UsageError, match="K702"):
        outbox.add(session, topic="nowhere", payload=b"x")
    with pytest.raises(UsageError, match="K716"):
        outbox.add(session, topic="orders", payload={}, properties={"uid": "u"})
    name = outbox.add(session, topic="orders", payload={"amount": 1}, properties={"uid": "u"}, id="mine")
    assert name == "mine"
    session.commit()
    assert session.execute(TABLE.select()).one().app == "shop"


def test_the_table_may_live_in_an_applications_own_metadata() -> None:
    table = outbox_table(MetaData())
    assert [column.name for column in table.columns] == [
        "id", "app", "biz_code", "protocol", "env", "topic", "key", "body", "properties", "next_push_at", "retry_count",
        "status", "version", "last_error", "created_at",
    ]  # fmt: skip
    with pytest.raises(AttributeError):
        kodo_consumer.outbox.nothing  # noqa: B018

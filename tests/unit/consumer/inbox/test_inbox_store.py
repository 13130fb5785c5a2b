"""Rows of the inbox in SQLite and PostgreSQL: accepted once, claimed by one worker, in the order of their keys."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from kodo_consumer.core.values.envelope import Delivery, Level, State
from kodo_consumer.inbox import TABLE
from kodo_consumer.inbox.inbox_row import ClaimedRow, InboxToken, delivery_of, head_of, name_of_row
from kodo_consumer.inbox.inbox_rows import InboxRows
from kodo_consumer.inbox.inbox_store import InboxStore
from sqlalchemy import Engine, select, update

from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import delivery, topic

READY = topic(Level.L1, State.READY)


def _store(engine: Engine, lasts: int = 60_000) -> InboxStore:
    return InboxStore(engine, "p/n/t:s", lasts)


def _names(found: list[Delivery]) -> list[bytes | None]:
    return [one.payload for one in found]


# ---- rows


@pytest.mark.parametrize("payload", [b"x", b"", None])
def test_a_row_gives_the_message_back_as_it_was_received(payload: bytes | None) -> None:
    given = delivery(7, payload, key="k\0", uid="ü\ud800")._replace(
        token="(3,7,1,2)", entry=(3, 7, 1), batch_index=2, event_time=5, ordering_key="o", schema="L1:3", broken="why"
    )
    found = delivery_of(ClaimedRow(9, given.position, head_of(given), payload), "c")
    assert found == given._replace(token=InboxToken(9, "c", "3:7:1:2"))
    assert (str(found.token), found.position) == ("(3,7,1,2)", given.position)
    assert head_of(given).isascii()


def test_repeats_of_first_deliveries_have_one_name_and_moved_copies_their_own() -> None:
    first, again = delivery(1, kodo_id="m"), delivery(2, kodo_id="m")
    assert name_of_row("t", first) == name_of_row("t", again) != name_of_row("other", first)
    for more in ({"kodo-hop": "1"}, {"kodo-recall": "r"}, {"kodo-hop": "x"}):
        properties = {"kodo-id": "m", **more}
        one, two = (delivery(number)._replace(properties=properties) for number in (1, 2))
        assert len({name_of_row("t", one), name_of_row("t", two), name_of_row("t", first)}) == 3
        assert name_of_row("t", one) == name_of_row("t", one)


# ---- the store, on SQLite and PostgreSQL


def test_rows_are_accepted_once_claimed_by_one_and_done_once(engine: Engine) -> None:
    store = _store(engine)
    store.accept("a", [delivery(number, b"%d" % number) for number in range(4)])
    store.accept("a", [delivery(number, b"%d" % number) for number in range(2, 6)])
    store.accept("b", [delivery(9, None)])
    first = store.claim("a", "one", 4)
    assert _names(first) == [b"0", b"1", b"2", b"3"]
    second = store.claim("a", "two", 4)
    assert _names(second) == [b"4", b"5"]
    assert _names(store.claim("b", "two", 4)) == [None]
    assert store.claim("a", "one", 4) == []
    assert store.counts() == {"waiting": 0, "claimed": 7, "done": 0}
    assert store.finish([one.token for one in first]) == []
    others = [replace(one.token, claim="one") for one in second]
    assert store.finish(others) == others, "they are another's"
    assert store.finish([first[0].token]) == [first[0].token], "it is done already"
    assert store.counts() == {"waiting": 0, "claimed": 3, "done": 4}
    assert InboxStore(engine, "p/n/t:other", 1).counts() == {"waiting": 0, "claimed": 0, "done": 0}


def test_rows_of_a_key_are_claimed_by_one_worker_at_a_time(engine: Engine) -> None:
    store, lapsed = _store(engine), _store(engine, 0)
    keys = ["x", "x", "y", "x"]
    given = [delivery(number, b"%d" % number, key=key) for number, key in enumerate(keys)]
    store.accept("a", given, ordered=True)
    first = store.claim("a", "one", 1, ordered=True)
    assert _names(first) == [b"0"]
    assert _names(store.claim("a", "two", 9, ordered=True)) == [b"2"]
    more = store.claim("a", "one", 1, ordered=True)
    assert _names(more) == [b"1"], "of its own key"
    store.finish([first[0].token])
    assert store.claim("a", "two", 9, ordered=True) == []
    store.give_back([more[0].token.row], ["one"])
    assert _names(lapsed.claim("a", "two", 9, ordered=True)) == [b"1", b"3"]
    eventually(lambda: store.claim("a", "three", 1, ordered=True))
    assert _names(store.claim("a", "three", 9, ordered=True)) == [b"3"]


def test_a_lapsed_claim_that_is_just_renewed_keeps_the_order_of_its_key(engine: Engine) -> None:
    """A row that another worker was renewing was skipped, and the next one of its key was claimed before it."""
    store, lapsed = _store(engine), _store(engine, 0)
    store.accept("a", [delivery(number, b"%d" % number, key="x") for number in range(2)], ordered=True)
    assert _names(lapsed.claim("a", "one", 1, ordered=True)) == [b"0"]
    claimed: list[Delivery] = []
    other = threading.Thread(target=lambda: claimed.extend(store.claim("a", "two", 9, ordered=True)))
    with engine.begin() as connection:
        store._lock_order(connection, ["a"])
        connection.execute(update(TABLE).where(TABLE.c.claimed_by == "one").values(claimed_until=2**53))
        other.start()
        time.sleep(0.3)
    other.join(60)
    assert claimed == []
    assert store.renew(["one"], ["a"]) == {1}


def test_claims_that_are_made_at_one_time_keep_the_order_of_keys(engine: Engine) -> None:
    store, barrier = _store(engine), threading.Barrier(4)
    store.accept("a", [delivery(number, key=f"k{number % 5}") for number in range(200)], ordered=True)
    claims: dict[str, list[int]] = {}

    def claim(name: str) -> None:
        barrier.wait(10)
        claims[name] = []
        for _ in range(20):
            claims[name] += [one.token.row for one in _store(engine).claim("a", name, 3, ordered=True)]

    threads = [threading.Thread(target=claim, args=(f"c{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with engine.connect() as connection:
        by_key = connection.execute(
            select(TABLE.c.order_key, TABLE.c.claimed_by).where(TABLE.c.claimed_by != "").distinct()
        )
        owners = Counter(key for key, _ in by_key)
    assert set(owners.values()) == {1}
    assert all(rows == sorted(rows) for rows in claims.values())


def test_claims_lapse_unless_they_are_renewed_and_end_when_they_are_released(engine: Engine) -> None:
    store, brief = _store(engine), _store(engine, 0)
    store.accept("a", [delivery(1, b"1")])
    assert _names(brief.claim("a", "one", 9)) == [b"1"]
    store.renew(["one"])
    assert store.claim("a", "two", 9) == []
    brief.renew(["one"])
    eventually(lambda: store.claim("a", "two", 9))
    store.release(["one"])
    assert store.claim("a", "three", 9) == [], "what others claimed since is theirs"
    store.release(["two"])
    assert _names(store.claim("a", "three", 9)) == [b"1"]


def test_a_claim_takes_no_row_that_it_has_already(engine: Engine) -> None:
    """After an outage longer than the claim, the rows of running handlers were delivered to the same worker again."""
    store, lapsed = _store(engine), _store(engine, 0)
    store.accept("a", [delivery(1, b"1"), delivery(2, b"2")])
    assert _names(lapsed.claim("a", "one", 1)) == [b"1"]
    eventually(lambda: store.claim("a", "one", 9))
    assert store.claim("a", "one", 9) == []
    assert _names(store.claim("a", "two", 9)) == [b"1"]


def test_done_rows_are_forgotten_after_a_while(engine: Engine) -> None:
    store = _store(engine)
    store.accept("a", [delivery(number, b"x") for number in range(5)])
    store.finish([one.token for one in store.claim("a", "one", 4)])
    assert store.forget_done(60_000, 10) == 0
    with engine.begin() as connection:
        connection.execute(update(TABLE).where(TABLE.c.done_at.is_not(None)).values(done_at=1))
    assert (store.forget_done(60_000, 3), store.forget_done(60_000, 3)) == (3, 1)
    assert store.counts() == {"waiting": 1, "claimed": 0, "done": 0}


# ---- workers


def test_many_causes_of_one_subscription_hide_none_of_another(engine: Engine) -> None:
    dead = {"outcome": "dead", "claimed_by": "", "claimed_until": 0}
    for subscription, causes, each in (("p/n/t:loud", 103, 2), ("p/n/t:quiet", 1, 1)):
        store = InboxStore(engine, subscription, 60_000)
        store.accept("a", [delivery(number, b"x") for number in range(causes * each)])
        with engine.begin() as connection:
            mine = TABLE.c.subscription == subscription
            ids = list(connection.execute(select(TABLE.c.id).where(mine)).scalars())
            for number, row in enumerate(ids):
                values = {**dead, "done_at": 1, "reason": f"cause {number % causes}"}
                connection.execute(update(TABLE).where(TABLE.c.id == row).values(values))
    loud, quiet = InboxRows(engine).status()
    assert (len(loud["dead"]), {one["rows"] for one in loud["dead"]}) == (100, {2})
    assert quiet["dead"] == [{"cause": "cause 0", "tenant": "", "rows": 1}]

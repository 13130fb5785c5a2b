"""Following one message by what is stored and what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message
from kodo_consumer.cli.message_history import (
    DEAD_LETTERS,
    FoundMessage,
    Search,
    SearchedTopic,
    level_lines,
    lines,
    tenant_levels,
    to_json,
)
from kodo_consumer.core.values.envelope import Level
from kodo_consumer.testing import Harness

from kodoctl.protocol.audit_records import Event, Record, encode
from kodoctl.protocol.overrides import Override, OverrideKind
from tests.unit.consumer.engine_bench import policy
from tests.unit.consumer.topologies import write

TOPICS = """
  orders:
    fair_by: uid
    subscriptions: {{billing: {{in_place: [], retrying: {{delays: [10s], attempts: 1}}, audit: {}}}}}
"""


def followed(folder: Path, audit: str, name: str, *, trimmed: bool = False) -> tuple[Search, list[SearchedTopic]]:
    """A message that failed twice, among others; `trimmed`: only records and dead letters are stored still."""
    consumer = Consumer.load(write(folder, TOPICS.format(audit)), topic="orders", subscription="billing", environ={})

    @consumer.handler
    def handle(message: Message) -> None:
        if message.text() == "bad":
            raise ValueError

    harness = Harness(consumer)
    for number in range(5):
        harness.send(b"good", id=f"order-{number}")
    harness.send(b"bad", id="order-17")
    harness.advance("1m")
    policy = harness.policy
    assert policy.dead_letter is not None
    places = [
        *(SearchedTopic(lane.topic, lane.name) for lane in policy.lanes),
        SearchedTopic(policy.dead_letter.topic, DEAD_LETTERS),
    ]
    audit_topic = policy.audit.topic if policy.audit else ""
    search = Search(name, places)
    for _ in range(3):
        for place in [*places, *([SearchedTopic(audit_topic, "audit")] if audit_topic else [])]:
            if trimmed and place.name not in (DEAD_LETTERS, "audit"):
                continue
            ledger = list(harness.broker._topics).index(place.topic) + 1
            for stored in harness.broker.messages(place.topic):
                id_, is_gone = f"{ledger}:{stored.number}:-1:-1", place.name != DEAD_LETTERS
                seen = FoundMessage(place.topic, id_, stored.payload, stored.properties, stored.publish_time, is_gone)
                (search.records if place.topic == audit_topic else search.message)(seen)
    harness.close()
    return search, places


@pytest.mark.parametrize("name", ["order-17", "1:5:-1:-1", "2:0:-1:-1"])
def test_every_hop_has_its_place_its_reason_and_the_rule(tmp_path: Path, name: str) -> None:
    search, _ = followed(tmp_path, "true", name)
    assert [(hop.place, hop.ended, hop.rule, hop.target) for hop in search.hops()] == [
        ("L1/ready", "moved", "retrying", "L1/retrying"),
        ("L1/retrying", "dead", "dead", DEAD_LETTERS),
        (DEAD_LETTERS, "", "", ""),
    ]
    assert [hop.reason for hop in search.hops()] == ["", "ValueError", "ValueError"]
    assert search.hops()[1].attempts == {"retrying": 1}


def test_a_postponed_message_says_how_often() -> None:
    place = SearchedTopic("t", "L1/pending")
    search = Search("order-1", [place])
    properties = {"kodo-id": "order-1", "kodo-postponed": "3", "kodo-reason": "postponed: closed", "kodo-due": "7"}
    search.message(FoundMessage("t", "1:1:0:-1", b"x", properties, 5, acknowledged=False))
    document = to_json("order-1", search, [place])
    assert (document["hops"][0]["postponed"], document["hops"][0]["attempts"]) == (3, {})
    assert "  because: postponed: closed (put back to wait 3 times by its handler, due 7)" in list(lines(document, str))


def test_without_records_places_and_reasons_tell(tmp_path: Path) -> None:
    search, places = followed(tmp_path, "false", "order-17")
    assert [hop.place for hop in search.hops()] == ["L1/ready", "L1/retrying", DEAD_LETTERS]
    text = "\n".join(lines(to_json("order-17", search, places), str))
    assert [hop.left for hop in search.hops()] == ["moved on to L1/retrying", f"moved on to {DEAD_LETTERS}", ""]
    assert "  moved on to L1/retrying\n" in text
    assert "because: ValueError (put back to wait once in retrying, due" in text
    assert text.count("cause, of all that failed like it: ValueError") == 2
    assert "(is here now)" in text


def test_records_tell_what_is_no_longer_stored(tmp_path: Path) -> None:
    search, places = followed(tmp_path, "true", "order-17", trimmed=True)
    assert [(hop.place, hop.stored) for hop in search.hops()] == [
        ("L1/ready", False), ("L1/retrying", False), (DEAD_LETTERS, True),
    ]  # fmt: skip
    document = to_json("order-17", search, places)
    text = "\n".join(lines(document, str))
    assert "L1/ready  1:5:-1:-1 (no longer stored)" in text
    assert "moved on to L1/retrying by rule retrying: ValueError" in text
    assert "died: ValueError" in text
    assert text.startswith("also known as 1:5:-1:-1, 2:0:-1:-1")


def test_others_are_not_mistaken_for_it_and_nothing_found_is_nothing(tmp_path: Path) -> None:
    search, _ = followed(tmp_path, "true", "order-3")
    assert [(hop.place, hop.ended) for hop in search.hops()] == [("L1/ready", "done")]
    search, places = followed(tmp_path, "true", "order-99")
    assert search.hops() == []
    document = to_json("order-99", search, places, ["orders-L2"])
    assert document["looked_at"] > 8
    assert list(lines(document, str)) == ["not on the cluster: orders-L2"]


def test_a_message_with_one_name_is_known_by_no_other() -> None:
    search = Search("1:1:0:-1", [SearchedTopic("t", "L1/ready")])
    search.message(FoundMessage("t", "1:1:0:-1", b"", {}, 7, acknowledged=False))
    assert list(lines(to_json("1:1:0:-1", search, []), str)) == ["7  L1/ready  1:1:0:-1 (is here now)"]


def test_a_due_time_that_no_worker_believes_is_not_shown() -> None:
    search = Search("order-1", [SearchedTopic("t", "L1/retrying")], lambda sent: sent + 60)
    for number, due in enumerate(("9" * 15, "50")):
        properties = {"kodo-id": "order-1", "kodo-due": due, "kodo-hop": str(number)}
        search.message(FoundMessage("t", f"1:{number}:0:-1", b"", properties, 7, acknowledged=False))
    assert [hop.due for hop in search.hops()] == [67, 50]


def test_hostile_properties_and_records_end_no_search() -> None:
    search = Search("order-1", [SearchedTopic("t", "L1/ready")])
    hostile = {"kodo-id": "order-1", "kodo-hop": "x", "kodo-due": "9" * 40, "kodo-attempts-retrying": "-1"}
    search.message(FoundMessage("t", "1:1:0:-1", b"", {**hostile, "kodo-recall": "again"}, 7, acknowledged=False))
    search.records(FoundMessage("a", "2:1:0:-1", b"{", {"kodo-audit": "1"}, 7, acknowledged=False))
    search.records(FoundMessage("a", "2:2:0:-1", None, {}, 7, acknowledged=False))
    [hop] = search.hops()
    assert (hop.hop, hop.due, hop.attempts) == (0, None, {})
    assert "because: no reason given (recall again)" in "\n".join(lines(to_json("order-1", search, []), str))


def test_the_level_of_its_tenant_is_told_with_who_gave_it_until_when_and_what_is_unknown(tmp_path: Path) -> None:
    search, _ = followed(tmp_path, "true", "order-17")
    assert search.tenants(lambda properties, key: f"{properties['kodo-id']}{key}") == ["(none)", "order-17"]
    until = 1_800_003_600_000
    move = Override(OverrideKind.MOVE, until - 1, until, "ann@desk", "their sale", tenant="u1", to="L2")
    stays = replace(move, tenant="u2", why="", waiting="stay")
    paused = Override(OverrideKind.PAUSE, until - 1, until, "ann@desk", tenant="u1")
    of = policy(fair_by="uid", exclusive_levels={Level.L2: frozenset({"u1"})})
    document = tenant_levels(of, ["u1", "u2"], [move, stays, paused, replace(move, tenant="u3")])
    assert document["exclusive"] == {"u1": "L2"}
    assert [found["tenant"] for found in document["moves"]] == ["u1", "u2"]
    when = "until 2027-01-15 09:00 UTC, by ann@desk"
    assert list(level_lines(document)) == [
        "tenant u1 has level L2 by exclusive_levels of the file, before its routes",
        f"tenant u1 moved to L2 {when}: their sale; this counts before routes of the file",
        f"tenant u2 moved to L2 {when}; this counts before routes of the file; what waits stays",
    ]
    assert list(level_lines(tenant_levels(of, [], [], "garbage"))) == ["live orders cannot be read: garbage"]


PLACES = [SearchedTopic("r", "L1/ready"), SearchedTopic("t", "L1/retrying"), SearchedTopic("d", DEAD_LETTERS)]


def stored(topic: str, at: int, hop: int, **marks: str) -> FoundMessage:
    """A copy of order-1 that came to a topic at a time; its id begins with that time."""
    properties = {"kodo-id": "order-1", "kodo-hop": str(hop), "kodo-origin-time": "5", **marks}
    return FoundMessage(topic, f"{at}:0:0:-1", b"", properties, at, acknowledged=True)


def ended(topic: str, came: int, at: int, hop: int, target: str = "", target_came: int = 0) -> Record:
    """The record that order-1, which came to a topic at a time, left it at another."""
    event = Event.MOVED if target else Event.DONE
    target_id = f"{target_came}:0:0:-1" if target else ""
    return Record(
        "run", "billing", at, at, topic, f"{came}:0:0:-1", "order-1", hop, event, "rule", target, target_id, age=at - 5
    )


def hops_of(*seen: FoundMessage, records: tuple[Record, ...] = ()) -> list[tuple[str, int]]:
    """(topic, time) of the hops of order-1."""
    search = Search("order-1", PLACES)
    for one in seen:
        search.message(one)
    for record in records:
        coded = encode([record])
        search.records(FoundMessage("a", "a", coded.payload, coded.properties, record.at, acknowledged=False))
    return [(hop.topic, hop.at) for hop in search.hops()]


def test_a_recalled_message_has_its_hops_in_the_order_of_time() -> None:
    died = [stored("r", 5, 0), stored("t", 20, 1), stored("d", 30, 2)]
    again = {"kodo-recall": "a" * 32}
    recalled = [stored("r", 100, 0, **again), stored("t", 110, 1, **again)]
    released = [
        stored("t", 150, 1, **again, **{"kodo-release": "b"}),
        stored("d", 160, 2, **again, **{"kodo-release": "b"}),
    ]
    every = [("r", 5), ("t", 20), ("d", 30), ("r", 100), ("t", 110), ("t", 150), ("d", 160)]
    assert hops_of(*released, *recalled, *died) == every


def test_without_a_record_the_next_copy_tells_how_a_message_left() -> None:
    again, released = {"kodo-recall": "a" * 32}, {"kodo-release": "b"}
    search = Search("order-1", PLACES)
    waits = {"kodo-attempts-retrying": "2", "kodo-attempts-backup": "1"}
    for one in (
        stored("r", 5, 0), stored("t", 20, 1), stored("t", 25, 2, **waits), stored("d", 30, 3),
        stored("t", 100, 0, **again), stored("r", 110, 0, **again, **released), stored("d", 120, 1, **again, **released),
    ):  # fmt: skip
        search.message(one)
    assert [(hop.place, hop.left) for hop in search.hops()] == [
        ("L1/ready", "moved on to L1/retrying"),
        ("L1/retrying", "put back into L1/retrying"),
        ("L1/retrying", f"moved on to {DEAD_LETTERS}"),
        (DEAD_LETTERS, "sent again to L1/retrying"),
        ("L1/retrying", "released to L1/ready"),
        ("L1/ready", f"moved on to {DEAD_LETTERS}"),
        (DEAD_LETTERS, "acknowledged; sent again or discarded: no audit record says which"),
    ]
    assert search.hops()[2].waits == "put back to wait twice in retrying, once in backup"


@pytest.mark.parametrize("later", [(), (stored("t", 9, 0),)])
def test_an_end_that_nothing_tells_is_called_unknown(later: tuple[FoundMessage, ...]) -> None:
    """A second copy of the same hop is none that it moved on to."""
    search = Search("order-1", PLACES)
    for one in (stored("r", 5, 0), *later):
        search.message(one)
    assert search.hops()[0].left == "acknowledged; done, skipped or discarded: no audit record says which"


def test_clocks_of_workers_that_differ_do_not_change_the_order_between_two_recalls() -> None:
    assert hops_of(stored("d", 90, 2), stored("t", 70, 1), stored("r", 100, 0)) == [("r", 100), ("t", 70), ("d", 90)]


def test_hops_that_are_gone_stand_where_they_were() -> None:
    records = (
        ended("r", 5, 20, 0, "t", 19), ended("t", 19, 30, 1, "d", 30),
        ended("r", 100, 110, 0, "t", 109), ended("t", 109, 120, 1),
    )  # fmt: skip
    again = {"kodo-recall": "a" * 32}
    every = [("r", 5), ("t", 20), ("d", 30), ("r", 100), ("t", 110)]
    assert hops_of(stored("d", 30, 2), stored("r", 100, 0, **again), records=records) == every
    assert hops_of(stored("d", 30, 2), stored("t", 109, 1, **again), records=records)[3:] == [("r", 110), ("t", 109)]
    assert hops_of(stored("r", 5, 0), stored("d", 30, 2), records=records[2:3])[2:] == [("r", 110)]
    lost = hops_of(stored("d", 30, 2), records=(ended("t", 19, 25, 1),))
    assert lost == [("t", 25), ("d", 30)], "a hop of which nothing else is known has its own time"


def test_the_time_when_it_was_first_sent_is_told_if_no_hop_has_it() -> None:
    search = Search("order-1", PLACES)
    assert search.sent is None
    search.message(stored("t", 20, 1))
    assert list(lines(to_json("order-1", search, PLACES), str))[1] == "first sent 5"
    search.message(stored("r", 5, 0))
    assert "first sent" not in "\n".join(lines(to_json("order-1", search, PLACES), str))
    gone = Search("order-1", PLACES)
    coded = encode([ended("t", 19, 25, 1)])
    gone.records(FoundMessage("a", "a", coded.payload, coded.properties, 25, acknowledged=False))
    assert gone.sent == 5

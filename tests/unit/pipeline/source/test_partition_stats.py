"""What is asked of the cluster before anything is read: of every partition, or the asking fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from kodo_pipeline.evidence.cursors import read_cursors
from kodo_pipeline.ingest.job import IngestRequest as Ingest
from kodo_pipeline.ingest.job import present
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.source.partition_stats import internal_stats, read_stored

from kodoctl.pulsar.admin.admin import AdminError
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.admin.omitted_partitions import UnknownPartitionsError
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import TopicName
from tests.services.servers import Answer, Request, Server, answer_json, serving
from tests.unit.pipeline.evidence.test_readings import READY, expansion

__all__ = ["expansion"]
TOPIC = TopicName.parse(READY)


def stats(last: str = "7:4", **cursors: str) -> dict[str, Any]:
    return {
        "ledgers": [{"ledgerId": 7, "entries": 0, "size": 0}],
        "currentLedgerEntries": 5,
        "currentLedgerSize": 50,
        "lastConfirmedEntry": last,
        "cursors": {name: {"markDeletePosition": at} for name, at in cursors.items()},
    }


@contextmanager
def answering(answers: Mapping[str, Any]) -> Iterator[Server]:
    """Answers by path; a number is a status, and what is not named is not there."""

    def answer(request: Request) -> Answer:
        found = answers.get(request.path.partition("?")[0].removeprefix("/admin/v2/persistent/kodo/trade/"), 404)
        return answer_json({"reason": "told so"}, found) if isinstance(found, int) else answer_json(found)

    with serving(answer) as server:
        yield server


@contextmanager
def cluster(answers: Mapping[str, Any]) -> Iterator[HttpAdmin]:
    with answering(answers) as server:
        admin = HttpAdmin(Connection(server.url))
        try:
            yield admin
        finally:
            admin.close()


def three(**more: Any) -> dict[str, Any]:
    """A topic of three partitions; the answer for all leaves the last two out."""
    return {
        "orders/partitions": {"partitions": 3},
        "orders/partitioned-internalStats": {"partitions": {f"{READY}-partition-0": stats()}},
    } | {f"orders-partition-{number}/internalStats": found for number, found in enumerate(more.values(), 1)}


def test_a_partition_that_the_answer_for_all_leaves_out_is_asked_by_itself() -> None:
    with cluster(three(one=stats("7:9"), two=404)) as admin:
        found = internal_stats(admin, TOPIC)
        assert found is not None
        assert {number: one["lastConfirmedEntry"] for number, one in found.items()} == {0: "7:4", 1: "7:9"}
        assert list(read_stored(admin, [TOPIC])) == [(TOPIC, 0), (TOPIC, 1)]


def test_a_partition_that_gives_no_answer_is_not_taken_for_one_that_is_not_there() -> None:
    with cluster(three(one=stats(), two=409)) as admin:
        with pytest.raises(UnknownPartitionsError, match=r"partition 2: .*partition-2/internalStats answered 409"):
            internal_stats(admin, TOPIC)
        with pytest.raises(UnknownPartitionsError, match=r"partition 2: .*partition-2/internalStats answered 409"):
            read_stored(admin, [TOPIC])


def test_each_partition_that_is_there_has_a_look_whoever_subscribes_to_it(expansion: Any) -> None:
    retrying, audit = "orders-billing-RETRYING", "orders-billing-AUDIT"
    answers: dict[str, Any] = {}
    for name, told in {
        "orders": stats(billing="7:2", other="7:3"),
        retrying: stats("7:-1"),
        audit: stats("7:3"),
    }.items():
        answers[f"{name}/partitions"] = {"partitions": 1}
        own = {f"persistent://kodo/trade/{name}-partition-0": told}
        answers[f"{name}/partitioned-internalStats"] = {"partitions": own}
    with cluster(answers) as admin:
        rows = read_cursors(admin, expansion, "r1", 0)
    looks = [
        (row["msg_topic"].rpartition("/")[2], row["subscription"], row["mark_ledger"], row["mark_entry"])
        for row in rows
    ]
    assert looks == [
        ("orders", "", 7, 4), ("orders", "billing", 7, 2), (retrying, "", 7, -1), (audit, "", 7, 3),
    ], "records last: they tell of all that is acknowledged elsewhere"  # fmt: skip


@pytest.mark.parametrize(("said", "ttl"), [(404, None), (403, None), (0, None), (60, 60_000), (412, ...)])
def test_a_ttl_that_nobody_tells_is_not_taken_for_none(expansion: Any, said: int, ttl: object) -> None:
    """It tells what expired from what was lost. A role that may not ask never knew it."""
    parts = {"persistent://kodo/trade/orders-partition-0": stats(billing="7:2")}
    value = answer_json({"reason": "told so"}, said) if said > 100 else answer_json(said)

    def answer(request: Request) -> Answer:
        name = request.path.partition("?")[0].removeprefix("/admin/v2/persistent/kodo/trade/")
        found = {"orders/partitions": {"partitions": 1}, "orders/partitioned-internalStats": {"partitions": parts}}
        if name == "orders/messageTTL":
            return value
        return answer_json(found[name]) if name in found else answer_json({"reason": "not found"}, 404)

    with serving(answer) as server:
        admin = HttpAdmin(Connection(server.url), pause=lambda _: None)
        if ttl is ...:
            with pytest.raises(AdminError, match=r"reading the TTL of .*orders"):
                read_cursors(admin, expansion, "r1", 0)
        else:
            assert {row["ttl_ms"] for row in read_cursors(admin, expansion, "r1", 0)} == {ttl}
        admin.close()


def test_a_topic_none_of_whose_partitions_is_there_is_absent(expansion: Any, tmp_path: Any) -> None:
    answers = {
        "orders/partitions": {"partitions": 1},
        "orders/partitioned-internalStats": {"partitions": {}},
        "orders-billing-DLQ/partitions": {"partitions": 1},
        "orders-billing-DLQ/partitioned-internalStats": {"partitions": {}},
        "orders-billing-DLQ-partition-0/internalStats": stats(),
    }
    with answering(answers) as server:
        there, absent = present(
            Ingest(expansion, Connection(server.url), Landing(str(tmp_path), "trade", None), "r1", 1)
        )
    assert [topic.name.full for topic in there] == [f"{READY}-billing-DLQ"]
    assert READY in {topic.name.full for topic in absent}

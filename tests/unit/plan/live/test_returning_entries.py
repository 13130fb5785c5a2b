"""How many messages come again with a subscription that an apply puts back: those that are stored, wherever they are."""

from __future__ import annotations

import pytest

from kodoctl.plan.changes import ChangeContext, Create
from kodoctl.plan.live.returning_entries import returning_entries
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SubscriptionResource
from tests.samples.inventories import HERE
from tests.services.servers import Answer, Request, answer_json, serving

SUBSCRIPTION = SubscriptionResource(TopicName(HERE, "J"), "s", "earliest")
STORED = {"ledgers": [{"ledgerId": 4, "entries": 7}], "lastConfirmedEntry": "4:6"}


@pytest.mark.parametrize(
    ("partitions", "missing", "returning"),
    [(3, (), 21), (3, ("J-partition-1",), 14), (0, (), 7), (0, ("J",), 0)],
)
def test_a_partition_that_is_gone_hides_nothing_that_the_others_store(
    partitions: int, missing: tuple[str, ...], returning: int
) -> None:
    def answer(request: Request) -> Answer:
        if request.path.endswith("/partitions"):
            return answer_json({"partitions": partitions})
        part = request.path.split("/")[-2]
        return Answer(404) if part in missing else answer_json(STORED)

    with serving(answer) as server:
        admin = HttpAdmin(Connection(server.url))
        found = returning_entries(admin, [Create(SUBSCRIPTION, ChangeContext("trade"))])
    assert found == {SUBSCRIPTION.address: returning}

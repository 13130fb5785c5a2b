"""The audit of plain topics, without partitions: from a real consumer's traffic to the verdict."""

from __future__ import annotations

import pytest
from kodo_pipeline.landing.tables import EVENTS

from tests.services.polling import eventually
from tests.spark.judged import AUDITED, Judged, fates_of

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(900)]


class PlainJudged(Judged):
    """The topics of `Judged`, all of them plain."""

    topology = AUDITED.replace("jobs:\n", "jobs:\n    partitioned: false\n").replace(
        "audit: true", "audit: true, dead_letter: {{partitioned: false}}"
    )


def test_no_loss_with_retries_and_a_recall_and_then_a_loss_by_name(spark, broker, tenant, tmp_path):
    judged = PlainJudged(spark, broker, tenant, tmp_path)
    assert {topic.resource.partitions for topic in judged.expansion.topics} == {0}
    judged.work(40)
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], found["reasons"]) == ("no loss", [])
    assert fates_of(found) == {"done": 40}
    assert {one["partition"] for one in found["coverage"]} == {-1}
    rows = judged.landing.read(spark, EVENTS).where("state = 'retrying'").collect()
    assert rows, "each tenth message failed once"
    assert all(row["mid"].split(":")[2] == "-1" for row in rows), "as the worker wrote it"

    judged.die("order-1")
    judged.read()
    judged.recall()
    with judged.run():
        eventually(lambda: judged.left() == 0, within=120)
    judged.read()
    found = judged.verdict()
    assert (found["verdict"], found["reasons"]) == ("no loss", [])
    assert fates_of(found)["done"] == 41

    judged.skipped_is_lost()

"""Marks that real producers sign, on the real broker: whoever has the key knows them from others once they have landed."""

from __future__ import annotations

import pytest
from kodo_pipeline.audit.signatures import genuine
from kodo_pipeline.landing.tables import EVENTS

from kodoctl.protocol.properties import FOR, SEQ
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.pulsar.connection.secret import Secret
from tests.spark.judged import Judged

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
KEY = "a key of many characters"


@pytest.mark.full
def test_a_mark_that_a_producer_signed_is_genuine_and_another_is_not(spark, broker, tenant, tmp_path, monkeypatch):
    judged = Judged(spark, broker, tenant, tmp_path, look=False)
    monkeypatch.setenv("KODO_CONSUMER_SIGNING_KEYS", KEY)
    judged.send_apart(2)
    judged.publish(**{SEQ: f"{'f' * 15}:0:high=9:end", FOR: NOBODY})
    judged.read()
    marks = judged.landing.read(spark, EVENTS).where("seq_high IS NOT NULL")
    known = marks.select(
        "seq_high", genuine(Secret(KEY)).alias("ours"), genuine(Secret("another key of theirs")).alias("theirs")
    )
    assert {tuple(row) for row in known.collect()} == {(2, True, False), (9, False, False)}

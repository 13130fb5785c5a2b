"""Unbooked recalls: recalls whose messages landed, but of which the audit's recall ledger has no entry, because it is
another ledger or is missing. Messages that they sent count as doubts instead of losses, and are not sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kodo_pipeline.audit.classify import judged_anew, outcome_of
from kodo_pipeline.audit.positions import PLACE
from kodo_pipeline.evidence.audit_evidence import Cause, MessageStatus
from kodo_pipeline.spark.spark_session import small_table
from kodoctl.recall.plan.recall_plan import RECALL_ID
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class UnbookedRecalls:
    """Messages that landed and that a recall, or `kodoctl waiting apply`, sent, but of which the recall ledger at
    `ledger` has no entry. `ids`: recall ids, one for each message, by ground topic; topics without any are missing.
    """

    ledger: str
    ids: Mapping[str, frozenset[str]]

    @property
    def count(self) -> int:
        """Number of messages, over all topics."""
        return sum(len(one) for one in self.ids.values())

    def text(self, topic: str | None = None) -> str:
        """Text of a finding about the messages of a ground topic, also if there are none; None: of all topics."""
        count = self.count if topic is None else len(self.ids.get(topic, ()))
        what = f"{many(count, 'message')} {'was' if count == 1 else 'were'} sent again by recalls"
        return f"{what} that the ledger at {self.ledger} does not have: the ledger is not here. Name it with --ledger"


def sent_again(judged: DataFrame, lanes: DataFrame, unbooked: UnbookedRecalls) -> DataFrame:
    """Sets the status UNPROVED (Cause.SENT_AGAIN) at lost places whose message was read, and was sent by an unbooked
    recall. Returns all rows of `judged`, the result of kodo_pipeline.audit.classify.place_outcomes. `lanes`: rows of
    kodo_pipeline.audit.positions.LANES. A place is recognised by its recall id
    (kodoctl.recall.plan.recall_plan.recall_id); a recall with `again` uses other ids, so its places stay lost.
    """
    lost = outcome_of(MessageStatus.LOST)
    ids = small_table(judged.sparkSession, [(one,) for some in unbooked.ids.values() for one in some], "id string")
    topic, place = F.col("msg_topic"), F.concat_ws(":", "ledger", "entry", "msg_partition", "batch")
    to_reader = F.concat(topic, F.lit("/"), F.col("subscription"))
    names = [
        F.substring(
            F.sha2(F.concat_ws("|", key, place, F.col("published").cast("string"), F.lit("")), 256), 1, RECALL_ID
        )
        for key in (F.concat(to_reader, F.lit("/lost")), topic, to_reader)  # of --lost, of a recall, of a release
    ]
    named = F.broadcast(lanes.select("lane", "msg_topic", "msg_partition", "subscription"))
    known = F.broadcast(ids.distinct())
    found = (
        judged.where(F.col("outcome") >= lost)
        .where(F.col("published").isNotNull())
        .join(named, "lane", how="inner")
        .select("lane", "ledger", "entry", "batch", F.explode(F.array(*names)).alias("id"))
        .join(known, "id", how="left_semi")
        .select(*PLACE)
        .distinct()
    )
    return judged_anew(judged, found, MessageStatus.UNPROVED, Cause.SENT_AGAIN, MessageStatus.LOST)

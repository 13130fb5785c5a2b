"""Choice of lost or unproved messages of an audit for a recall plan, with their payloads from the landing. Chosen
messages are planned by the same code as dead letters (kodoctl.recall.plan.selection).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kodo_pipeline.audit.classify import findings
from kodo_pipeline.recall.dead_letter_rows import FROM_EVENTS, asks_payload, facts_of_chosen, is_chosen, readable
from kodo_pipeline.recall.landed_messages import exclusion_reason, moved_properties
from kodo_pipeline.recall.select_job import CandidateRow, candidate_of
from kodoctl.recall.message.stored_message import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from kodo_pipeline.audit.job import AuditResult
    from kodo_pipeline.evidence.audit_evidence import MessageStatus
    from kodoctl.recall.plan.destinations import RecallSource
    from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest

_MOVE: Final = ("reason", "error", "event")


def lanes_of(audited: AuditResult, statuses: Collection[MessageStatus]) -> dict[tuple[str, str], int]:
    """Number of messages with one of the statuses (LOST or UNPROVED), by (full name of the topic that lost them,
    subscription); only pairs with such messages. Runs a query.
    """
    found = _wanted_findings(audited, statuses).groupBy("msg_topic", "subscription").agg(F.count("*").alias("messages"))
    return {(row["msg_topic"], row["subscription"]): row["messages"] for row in found.collect()}


def _wanted_findings(audited: AuditResult, statuses: Collection[MessageStatus]) -> DataFrame:
    named = [status.value for status in statuses]
    return findings(audited.verdicts, audited.lanes).where(F.col("fate").isin(named))


@dataclass(frozen=True)
class LostMessageSelector:
    """Selector of messages for a plan of lost messages, from one audit (implements kodoctl.recall.recall_planner.Fill).
    `statuses`: audit statuses of the messages to choose (LOST or UNPROVED).
    """

    audited: AuditResult
    statuses: Collection[MessageStatus]

    def __call__(self, asked: SelectionRequest, selection: LetterSelection) -> None:
        """Passes every message of the lane that has one of `statuses` to `selection`, in order of position: with the
        reason why it is left out, whatever the condition says, or as a candidate, with the result of the condition. A
        message that was lost on a move is, for the condition as for the plan, as it was after the move. Counts all of
        them in `selection.read`. Raises UsageError as kodo_pipeline.recall.dead_letter_rows.is_chosen does, and the
        errors of `selection`.
        """
        for row in self._rows(asked).toLocalIterator():
            selection.read += 1
            name = f"{asked.family.source_topic} {row['place']}"
            if (reason := exclusion_reason(row.asDict())) is not None:
                selection.leave_out(reason, name)
            else:
                one = _candidate(row, asked.family)
                selection.consider(one, chosen=row["chosen"] if row["stored"] else asked.condition.chooses(one))

    def _rows(self, asked: SelectionRequest) -> DataFrame:
        family = asked.family
        lost = _wanted_findings(self.audited, self.statuses).where(F.col("msg_topic") == family.source_topic)
        lost = lost.where((F.col("topic") == family.ground) & (F.col("subscription") == family.subscription))
        lost = lost.select(F.col("id").alias("place"), F.col("cause").alias("why"))
        events = self.audited.tables.events.where(F.col("topic") == family.ground)
        moves = (
            self.audited.tables.transitions.where(F.col("target_topic") == family.source_topic)
            .where(F.col("subscription") == family.subscription)
            .groupBy(F.col("target_id").alias("place"))
            .agg(F.max_by(F.struct("msg_topic", "id", *_MOVE), "number").alias("move"))
        )
        stored = events.where(F.col("msg_topic") == family.source_topic).select(F.col("id").alias("place")).distinct()
        known = lost.join(stored.withColumn("stored", F.lit(True)), "place", how="left").join(
            moves, "place", how="left"
        )
        sources = known.select(
            "place",
            "why",
            "move",
            F.coalesce("stored", F.lit(False)).alias("stored"),
            F.when(F.col("stored"), F.lit(family.source_topic)).otherwise(F.col("move.msg_topic")).alias("msg_topic"),
            F.when(F.col("stored"), F.col("place")).otherwise(F.col("move.id")).alias("id"),
        )
        wanted = events.join(sources.select("msg_topic", "id"), ["msg_topic", "id"], how="left_semi")
        facts = _facts(wanted, asked).withColumn("landed", F.lit(True))
        at = [F.try_element_at(F.split("place", ":"), F.lit(one)).try_cast("bigint") for one in (3, 1, 2, 4)]
        return sources.join(facts, ["msg_topic", "id"], how="left").orderBy(*at)


def _facts(events: DataFrame, asked: SelectionRequest) -> DataFrame:
    """Returns the columns of landed messages that a plan needs. `chosen`: whether the message, as it landed, meets the
    condition.
    """
    raw = events.withColumns({name: F.col(landed) for name, landed in FROM_EVENTS.items()})
    marked = raw.withColumn("chosen", is_chosen(asked.condition, asked.family.fair_by))
    facts = facts_of_chosen(events, whole=asked.edit is not None or asks_payload(asked.condition))
    return marked.select(
        "msg_topic", "id", "hop", "level", "key", "chosen", F.unix_millis("publish_ts").alias("published"),
        F.substring("payload", 1, 1).alias("head"), readable().alias("readable"), F.col("size").alias("landed_size"),
        "payload_state", F.unix_millis("event_ts").alias("event_time"),
        *(column.alias(name) for name, column in facts.items()),
    )  # fmt: skip


def _candidate(row: Row, family: RecallSource) -> CandidateRow:
    known: Mapping[str, object] = row.asDict(recursive=True)
    properties = dict(row["properties"] or {}) if row["stored"] else moved_properties(known, row["move"].asDict())
    made = candidate_of(row, family, Position.parse(row["place"]), properties)
    return replace(made, event_time=row["event_time"] or 0)

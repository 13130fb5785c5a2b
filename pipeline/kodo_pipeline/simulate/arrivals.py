"""Recorded arrivals of one ground topic for one of its subscriptions: messages that producers sent, messages that
waited already, and the outcomes that workers recorded for each.

Audit records do not have single runs of handlers, only the outcome of a message in its lane. So each message gets a
text with one letter for each stay in a lane in which a handler ran, which says how the stay ended
(kodo_consumer.simulation.simulation.SimulatedArrival). A stay that ended only because of a limit, a route or isolation
has no letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.audit.positions import identity_of
from kodo_pipeline.rollup.transforms import DONE, FAILED
from kodoctl.protocol import properties as headers

COLUMNS: Final = ("at_ms", "level", "tenant", "key", "properties", "size", "took_ms", "moves", "outcomes")
WAITING: Final = (*COLUMNS, "state", "due_ms", "hop", "attempts")
_LIMIT: Final = "over its limit"  # how the reason of a move begins that a limit caused
_QUICK: Final = 0.1  # of the runs: these are taken to have waited for nobody
_STATES: Final = ("retrying", "pending", "blocking")


def arrivals(
    events: DataFrame, transitions: DataFrame, *, topic: str, subscription: str, properties: Sequence[str], newest: int
) -> DataFrame:
    """The `newest` messages of all levels that producers sent, oldest first: (COLUMNS). Marks of producers, recalled
    messages and messages for other subscriptions are left out.

    `properties`: names of the message properties to keep. `at_ms`: publish time; `took_ms`: time until the message was
    done, null without a record; `moves`: number of moves to another lane, or to the dead letters, by the subscription;
    `outcomes`: one letter for each stay in a lane in which a handler ran: d (done or discarded), k (dead), f (failed),
    p (pending), b (blocking).
    """
    reader = F.col("for_subscription")
    sent = events.where(
        (F.col("topic") == topic) & (F.col("state") == "ready") & (F.col("hop") == 0) & F.col("seq_high").isNull()
        & F.col("recall").isNull() & (reader.isNull() | (reader == subscription))
    )  # fmt: skip
    rows = (
        sent.select(
            F.unix_millis("publish_ts").alias("at_ms"), "level", "tenant", "key", _select_properties(properties), "size",
            identity_of("kodo_id", "mid").alias("identity"), "id",
        )
        .orderBy(F.desc("at_ms"), F.desc("id"))
        .limit(newest)
    )  # fmt: skip
    return (
        rows.join(_recorded_results(_records(transitions, topic, subscription)), "identity", how="left")
        .orderBy("at_ms", "id")
        .select(*_fill_columns(COLUMNS))
    )


def waiting_messages(
    events: DataFrame,
    transitions: DataFrame,
    *,
    topic: str,
    subscription: str,
    properties: Sequence[str],
    newest: int,
    since: int,
) -> DataFrame:
    """Messages that waited in RETRYING, PENDING, BLOCKING or backup at the time `since` (ms since the epoch), and for
    which a later record shows that they left their lane: (WAITING), at most `newest`, in order of `due_ms`, which is
    null without a due time. `at_ms` is `since`. `outcomes` and `moves` (see `arrivals`) count from `since` on.
    """
    records = _records(transitions, topic, subscription).where(F.unix_millis("at_ts") >= since)
    waited = _lanes(events, topic, subscription).where(F.unix_millis("publish_ts") < since)
    left = records.select("msg_topic", "id").distinct()
    return (
        waited.join(left, ["msg_topic", "id"], how="left_semi")
        .select(
            F.lit(since).cast("bigint").alias("at_ms"), "level", "tenant", "key", _select_properties(properties), "size",
            identity_of("kodo_id", "mid").alias("identity"), "id", "state", "due_ms", "hop", "attempts",
        )
        .join(_recorded_results(records), "identity", how="left")
        .orderBy("due_ms", "id")
        .limit(newest)
        .select(*_fill_columns(WAITING))
    )  # fmt: skip


def run_times(events: DataFrame, transitions: DataFrame, *, topic: str, subscription: str) -> DataFrame:
    """Estimated run times of handlers in waiting states and `backup`: (tenant, state, quick_ms). `quick_ms`: 10th
    percentile of the ms that messages in which a handler ran were in their lane after they were due.
    """
    ran = _records(transitions, topic, subscription).where(F.col("letter").isNotNull())
    lanes = _lanes(events, topic, subscription)
    state = F.when(F.col("level").startswith("B"), "backup").otherwise(F.col("state"))
    took = F.unix_millis("at_ts") - F.greatest(F.unix_millis("publish_ts"), F.coalesce("due_ms", F.lit(0)))
    return (
        lanes.select("msg_topic", "id", "tenant", state.alias("state"), "publish_ts", "due_ms")
        .join(ran.select("msg_topic", "id", "at_ts"), ["msg_topic", "id"], how="inner")
        .groupBy("tenant", "state")
        .agg(F.percentile_approx(F.greatest(took, F.lit(1)), _QUICK).alias("quick_ms"))
        .select("tenant", "state", F.col("quick_ms").cast("bigint").alias("quick_ms"))
    )


def _lanes(events: DataFrame, topic: str, subscription: str) -> DataFrame:
    """Messages in waiting states and on backup levels of the subscription, with `due_ms`."""
    states = F.col("state").isin(*_STATES) & (F.col("subscription") == subscription)
    backup = (F.col("state") == "ready") & F.col("level").startswith("B") & (F.col("hop") > 0)
    meant = backup & (F.col("for_subscription") == subscription)
    due = F.col("properties").getItem(headers.DUE).try_cast("bigint").alias("due_ms")
    return events.where((F.col("topic") == topic) & (states | meant)).select("*", due)


def _records(transitions: DataFrame, topic: str, subscription: str) -> DataFrame:
    """Records of the subscription with the column `letter`, null if no handler ran."""
    event, rule = F.col("event"), F.col("rule")
    by_limit = F.coalesce(F.col("reason").startswith(_LIMIT), F.lit(False))
    letters: tuple[tuple[Column, str], ...] = (
        (event.isin(*DONE, "discarded"), "d"), (event == "dead", "k"), (by_limit, ""), (rule.isin(*FAILED), "f"),
        (rule == "pending", "p"), (rule == "blocking", "b"),
    )  # fmt: skip
    first, *others = letters
    chain = reduce(lambda made, one: made.when(one[0], _letter(one[1])), others, F.when(first[0], _letter(first[1])))
    return transitions.where((F.col("topic") == topic) & (F.col("subscription") == subscription)).select(
        "*", chain.alias("letter")
    )


def _letter(text: str) -> Column:
    return F.lit(text or None).cast("string")


def _recorded_results(records: DataFrame) -> DataFrame:
    """Returns (identity, took_ms, moves, outcomes): the recorded results of each message."""
    letters = F.array_sort(F.collect_list(F.when(F.col("letter").isNotNull(), F.struct("hop", "at_ts", "letter"))))
    return records.groupBy("identity").agg(
        F.max(F.when(F.col("event").isin(*DONE), F.col("age_ms"))).alias("took_ms"),
        F.count_if(F.col("event").isin("moved", "dead")).alias("moves"),
        F.array_join(F.transform(letters, lambda one: one["letter"]), "").alias("outcomes"),
    )


def _select_properties(properties: Sequence[str]) -> Column:
    asked = F.map_filter("properties", lambda name, _: name.isin(*properties)) if properties else F.create_map()
    return asked.alias("properties")


def _fill_columns(columns: Sequence[str]) -> list[Column]:
    """The columns, with 0 and an empty text instead of null in `moves` and `outcomes`."""
    given = {
        "moves": F.coalesce("moves", F.lit(0).cast("bigint")),
        "outcomes": F.coalesce("outcomes", F.lit("")),
    }
    return [given.get(name, F.col(name)).alias(name) for name in columns]

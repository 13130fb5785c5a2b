"""Entries of the recall ledger, as far as the landing confirms them.

A recall ledger may have entries of several clusters, whose positions may be equal, and a dead letter that a recall sent
may be removed before its lane is read. So an entry is believed if its dead letter was read at its position, with its
publish time; or, if the dead letter was deleted before, if its recalled message was read in a lane. A dead letter that
was sent is judged where it was stored. These joins only decide which entries about a few dead letters are believed; the
places of a message decide its fate (kodo_pipeline.audit.positions).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.audit.end_positions import read_limits, was_read, was_stored
from kodoctl.topology.names import State

LETTERS: Final = """
  msg_topic string, msg_partition int, ledger bigint, entry bigint, batch_index int, published bigint, settled string,
  recall_id string, sending string, lane_topic string, lane_part int, receipt string, holder string,
  lost boolean
"""
"""Columns of an entry of the recall ledger: the place of a dead, waiting or lost message, its publish time in ms since
the epoch, and `settled`: `sent` or `discarded`. If it was sent: topic and partition of the target lane, and `receipt`,
the position there as `ledger:entry`; empty: the broker had it already. `sending` is equal for letters that were sent as
one message, which has the recall id of one of them. `holder`: the subscription for which it was sent or discarded, if
it was lost, or on a ready topic (of a backup level), which all subscriptions read; else empty. `lost`: it was lost
there, for `holder`, and sent again from a landing.
"""
BOOKED: Final = f"{LETTERS}, seen boolean"  # and whether an earlier audit has seen the entry
WEIGHED: Final = f"{LETTERS}, landed boolean, arrived boolean"
_PLACE: Final = ("msg_topic", "msg_partition", "ledger", "entry", "batch_index")
_NOWHERE: Final = ""  # the receipt of a letter that the broker had already
_ALONE: Final = -1  # recalls are not batched


def with_evidence(letters: DataFrame, events: DataFrame) -> DataFrame:
    """Adds to `letters` (LETTERS) the evidence of the landing (columns of WEIGHED), and leaves out letters at whose
    position a message with another publish time was read.

    `landed`: the message of the letter was read at its position; `arrived`: the message that was sent for the letter,
    or for all letters of one `sending`, was read at the position of its receipt, or at any position if the receipt is
    empty.
    """
    there = events.select(*_PLACE, F.unix_millis("publish_ts").alias("at")).join(
        F.broadcast(letters.select(*_PLACE, "published")), list(_PLACE), how="inner"
    )
    landed = there.select(*_PLACE, "published", (F.col("at") == F.col("published")).alias("landed")).distinct()
    wanted = letters.where(F.col("settled") == "sent").select(
        "recall_id", "sending", "lane_topic", "lane_part", "receipt"
    )
    at_receipt = (
        (F.col("msg_topic") == F.col("lane_topic"))
        & (F.col("msg_partition") == F.col("lane_part"))
        & (F.concat_ws(":", "ledger", "entry") == F.col("receipt"))
    )
    arrived = (
        events.where(F.col("recall").isNotNull())
        .select("msg_topic", "msg_partition", "ledger", "entry", F.col("recall").alias("recall_id"))
        .join(F.broadcast(wanted), "recall_id", how="inner")
        .where((F.col("receipt") == _NOWHERE) | at_receipt)
        .select("sending", F.lit(True).alias("arrived"))
        .distinct()
    )
    return (
        letters.join(landed, [*_PLACE, "published"], how="left")
        .where(F.coalesce("landed", F.lit(True)))
        .join(arrived, "sending", how="left")
        .withColumns({name: F.coalesce(name, F.lit(False)) for name in ("landed", "arrived")})
    )


def resent(letters: DataFrame) -> DataFrame:
    """Counts lost messages that were sent again: (msg_topic, subscription, messages). `letters`: result of
    `with_evidence`. A message counts if it was read where it was lost, or, as one that was lost on its way was never
    stored there, if its copy was read; letters of one `sending` count once.
    """
    return (
        letters.where(F.col("lost") & (F.col("settled") == "sent") & (F.col("landed") | F.col("arrived")))
        .groupBy("msg_topic", F.col("holder").alias("subscription"))
        .agg(F.countDistinct("sending").alias("messages"))
        .select("msg_topic", "subscription", "messages")
    )


def recalled_positions(letters: DataFrame, lanes: DataFrame) -> DataFrame:
    """Facts that the recall ledger adds to places: for each of `letters` (result of `with_evidence`) in one of `lanes`
    its place (lane, ledger, entry, batch), the conditions `sent`, `recall_unconfirmed`, `discarded` and `seen`, and the
    place of its copy (to_lane, to_ledger, to_entry, to_batch), all null unless the letter was read at its place and
    reading has passed that of the copy. On a ready topic only the lane of the letter's `holder` has a row.

    `sent`: the letter was sent, and its copy was read; or the letter was read at its place, and reading has passed the
    position of the copy (then the place of the copy is judged), or nothing was stored there yet when the cursors were
    last read. `recall_unconfirmed`: the recall ledger says that it was sent, and `sent` is false. `discarded`: the
    ledger says so, and the letter was read at its place. `seen`: an earlier audit has seen the entry.
    """
    sources = lanes.select("lane", "msg_topic", "msg_partition", "subscription", "state")
    receipt = F.split(F.nullif(F.col("receipt"), F.lit(_NOWHERE)), ":")
    sent_to = {f"sent_{name}": F.get(receipt, at).try_cast("bigint") for at, name in enumerate(("ledger", "entry"))}
    sent, looked = F.col("settled") == "sent", F.col("stored_ledger").isNotNull()
    known = sent & F.col("landed") & was_read(*sent_to)
    coming = (
        sent & F.col("landed") & (F.coalesce(F.col("sent_ledger") >= 0, F.lit(False)) & looked & ~was_stored(*sent_to))
    )
    return (
        letters.withColumns(sent_to)
        .join(F.broadcast(sources), ["msg_topic", "msg_partition"], how="inner")
        .where((F.col("state") != State.READY.value) | (F.col("holder") == F.col("subscription")))
        .join(
            F.broadcast(read_limits(lanes, "lane_topic", "lane_part")),
            ["lane_topic", "lane_part", "subscription"],
            how="left",
        )
        .withColumns({"known": known, "on_its_way": known | coming | (sent & F.col("arrived"))})
        .select(
            "lane",
            "ledger",
            "entry",
            F.col("batch_index").alias("batch"),
            F.col("on_its_way").alias("sent"),
            (sent & ~F.col("on_its_way")).alias("recall_unconfirmed"),
            ((F.col("settled") == "discarded") & F.col("landed")).alias("discarded"),
            _where_known("target", "int").alias("to_lane"),
            _where_known("sent_ledger", "bigint").alias("to_ledger"),
            _where_known("sent_entry", "bigint").alias("to_entry"),
            F.when(F.col("known"), _ALONE).alias("to_batch"),
            seen_letter(letters).alias("seen"),
        )
    )


def seen_letter(letters: DataFrame) -> Column:
    """Column: true for an entry of the recall ledger that an earlier audit has seen; false if `letters` have no column
    `seen`.
    """
    return F.col("seen") if "seen" in letters.columns else F.lit(False)


def _where_known(column: str, kind: str) -> Column:
    return F.when(F.col("known"), F.col(column)).cast(kind)

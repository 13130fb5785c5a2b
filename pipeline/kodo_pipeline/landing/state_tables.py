"""Tables of the audit's state: summaries of settled messages, and the rows of messages that are not settled. `pipeline
audit` makes them from the other tables, and can make them again. Also the tables of removals: summaries of the rows
that `pipeline maintain --keep` removed, which cannot be made again.
"""

from __future__ import annotations

from typing import Final

from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS, Column, Table

_FAMILIES: Final = "array<int>"
_OPEN: Final = (
    "msg_topic", "msg_partition", "ledger", "entry", "batch_index", "mid", "kodo_id", "hop", "recall", "for_subscription",
    "publish_ts",
)  # fmt: skip
_RECORD: Final = (
    "msg_topic",
    "id",
    "subscription",
    "identity",
    "event",
    "target_topic",
    "target_id",
    "worker_run",
    "number",
)
_MARK: Final = (
    "msg_topic",
    "seq_partition",
    "seq_run",
    "seq_high",
    "seq_void",
    "seq_end",
    "ledger",
    "entry",
    "batch_index",
)

OPEN_EVENTS: Final = Table(
    "audit_open_events",
    "Messages that are not settled, as `events` has them: what the next audit judges again.",
    (
        *(one for one in EVENTS.columns if one.name in _OPEN),
        Column("families", _FAMILIES, "numbers of the subscriptions for which it is not settled"),
    ),
)
OPEN_RECORDS: Final = Table(
    "audit_open_records",
    "Audit records of messages that are not settled, as `transitions` has them.",
    (
        *(one for one in TRANSITIONS.columns if one.name in _RECORD),
        Column("own", "boolean", "the message that it is about is not settled"),
        Column("refers", _FAMILIES, "numbers of the subscriptions for which its target is not settled"),
    ),
)
SETTLED: Final = Table(
    "audit_settled",
    "What is settled, as hashes: names of messages, and the hops of those that were moved.",
    (
        Column("family", "int", "number of the subscription"),
        Column("hop", "boolean", "a hop; else a name"),
        Column("hash", "bigint", "of the name, or of the hop"),
    ),
)
DEAD_LETTERS: Final = Table(
    "audit_dead_letters",
    "Dead letters that are settled: they wait for somebody, and a report counts them.",
    (
        Column("family", "int", "number of the subscription"),
        Column("hash", "bigint", "of the message's name, as in `audit_settled`"),
        Column("msg_topic", "string", "full name of the dead letter topic"),
        Column("msg_partition", "int", "number of the partition"),
        Column("published", "bigint", "when it was published there, ms since the epoch"),
    ),
)
NUMBERS: Final = Table(
    "audit_numbers",
    "Ranges of numbers that were seen: of workers' records, and of producers' messages.",
    (
        Column("msg_topic", "string", "topic of a producer's numbers; null: numbers of a worker's records", null=True),
        Column("partition", "int", "partition that a producer's run counts; null on a worker's", null=True),
        Column("run", "string", "run of the worker or the producer"),
        Column(
            "family", "int", "number of a worker's subscription; null: none of the file's, or a producer's", null=True
        ),
        Column("first", "bigint", "first number of the range"),
        Column("last", "bigint", "last number of the range"),
        Column("rows", "bigint", "rows with a number of the range"),
    ),
)
MARKS: Final = Table(
    "audit_marks",
    "Producers' marks, as `events` has them.",
    (
        *(one for one in EVENTS.columns if one.name in _MARK),
        Column("genuine", "boolean", "its signature was valid; null: there were no keys", null=True),
    ),
)
LETTERS_SEEN: Final = Table(
    "audit_letters",
    "Hashes of the entries of the ledger of recalls that the audit has seen.",
    (Column("hash", "bigint", "of the letter, its place, and what became of it"),),
)
REMOVED_PLACES: Final = Table(
    "removed_places",
    "Where messages were stored whose rows were removed: ranges of entries, none of which has a row in `events` any more.",
    (
        Column("msg_topic", "string", "full name of the topic"),
        Column("msg_partition", "int", "number of the partition"),
        Column("ledger", "bigint", "ledger of the range"),
        Column("first", "bigint", "first entry of the range"),
        Column("last", "bigint", "last entry of the range"),
        Column("run", "string", "run that removed them"),
    ),
)
REMOVED_NUMBERS: Final = Table(
    "removed_numbers",
    "Ranges of numbers that removed rows had: of workers' records, and of producers' messages.",
    (
        *(one for one in NUMBERS.columns if one.name != "family"),
        Column("topic", "string", "ground topic of a worker's records; null on a producer's", null=True),
        Column("subscription", "string", "subscription of a worker's records; null on a producer's", null=True),
    ),
)
REMOVALS: Final = (REMOVED_PLACES, REMOVED_NUMBERS)
STATE: Final = (OPEN_EVENTS, OPEN_RECORDS, SETTLED, DEAD_LETTERS, NUMBERS, MARKS, LETTERS_SEEN)

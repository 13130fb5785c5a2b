"""Tables that record manual interventions in a landing: erasures and write-offs. A table is created with its first row."""

from __future__ import annotations

from typing import Final

from kodo_pipeline.landing.tables import Column, Table

ERASURES: Final = Table(
    "erasures",
    "Two rows for each `pipeline erase`, before and after it: whose payloads were removed, by whom and why.",
    (
        Column("at_ts", "timestamp", "when"),
        Column("run", "string", "run that erased"),
        Column("event", "string", "begin or end: a begin without an end was cut off, and the same command ends it"),
        Column("tenant", "string", "value of `fair_by` whose payloads went"),
        Column("topic", "string", "ground topic, by its name in the topology file; null: all", null=True),
        Column("reason", "string", "as it was given"),
        Column("by", "string", "who asked, as the machine names the user"),
        Column("messages", "bigint", "whose payloads were removed"),
        Column("bytes", "bigint", "of these payloads, as they were stored"),
    ),
)
WRITE_OFFS: Final = Table(
    "write_offs",
    "A row for each loss or doubt that `pipeline write-off apply` settled: by name, with author and reason.",
    (
        Column("at_ts", "timestamp", "when it was booked"),
        Column("run", "string", "of the plan"),
        Column("kind", "string", "message, coverage, beginning, ttl, records, forged records, producer or addressee"),
        Column("topic", "string", "full name of the topic; of records the ground topic"),
        Column("partition", "int", "-1: of the whole topic"),
        Column("subscription", "string", "whose message, or records; empty: none"),
        Column(
            "name",
            "string",
            "place of a message, problem of coverage, RUN:NUMBER of a producer (up to that number; without one of an older "
            "kodoctl), or time (ms) up to which a TTL is no doubt",
        ),
        Column("number", "bigint", "how many: messages, records, numbers"),
        Column("reason", "string", "as it was given"),
        Column("by", "string", "who booked it, as the machine names the user"),
    ),
)
RECORDED: Final = (ERASURES, WRITE_OFFS)

"""The JSON of `kodoctl pipeline audit`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class AuditReason(TypedDict):
    """One reason of the verdict. `kind`: a word for programs; `text`: a sentence for people; `proves`: the verdict that
    this reason alone would give, `loss` or `inconclusive`.
    """

    kind: str
    proves: str
    text: str


class AuditedMessages(TypedDict):
    """Counts of one subscription. `topic`: ground topic by its name in the file; `audit`: the declared mode (`wait`,
    `best_effort`, `none`); `messages`: number of messages by status, without statuses that no message has;
    `missing_records`: number of audit records that workers wrote (by their record numbers) and that did not land;
    `sent_again`: number of messages that were lost, or not proved done, and that `pipeline recall plan --lost` sent
    again.
    """

    topic: str
    subscription: str
    audit: str
    messages: dict[str, int]
    missing_records: int
    sent_again: int


class AuditCoverage(TypedDict):
    """Coverage of one partition of `topic` (full name). `entries_planned`, `entries_seen`: numbers of entries in all
    ranges that were read; `problems`: texts for people, one for each range that was not read in full, and others.
    `from_creation`: no message was deleted before the first ingest read the partition; always true for topics that no
    producer writes to.
    """

    topic: str
    partition: int
    entries_planned: int
    entries_seen: int
    from_creation: bool
    problems: list[str]


class AuditFinding(TypedDict):
    """One place of a message that is lost, unproved, unknown or overdue for a subscription. `fate`: its status;
    `cause`: "" if there is none; `topic`: ground topic; `msg_topic`, `id`: full name of the topic and position
    `ledger:entry:partition:batch index` of the place. A message was stored there, or only a record names the place.
    """

    fate: str
    cause: str
    topic: str
    subscription: str
    msg_topic: str
    id: str


class AuditBasis(TypedDict):
    """Rows that the audit judged. `all_rows`: true if all landed rows were judged, for the reason `why`; false if only
    rows that are new or that earlier audits left open (`why` is then ""). `settled_before`: number of messages that
    earlier audits settled; `reopened`: number of these that were judged again. `unsaved`: the reason why the state for
    the next audit could not be stored; "" if it was, or if none was to be stored, as of a small landing.
    """

    all_rows: bool
    why: str
    settled_before: int
    reopened: int
    unsaved: str


class LostLaneRow(TypedDict):
    """Number of messages that one lane of a subscription lost. `topic`: ground topic; `lane`: such as `L1/ready`, or
    `dead` for dead letters.
    """

    topic: str
    subscription: str
    lane: str
    messages: int


class AuditDocument(TypedDict):
    """An audit as JSON. `pipeline audit` and `pipeline run` write every key. The audit inside a report lacks `run`,
    `read_at` (start of the last complete ingest, ms since the epoch) and `commands` (commands to copy). `findings`:
    samples, at most 20 of each status in each lane and 1,000 of each status; `lost` and `subscriptions` count all.
    `sql`: queries that show the rows behind the findings.
    """

    format_version: int
    verdict: str
    reasons: list[AuditReason]
    notes: list[str]
    subscriptions: list[AuditedMessages]
    coverage: list[AuditCoverage]
    findings: list[AuditFinding]
    lost: list[LostLaneRow]
    sql: list[str]
    judged: NotRequired[AuditBasis]
    run: NotRequired[str]
    read_at: NotRequired[int]
    commands: NotRequired[list[str]]

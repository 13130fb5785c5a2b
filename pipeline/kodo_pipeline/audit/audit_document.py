"""The JSON of `kodoctl pipeline audit`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class AuditReason(TypedDict):
    """One reason of the verdict. `kind`: some words for programs; `text`: for people, a sentence, or the number of more
    reasons of this kind; `proves`: the verdict that this reason alone would give, `loss` or `inconclusive`.
    """

    kind: str
    proves: str
    text: str


class AuditedMessages(TypedDict):
    """Counts of one subscription. `topic`: ground topic by its name in the file; `audit`: the declared mode (`wait`,
    `best_effort`, `none`); `messages`: number of messages by status, without statuses that no message has;
    `missing_records`: count of numbers of audit records, up to the highest that landed of each worker run, that no
    landed record has, those that were written off included; `sent_again`: number of messages, lost or not proved done,
    that were sent again by a plan of `pipeline recall plan --lost`, as far as the landing confirms it.
    """

    topic: str
    subscription: str
    audit: str
    messages: dict[str, int]
    missing_records: int
    sent_again: int


class AuditCoverage(TypedDict):
    """Coverage of one partition of `topic` (full name). `entries_planned`: number of entries in all ranges that ingests
    planned to read; `entries_seen`: number of those that were read or proved unreadable; `problems`: texts for people,
    one for each range that was not read in full, and others. `from_creation`: false if messages may have been deleted
    before the first ingest read the partition; always true except on ready topics. Write-offs change neither.
    """

    topic: str
    partition: int
    entries_planned: int
    entries_seen: int
    from_creation: bool
    problems: list[str]


class AuditFinding(TypedDict):
    """One place of a message, whose status for a subscription is lost, unproved, unknown or overdue. `fate`: the
    status; `cause`: "" if there is none; `topic`: ground topic; `msg_topic`, `id`: full name of the topic and position
    `ledger:entry:partition:batch index` of the place. A message was stored there, or only a record, or the receipt of
    a recall, names the place.
    """

    fate: str
    cause: str
    topic: str
    subscription: str
    msg_topic: str
    id: str


class AuditBasis(TypedDict):
    """Rows that the audit judged. `all_rows`: true if all landed rows were judged, for the reason `why`; then
    `settled_before` and `reopened` are 0. False if only rows were judged that are new, that earlier audits left open,
    or that belong to `reopened` messages; `why` is then "". `settled_before`: number of messages that earlier audits
    settled, counted for each subscription; `reopened`: number of these that were judged again. `unsaved`: the reason
    why the state for the next audit could not be stored; "" if it was, or if none was to be stored, as of a small
    landing.
    """

    all_rows: bool
    why: str
    settled_before: int
    reopened: int
    unsaved: str


class LostLaneRow(TypedDict):
    """Number of places at which one lane of a subscription lost a message (`messages`); a message that was lost at two
    places counts twice. `topic`: ground topic; `lane`: such as `L1/ready`, or `dead` for dead letters.
    """

    topic: str
    subscription: str
    lane: str
    messages: int


class AuditDocument(TypedDict):
    """An audit as JSON. `pipeline audit` and `pipeline run` write every key. The audit inside a report lacks `run`,
    `read_at` (start of the last complete ingest, ms since the epoch; 0 if none was completed) and `commands` (commands
    to copy). `findings`: samples, at most 20 of each status in each lane and 1,000 of each status; `lost` counts all
    places that are lost, `subscriptions` all messages. `sql`: queries that show the rows behind the samples.
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

"""The JSON of `kodoctl pipeline audit`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class AuditReason(TypedDict):
    """One reason of the verdict. `proves`: the verdict that this reason alone would give."""

    kind: str
    proves: str
    text: str


class AuditedMessages(TypedDict):
    """Messages of a subscription by status; a status without messages is left out. `audit`: the mode that is declared;
    `sent_again`: lost messages that `pipeline recall plan --lost` sent again.
    """

    topic: str
    subscription: str
    audit: str
    messages: dict[str, int]
    missing_records: int
    sent_again: int


class AuditCoverage(TypedDict):
    """The range read of a partition. `from_creation`: nothing was deleted before it was read."""

    topic: str
    partition: int
    entries_planned: int
    entries_seen: int
    from_creation: bool
    problems: list[str]


class AuditFinding(TypedDict):
    """A message that needs attention: `id` on `msg_topic`. `cause`: empty if there is none."""

    fate: str
    cause: str
    topic: str
    subscription: str
    msg_topic: str
    id: str


class AuditBasis(TypedDict):
    """The rows that the audit judged. `all_rows`: everything that landed, and `why` gives the reason; otherwise
    only new and open messages. Earlier audits settled `settled_before` messages, of which `reopened` are judged
    again. `unsaved`: why the next audit cannot build on this one.
    """

    all_rows: bool
    why: str
    settled_before: int
    reopened: int
    unsaved: str


class LostLaneRow(TypedDict):
    """Number of messages that one lane of a subscription lost. `lane`: such as `L1/ready`, or `dead`."""

    topic: str
    subscription: str
    lane: str
    messages: int


class AuditDocument(TypedDict):
    """An audit as JSON. `pipeline audit` and `pipeline run` write every key. The audit inside a report lacks `run`,
    `read_at` and `commands` (commands to copy).
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

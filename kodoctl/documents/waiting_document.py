"""The JSON of `kodoctl waiting list`. Times are ms since the epoch, 0 = none."""

from __future__ import annotations

from typing import TypedDict


class WaitingLaneRow(TypedDict):
    """A lane that messages wait in. `overdue`: messages that are due now; `oldest`: publish time of the oldest."""

    topic: str
    subscription: str
    lane: str
    full_topic: str
    messages: int
    overdue: int
    oldest: int
    next_due: int
    last_due: int


class WaitingGroupRow(TypedDict):
    """Messages with the same facts; null: the request did not include that fact. `due`: `now`, `in 1 min`, `in
    1 h`, `in 1 d` or `later`.
    """

    topic: str
    subscription: str
    lane: str | None
    cause: str | None
    tenant: str | None
    due: str | None
    messages: int
    oldest: int
    next_due: int
    last_due: int


class WaitingListDocument(TypedDict):
    """Waiting messages that meet the condition. `groups`: the largest first; `unread`: entries that could not
    be read, a line each.
    """

    format_version: int
    now: int
    where: str
    read: int
    matched: int
    lanes: list[WaitingLaneRow]
    groups: list[WaitingGroupRow]
    unread: list[str]


class LaneReleaseRow(TypedDict):
    """Result of one lane. `earlier_run`: the run whose plan, left by a kill, was finished by this row; "": the row is of
    this run's own plans. `released`: messages that this command sent to it, due at once, or found sent by an earlier
    attempt; `stays`: why further messages wait on -> how many, `other`: they do not meet the condition; `problems`:
    messages that could be neither sent nor acknowledged, or may be there twice, a line each; `complete`: nothing is
    left to do.
    """

    lane: str
    earlier_run: str
    released: int
    stays: dict[str, int]
    problems: list[str]
    complete: bool
    seconds: float


class WaitingReleaseDocument(TypedDict):
    """The JSON of `kodoctl waiting release`."""

    format_version: int
    topic: str
    subscription: str
    where: str
    lanes: list[LaneReleaseRow]

"""The JSON of `kodoctl waiting list`. Times are ms since the epoch, 0 = none."""

from __future__ import annotations

from typing import TypedDict


class WaitingLaneRow(TypedDict):
    """A waiting lane and its messages that meet the condition. `overdue`: number of those whose due time is past, or
    that have none; `oldest`: publish time of the oldest; `next_due`, `last_due`: smallest and largest due time.
    """

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
    """Number of messages with the same `lane`, `cause`, `tenant` and `due`; null: the command does not group by that
    one. `due`: `now` (also without a due time), `in 1 min`, `in 1 h`, `in 1 d` (at most so long) or `later`. `oldest`:
    publish time of the oldest; `next_due`, `last_due`: smallest and largest due time; ms since the epoch, 0 = none.
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
    """The JSON of `kodoctl waiting list`. `where`: the condition; `read`, `matched`: numbers of messages; `groups`:
    largest first; `unread`: a line for each entry that could not be read.
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
    """Result of one plan or more for one lane. `earlier_run`: run that was killed and whose plan this row completes;
    "": plans of this run. `released`: messages sent to the lane, due at once, those included that an earlier attempt
    sent; `stays`: reason -> messages that go on waiting (`other`: they do not meet the condition); `problems`: a line
    for each message that was not sent, not acknowledged, or perhaps stored twice; `complete`: no message is left to
    release.
    """

    lane: str
    earlier_run: str
    released: int
    stays: dict[str, int]
    problems: list[str]
    complete: bool
    seconds: float


class WaitingReleaseDocument(TypedDict):
    """The JSON of `kodoctl waiting release`. `where`: the condition; `lanes`: rows in the order of their release."""

    format_version: int
    topic: str
    subscription: str
    where: str
    lanes: list[LaneReleaseRow]

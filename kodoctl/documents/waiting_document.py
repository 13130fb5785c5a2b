"""Documents of `kodoctl waiting list` and `kodoctl waiting release`, which are filled while messages are read or sent.
`asdict` makes their JSON. Times are ms since the epoch, 0: none.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class WaitingLaneRow:
    """A waiting lane, with figures of those of its messages that meet the condition.

    `lane`: such as `L1/pending`; `full_topic`: full name of its topic; `overdue`: number of messages whose due time is
    past or absent; `oldest`: publish time of the oldest; `next_due`, `last_due`: earliest and latest due time. Times
    are ms since the epoch, 0: none.
    """

    topic: str
    subscription: str
    lane: str
    full_topic: str
    messages: int = 0
    overdue: int = 0
    oldest: int = 0
    next_due: int = 0
    last_due: int = 0


@dataclass(slots=True)
class WaitingGroupRow:
    """Number of waiting messages that agree in `lane`, `cause`, `tenant` and `due`; None: the command did not group by
    that column. `cause` is `(none)` for messages without one; beyond 10,000 groups, `cause` and `tenant` are
    `(others)`.

    `due`: `now` (also messages without a due time), `in 1 min`, `in 1 h`, `in 1 d` (within that time) or `later`.
    `oldest`: publish time of the oldest; `next_due`, `last_due`: earliest and latest due time, all in ms since the
    epoch, 0: none.
    """

    topic: str
    subscription: str
    lane: str | None
    cause: str | None
    tenant: str | None
    due: str | None
    messages: int = 0
    oldest: int = 0
    next_due: int = 0
    last_due: int = 0


@dataclass(slots=True)
class WaitingListDocument:
    """The result of `kodoctl waiting list`. `where`: the condition; `read`, `matched`: numbers of messages; `groups`:
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


@dataclass(slots=True)
class LaneReleaseRow:
    """Result of releasing one lane, which may take several plans.

    `earlier_run`: id of a killed run whose plan this row completes, "" for plans of this run. `released`: messages sent
    to the same lane with a due time of now, by this or an earlier attempt. `stays`: reason -> number of messages that
    go on waiting (`other`: they do not meet the condition). `problems`: one text for each message that was not sent, of
    which nobody knows whether it was stored, or that may be stored twice. `complete`: all messages of the row's plans
    are released and acknowledged, and the lane is not paused any more. `seconds`: duration of the sends.
    """

    lane: str
    earlier_run: str = ""
    released: int = 0
    stays: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    complete: bool = True
    seconds: float = 0.0


@dataclass(slots=True)
class WaitingReleaseDocument:
    """The result of `kodoctl waiting release`. `where`: the condition; `lanes`: rows in the order of their release."""

    format_version: int
    topic: str
    subscription: str
    where: str
    lanes: list[LaneReleaseRow] = field(default_factory=list)

"""The JSON of replays: the plan file, and the reports of `kodoctl replay apply` and `undo`. Times are ms since the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from kodoctl.documents.json_form import AtLeastOne, Count, Counts, Digest

Runs = list[Annotated[list[Count], Field(min_length=3, max_length=3)]]
ReplayState = Literal["complete", "incomplete", "undoing", "undone"]
_Place = Annotated[str, Field(pattern=r"^-?\d+:-?\d+$")]


class ReplayPartition(TypedDict):
    """One partition whose cursor moves back.

    `lane`: such as `L1/ready`; `topic`: its topic, with `partitions` partitions (0: a plain topic, whose `partition` is
    -1); `mark`: last entry up to which everything was acknowledged when planned; `again`: the entries to deliver again
    ([ledger, first entry, last entry]), all of them acknowledged when planned; `messages`: number of messages in them;
    `first`, `last`: earliest and latest publish time of these.
    """

    lane: str
    topic: str
    partition: Annotated[int, Field(ge=-1)]
    partitions: Count
    mark: _Place
    again: Runs
    messages: Count
    first: Count
    last: Count


class ReplaySummary(TypedDict):
    """Numbers of messages of a replay, exact at the time of the plan unless it says otherwise.

    `again`: acknowledged messages that come to handlers again; `done`: further ones that the workers' store knows as
    done, which workers acknowledge without their handler; `elsewhere`: those of `again` that also wait in another lane
    or are dead letters, so that they come twice; `copies`: acknowledged copies in lower levels of messages of `again`,
    which are left out; `others`: messages for other subscriptions, which are left out as well; `marks`: marks of
    producers. `unfinished`: messages of the time span that are not acknowledged yet and come anyway; `in_batches`:
    those of them in batches, parts of which may be done and then come again. `expiring`: messages of `again` older than
    the time to live of their topic; `by_place`: messages of `again` and `done` that were published outside of the time
    span and stored in it, because the clock of their producer is wrong. `by_tenant`: the tenants with most of `again`,
    others as "".
    """

    again: Count
    done: Count
    elsewhere: Count
    copies: Count
    others: Count
    marks: Count
    unfinished: Count
    in_batches: Count
    expiring: Count
    by_place: Count
    by_tenant: Counts


class ReplayDuration(TypedDict):
    """How long the replay takes. `rate`: messages a second that workers handle, null: not known; `measured`: the broker
    measured the rate in the last minute, else the user gave it; `arriving`: messages a second that arrive meanwhile;
    `ms`: time until the workers have caught up, null: not known, or never.
    """

    rate: Annotated[float, Field(gt=0)] | None
    measured: bool
    arriving: Annotated[float, Field(ge=0)]
    ms: Count | None


class ReplayPlanDocument(TypedDict):
    """A replay plan, format 1.

    `since`, `until`: time of the first messages and after the last, null if the choice has no such bound; a message is
    chosen if it was published or stored in this time. `message`: position of the first message, null if the choice is
    by time. `ordered`: the subscription keeps order; `store`: whether the workers' store was asked; `clocks`: clocks
    that tell when messages were stored, those of the `broker`, or, between closings of ledgers, those of most
    `producers`; `unread`: lines about stored entries without a readable message; `gone`: lines about messages that are
    not stored any more, or may not be; `unknown`: lines about facts that could not be read; `refusals`: reasons for
    which the plan cannot be carried out; `seal`: SHA-256 of all other keys.
    """

    format_version: Literal[1]
    kodoctl_version: str
    action: Literal["replay"]
    run: Annotated[str, Field(pattern="^[0-9a-z-]{8,40}$")]
    made_at: Count
    cluster: str | None
    topology: str
    path: str
    environment: str | None
    namespace: str
    topic: str
    subscription: str
    since: Count | None
    until: Count | None
    message: str | None
    because: str
    ordered: bool
    store: bool
    clocks: Literal["broker", "producers"]
    partitions: list[ReplayPartition]
    summary: ReplaySummary
    duration: ReplayDuration
    unread: list[str]
    gone: list[str]
    unknown: list[str]
    refusals: list[str]
    seal: Digest


@dataclass(slots=True)
class ReplayReport:
    """Result of an attempt to carry out a replay, or to undo it.

    `partitions`: number of partitions that were worked on, those with a problem too; `entries`: number of entries of
    these that should come again (those of `unclear` partitions count as well, those that retention removed before do
    not), or for an undo should come no more; `kept`: number of entries behind the new position that were acknowledged
    again, because they were handled since the plan or are outside of it (those of a problem count as well);
    `again_done`: of an undo, number of entries that were handled a second time meanwhile; `unclear`: one text for each
    partition of which an attempt does not know whether its messages came again; `problems`: one text for each partition
    whose acknowledgements the broker does not show.
    `complete`: nothing is left to do.
    """

    run: str
    action: Literal["replay", "undo"]
    partitions: int = 0
    entries: int = 0
    kept: int = 0
    again_done: int = 0
    unclear: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    complete: bool = False
    seconds: float = 0.0


class ReplayRow(TypedDict):
    """A replay in the history of a namespace. `state`: `complete`, `incomplete` (begun and not ended), `undoing` (its undo
    has begun and not ended) or `undone`; `messages`: their number in the plan; `because`: reason, as the user wrote it.
    """

    run: str
    began: Count
    who: str
    topic: str
    subscription: str
    messages: AtLeastOne
    because: str
    state: ReplayState

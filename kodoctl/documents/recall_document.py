"""The JSON of recalls: a plan of dead letters, the report of an attempt, and the messages that `kodoctl peek` shows."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from kodoctl.documents.json_form import AtLeastOne, Count, Counts, Digest

MAX_LETTERS: Final = 100_000  # of a plan that is one document
PositionText = Annotated[str, Field(pattern=r"^-?\d+:-?\d+:\d+:-?\d+$")]
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class SettledLetter(TypedDict):
    """A dead letter by position (`ledger:entry:partition:batch`) and publish time (ms)."""

    position: PositionText
    published: Count


class PlannedLetterRow(SettledLetter):
    """A dead letter that is to be sent. `lane`: index of its target; `repeats`: copies that are acknowledged with it."""

    recall_id: _Hash
    digest: _Hash
    lane: Count
    number: Count
    repeats: list[SettledLetter]


class LetterFile(TypedDict):
    """The file that has the letters of a plan, beside it. `letters` of its `rows` are to be sent or discarded, and `settled`
    were before; the others are copies. `by_lane`: letters to each lane; `sha256`: of the file.
    """

    file: Annotated[str, Field(pattern=r"^[^/\\]+$")]
    rows: Count
    letters: Count
    settled: Count
    by_lane: list[Count]
    sha256: Digest


class RecallTarget(TypedDict):
    """A partition that letters are sent to. `partitions`: how many the topic has."""

    topic: str
    partition: Count
    ready: bool
    partitions: AtLeastOne


class LetterSample(TypedDict):
    """One of the oldest letters, as far as a person needs it. `error`: of its last run, empty where none was kept."""

    position: str
    key: str | None
    dead_at: int
    reason: str
    error: NotRequired[str]
    tenant: str
    payload: str


class RecallSummary(TypedDict):
    """Counts of letters. `by_cause`: by reason and error, without the parts that differ between letters;
    `left_out`: by the reason for which letters are not in the plan; `not_editable`: by the reason for which a
    patch does not fit; `not_landed`: samples of letters whose payload the landing does not have, by topic and
    position.
    """

    read: Count
    matched: Count
    chosen: Count
    by_reason: Counts
    by_cause: NotRequired[Counts]
    by_tenant: Counts
    by_age: Counts
    samples: list[LetterSample]
    left_out: Counts
    not_editable: Counts
    not_landed: NotRequired[list[str]]


class _RecallPlan(TypedDict):
    format_version: Literal[1, 2]
    kodoctl_version: str
    action: Literal["send", "discard", "release", "move", "resend"]
    run: Annotated[str, Field(pattern="^[0-9a-z-]{8,40}$")]
    made_at: Count
    cluster: str | None
    topology: str
    path: str
    environment: str | None
    topic: str
    subscription: str
    dead_topic: str
    dead_partitions: AtLeastOne
    holder: str
    where: str
    to: str | None
    limit: AtLeastOne
    again: bool
    because: str
    edit: dict[str, Any] | None
    lanes: list[RecallTarget]
    summary: RecallSummary
    lane: NotRequired[str]
    landing: NotRequired[str]
    seal: NotRequired[Digest]


class RecallPlanDocument(_RecallPlan):
    """A recall plan of format 1, in one document. `dead_topic`: the topic of the messages, whatever their state; `edit`:
    a JSON merge patch for payloads; `settle`: letters that an earlier recall sent, to be acknowledged; `lane`: the
    waiting lane of its messages, left out for dead letters; `landing`: where lost messages are read, left out for
    others; `seal`: SHA-256 of everything else.
    """

    letters: Annotated[list[PlannedLetterRow], Field(max_length=MAX_LETTERS)]
    settle: list[SettledLetter]


class RecallTableDocument(_RecallPlan):
    """A recall plan of format 2: as format 1, but its letters, and those to be acknowledged, are in a file beside it."""

    letters: LetterFile
    settle: Annotated[list[SettledLetter], Field(max_length=0)]


AnyRecallPlan = RecallPlanDocument | RecallTableDocument


class RecallReportDocument(TypedDict):
    """The result of an attempt: numbers of letters; `refused`, `unclear`, `elsewhere` and `stored_twice` name theirs.
    `duplicates`: messages that a broker stored twice, whose second copy is acknowledged; `seconds`: it took.
    """

    format_version: int
    run: str
    action: str
    complete: bool
    sent: int
    had_already: int
    discarded: int
    before: int
    already: int
    acknowledged: int
    unacknowledged: int
    gone: int
    in_doubt: int
    refused: list[str]
    unclear: list[str]
    elsewhere: list[str]
    duplicates: int
    stored_twice: list[str]
    interrupted: bool
    seconds: NotRequired[float]


class ControlProperty(TypedDict):
    """A `kodo-*` property. `means`: in words, empty for one that is not known."""

    name: str
    value: str
    means: str


class PeekedMessage(TypedDict):
    """A stored message. `size`: bytes of the payload, null without one; `broken`: why it cannot be read, else empty."""

    topic: str
    position: str
    published: int
    event_time: int
    key: str
    ordering_key: str
    size: int | None
    properties: dict[str, str]
    control: list[ControlProperty]
    broken: str
    preview: str


class PeekDocument(TypedDict):
    """Messages that `kodoctl peek` shows. `read` and `matched` count messages; `marks` counts the markers that
    producers left between them. `complete`: everything was read and all matches are shown; `read_all`:
    everything was read. `by_cause`: number of matches by cause, without causes that have none; `unread`:
    entries that could not be read, a line each.
    """

    format_version: int
    read: int
    matched: int
    marks: int
    complete: bool
    read_all: bool
    messages: list[PeekedMessage]
    by_cause: NotRequired[dict[str, int]]
    unread: NotRequired[list[str]]

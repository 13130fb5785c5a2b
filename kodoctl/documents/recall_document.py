"""The JSON of recalls: a plan of dead letters, the report of an attempt, and the messages that `kodoctl peek` shows."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class SettledLetter(TypedDict):
    """A dead letter by position (`ledger:entry:partition:batch`) and publish time (ms)."""

    position: str
    published: int


class PlannedLetterRow(SettledLetter):
    """A dead letter that is to be sent. `lane`: index of its target; `repeats`: copies that are acknowledged with it."""

    recall_id: str
    digest: str
    lane: int
    number: int
    repeats: list[SettledLetter]


class LetterFile(TypedDict):
    """The file that has the letters of a plan, beside it. `letters` of its `rows` are to be sent or discarded, and `settled`
    were before; the others are copies. `by_lane`: letters to each lane; `sha256`: of the file.
    """

    file: str
    rows: int
    letters: int
    settled: int
    by_lane: list[int]
    sha256: str


class RecallTarget(TypedDict):
    """A partition that letters are sent to. `partitions`: how many the topic has."""

    topic: str
    partition: int
    ready: bool
    partitions: int


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

    read: int
    matched: int
    chosen: int
    by_reason: dict[str, int]
    by_cause: NotRequired[dict[str, int]]
    by_tenant: dict[str, int]
    by_age: dict[str, int]
    samples: list[LetterSample]
    left_out: dict[str, int]
    not_editable: dict[str, int]
    not_landed: NotRequired[list[str]]


class RecallPlanDocument(TypedDict):
    """A recall plan. `seal`: SHA-256 of everything else; `edit`: a JSON merge patch for payloads; `lane`: the waiting
    lane of its messages, left out for dead letters; `landing`: where lost messages are read, left out for others.
    """

    format_version: int
    kodoctl_version: str
    action: str
    run: str
    made_at: int
    cluster: str | None
    topology: str
    path: str
    environment: str | None
    topic: str
    subscription: str
    dead_topic: str
    dead_partitions: int
    holder: str
    where: str
    to: str | None
    limit: int
    again: bool
    because: str
    edit: dict[str, Any] | None
    lanes: list[RecallTarget]
    letters: list[PlannedLetterRow] | LetterFile
    settle: list[SettledLetter]
    summary: RecallSummary
    lane: NotRequired[str]
    landing: NotRequired[str]
    seal: NotRequired[str]


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

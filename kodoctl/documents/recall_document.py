"""The JSON of recalls: a plan of dead letters, the report of an attempt, and the messages that `kodoctl peek` shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from kodoctl.documents.json_form import AtLeastOne, Count, Counts, Digest

MAX_LETTERS: Final = 100_000  # of a plan that is one document
PositionText = Annotated[str, Field(pattern=r"^-?\d+:-?\d+:-?\d+:-?\d+$")]
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class SettledLetter(TypedDict):
    """A dead letter, identified by `position` (`ledger:entry:partition:batch index`) and `published` (its publish time
    in ms since the epoch).
    """

    position: PositionText
    published: Count


class PlannedLetterRow(SettledLetter):
    """A dead letter that the plan sends or discards.

    `recall_id`: id of the letter, by which a second send is recognised: the same in every plan, unless the plan has
    `again`. `digest`: hash of the payload before any edit. `lane`: index into the plan's `lanes`; `number`: the
    letter's sequence number in that lane, from 1 (both are 0 if the plan discards). `repeats`: other copies of the
    letter, which are acknowledged with it.
    """

    recall_id: _Hash
    digest: _Hash
    lane: Count
    number: Count
    repeats: list[SettledLetter]


class LetterFile(TypedDict):
    """The Parquet file with the letters of a large plan, in the folder of the plan file.

    Of its `rows`, `letters` are to be sent or discarded, `settled` were sent or discarded by an earlier recall, and the
    others are copies of these. `by_lane`: number of letters for each of the plan's `lanes`; `sha256`: digest of the
    file.
    """

    file: Annotated[str, Field(pattern=r"^[^/\\]+$")]
    rows: Count
    letters: Count
    settled: Count
    by_lane: list[Count]
    sha256: Digest


class RecallTarget(TypedDict):
    """A partition to which letters are sent: the one of `topic` with the number `partition`, -1 for a plain topic.
    `ready`: the topic is of the state READY; `partitions`: number of its partitions, 0 for a plain topic.
    """

    topic: str
    partition: Annotated[int, Field(ge=-1)]
    ready: bool
    partitions: Count


class LetterSample(TypedDict):
    """One of the oldest letters, shortened for people. `dead_at`: publish time in the dead-letter topic, ms since the
    epoch; `error`: error text of its last run, "" if none was kept; `payload`: beginning of the payload as text.
    """

    position: str
    key: str | None
    dead_at: int
    reason: str
    error: NotRequired[str]
    tenant: str
    payload: str


class RecallSummary(TypedDict):
    """Numbers of letters in a plan: `read` from the topic (of lost messages: named by the audit), `matched` by the
    condition, `chosen` for the plan.

    `by_reason`, `by_cause` (reason and error text without the parts that differ between letters), `by_tenant` and
    `by_age` divide the chosen letters; all but `by_age` name the 20 most frequent values, and a last key such as `(5
    others)` counts the rest together. `left_out`: reason -> number of letters that the plan does not send for this
    reason: they matched the condition, or are lost messages that cannot be sent. `not_editable`: reason -> number of
    letters to which the patch cannot be applied, for the three most frequent reasons; these letters are also in
    `left_out`. `not_landed`: topic and position of the first 20 lost messages whose payload is missing in the landing;
    `died_at_once`: number of chosen letters that had no further attempt after their first run failed.
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
    died_at_once: NotRequired[Count]


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
    dead_partitions: Count
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
    """A recall plan of format 1, which contains its letters.

    `where`: condition of the choice; `to`: level to send to, null: the default; `dead_topic`: topic of the chosen
    messages; `holder`: subscription in which they are unacknowledged; `settle`: letters that an earlier recall sent or
    discarded and that are only to be acknowledged; `edit`: JSON merge patch for payloads. `lane`: lane of waiting or
    lost messages, absent for dead letters; `landing`: place of the landing with lost messages, absent for others;
    `seal`: SHA-256 of all other keys.
    """

    letters: Annotated[list[PlannedLetterRow], Field(max_length=MAX_LETTERS)]
    settle: list[SettledLetter]


class RecallTableDocument(_RecallPlan):
    """A recall plan of format 2: like format 1, but the letters, and those to be acknowledged, are in a Parquet file in
    the same folder.
    """

    letters: LetterFile
    settle: Annotated[list[SettledLetter], Field(max_length=0)]


AnyRecallPlan = RecallPlanDocument | RecallTableDocument


@dataclass
class SendReport:
    """Result of one attempt to carry out a recall plan. Integers are numbers of letters (messages of the plan); lists
    have one text per letter.

    `had_already`: sent, and dropped by the broker's deduplication because it had stored the letter before; `before`:
    settled by earlier attempts or recalls, `already` of them by this plan; `gone`: acknowledged by somebody else, with
    no entry in this recall ledger; `in_doubt`: sent without a receipt, which the next attempt decides; `refused`: not
    sent, because the broker or the patch does not permit it; `unclear`: nobody can tell whether they are stored;
    `acknowledged`: by this attempt, copies and letters of earlier attempts included; `unacknowledged`: dealt with, but
    their acknowledgement may be lost; `elsewhere`: letters that this plan cannot send; `duplicates`: second copies that
    a broker stored and this attempt acknowledged; `stored_twice`: those that it cannot acknowledge.
    """

    sent: int = 0
    had_already: int = 0
    discarded: int = 0
    before: int = 0
    already: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    gone: int = 0
    in_doubt: int = 0
    refused: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    duplicates: int = 0
    stored_twice: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """True if the attempt was not interrupted, and `refused`, `unclear`, `elsewhere` and `unacknowledged` are
        empty. Letters that are `gone` or `stored_twice` do not count.
        """
        return not (self.interrupted or self.refused or self.unclear or self.elsewhere or self.unacknowledged)

    def to_json(self, run: str, action: str, seconds: float) -> dict[str, Any]:
        """The report as JSON. `run`, `action`: of the plan; `seconds`: duration of the attempt."""
        head = {"format_version": 1, "run": run, "action": action, "complete": self.complete}
        return {**head, **asdict(self), "seconds": round(seconds, 3)}


class ControlProperty(TypedDict):
    """A `kodo-*` property of a message. `means`: its meaning in words, "" if kodoctl does not know the property."""

    name: str
    value: str
    means: str


class PayloadContent(TypedDict):
    """A payload as the topology file declares it. `kind`: `json`, `avro`, `text`, `bytes` (hexadecimal digits of the
    first ones), or `none` for a tombstone; `text`: with everything redacted, "" if it is not shown; `note`: text about
    what does not fit the schema or is not shown, "" for nothing.
    """

    kind: str
    text: str
    note: str


class RecallRunRow(TypedDict):
    """A recall, release, move or discard in the recall ledger: all attempts at one plan. `began`: ms since the epoch;
    `who`: "" for not known; `source`: the topic whose messages it took, as in the ledger, without
    `persistent://TENANT/NAMESPACE/`. Numbers of messages, copies included: `sent`, `discarded`, `refused` (not sent),
    `unclear` (stored or not, and not sent again), `open` (begun, and not ended).
    """

    run: str
    began: Count
    who: str
    source: str
    sent: Count
    discarded: Count
    refused: Count
    unclear: Count
    open: Count


class PeekedMessage(TypedDict):
    """A stored message. `published`, `event_time`: ms since the epoch, `event_time` 0: none; `key`, `ordering_key`: ""
    for none; `properties`: those that are not in `control`; `size`: bytes of the stored payload, null if there is no
    payload; `broken`: text about parts that cannot be read and are missing here (such as the properties or the key), or
    about an encrypted payload, else ""; `preview`: beginning of the payload, redacted if its declaration is known;
    `content`: the payload as far as PayloadContent shows it, absent if its declaration is not known (without
    --topology).
    """

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
    content: NotRequired[PayloadContent]


class MessageRow(TypedDict):
    """A row of `peek --out`. Times are ms since the epoch, 0: none; `id`: identity over all hops; `cause`, `reason`,
    `error`: of the last failure, null for none; `payload`: its text with everything redacted that the file declares,
    null for a tombstone; `payload_kind`, `payload_note`: see PayloadContent; `broken`: as in PeekedMessage.
    """

    topic: str
    position: str
    id: str
    published: int
    event_time: int
    key: str
    tenant: str
    cause: str | None
    reason: str | None
    error: str | None
    attempts: int
    properties: dict[str, str]
    size: int | None
    payload_kind: str
    payload: str | None
    payload_note: str
    broken: str


class FailureGroup(TypedDict):
    """Messages of one cause and tenant. `tenant`: `(none)` for a message without, and without --topology."""

    cause: str
    tenant: str
    messages: int


class PeekDocument(TypedDict):
    """Messages that `kodoctl peek` shows. `read` and `matched` count messages; `marks` counts watermarks, messages
    without payload by which a producer reports its last sequence number.

    `read_all`: no message is left unread; `complete`: `read_all`, and `messages` has every match. Only matches that
    have a cause are in the next three. `by_cause`: cause -> number of matches, the 20 most frequent, and the others
    together; `groups`: by cause and tenant, the 2,000 largest, the largest first; `left_out`: number of matches in
    further groups. `unread`: one text for each entry that could not be read.
    """

    format_version: int
    read: int
    matched: int
    marks: int
    complete: bool
    read_all: bool
    messages: list[PeekedMessage]
    by_cause: NotRequired[dict[str, int]]
    groups: NotRequired[list[FailureGroup]]
    left_out: NotRequired[int]
    unread: NotRequired[list[str]]

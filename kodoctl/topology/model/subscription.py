"""Subscription model: shares, waits, limits and routes of messages. Declared in the file, applied by consumers."""

from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    WithJsonSchema,
)

from kodoctl.topology.model.field_types import (
    DurationField,
    FileModel,
    FiniteFloat,
    NotEmpty,
    PositiveInt,
    RateField,
    Share,
    SizeField,
    Text,
    defaults_of,
    optional_like,
    wrong_value,
)
from kodoctl.topology.names import Level, RouteMoment, State
from kodoctl.topology.safe_patterns import MAX_PATTERN, pattern_problem
from kodoctl.topology.units import MAX_ERROR_SIZE, Size

Weight = Annotated[StrictInt, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 200})]  # K104 says it better
Word = TypeVar("Word")
WordOrNumber = Annotated[
    Annotated[PositiveInt, Tag("value")] | Annotated[Word, Tag("word")],
    Discriminator(lambda raw: "word" if isinstance(raw, str) else "value"),
]


def _worked_state(raw: Any) -> Any:
    if raw == "dead":
        raise wrong_value("'dead' has no place here: no worker receives dead letters; a recall sends them")
    return raw


WorkedState = Annotated[
    State,
    BeforeValidator(_worked_state),
    WithJsonSchema({"type": "string", "enum": ["ready", "retrying", "pending", "blocking"]}),
]
RouteValue = StrictStr | StrictInt | FiniteFloat | StrictBool


def checked_pattern(pattern: str) -> str:
    """Returns the pattern. Raises PydanticCustomError (K004) for one that `pattern_problem` refuses, such as one that
    is not valid, could match an empty text, or could take very long to search.
    """
    if problem := pattern_problem(pattern):
        raise wrong_value(f"{pattern[:MAX_PATTERN]} {problem}")
    return pattern


def checked_error_size(size: Size) -> Size:
    """Returns the size. Raises PydanticCustomError (K004) above MAX_ERROR_SIZE, because it is added to messages."""
    if size > MAX_ERROR_SIZE:
        raise wrong_value(f"at most {Size(MAX_ERROR_SIZE)}: it is added to each message that fails")
    return size


class Isolate(FileModel):
    """Threshold at which a tenant is moved aside because its messages fill the look-ahead."""

    share: Share = Field(default="25%", examples=["25%"])
    """A tenant that holds more of the look-ahead than this is isolated."""
    min: PositiveInt = Field(default=1000, examples=[1000])
    """…but only from this many messages on; with a small look-ahead its share alone decides."""
    to: Literal["B1", "pending"] | None = optional_like("B1")
    """Where to; left out: B1 if there is one, else pending."""


class Lookahead(FileModel):
    """Limit of the messages that one worker holds unacknowledged in order to be fair."""

    messages: PositiveInt = Field(default=50_000, examples=[50_000])
    """Messages, receiver queues included."""
    size: SizeField = Field(default=Size(128 << 20), examples=["128MiB"])
    """Bytes of payload."""


class StateWeights(FileModel):
    """Shares of the states within a level."""

    ready: Weight = Field(default=50, examples=[50])
    """Share of new messages."""
    retrying: Weight = Field(default=30, examples=[30])
    """Share of messages that failed."""
    pending: Weight = Field(default=15, examples=[15])
    """Share of messages over a rate."""
    blocking: Weight = Field(default=5, examples=[5])
    """Share of messages over a quota."""


class Waits(FileModel):
    """Delays and attempts of messages that wait in a state."""

    delays: NotEmpty[DurationField] | None = optional_like(["10s", "1m", "5m"])
    """One delay an attempt; the last one repeats. Left out: the state's default."""
    attempts: PositiveInt | None = optional_like(12)
    """Attempts before the message goes on. Left out: the state's default."""


class RetryingWaits(Waits):
    """Delays and attempts of messages that wait after failures."""

    by_code: dict[Text, NotEmpty[DurationField]] = Field(default_factory=dict, examples=[{"bank-busy": ["30s", "5m"]}])
    """Delays for handlers that say why: `raise Retry(code="bank-busy")`. One an attempt; the last one repeats."""


class LimitLanes(FileModel):
    """Lanes whose messages a limit is about, by state and level of the topic a worker receives them from."""

    states: NotEmpty[WorkedState] | None = optional_like(["retrying"])
    """Of these states: ready, retrying, pending, blocking; left out: of all."""
    levels: NotEmpty[Level] | None = optional_like(["L2"])
    """Of these levels; left out: of all."""


class SlotRange(FileModel):
    """Handlers of some lanes that run at once in one worker."""

    max: PositiveInt | None = optional_like(8)
    """At most so many slots run messages of these lanes; left out: as many as there are."""
    min: PositiveInt | None = optional_like(4)
    """So many slots are kept for messages of these lanes, and never used by others; left out: none."""


class StateSlots(FileModel):
    """Slots of the states, in all levels together."""

    ready: SlotRange | None = optional_like({"min": 4})
    """Slots of new messages."""
    retrying: SlotRange | None = optional_like({"max": 8})
    """Slots of messages that failed."""
    pending: SlotRange | None = optional_like({"max": 8})
    """Slots of messages over a rate."""
    blocking: SlotRange | None = optional_like({"max": 4})
    """Slots of messages over a quota."""


class HandlerSlots(FileModel):
    """Handlers at once in one worker, with bulkheads between states, levels and single lanes."""

    total: WordOrNumber[Literal["adaptive"]] = Field(default=32, examples=[32])
    """Handlers at once in all, or adaptive."""
    states: StateSlots = Field(default_factory=defaults_of(StateSlots), examples=[{"retrying": {"max": 8}}])
    """Bulkheads of states."""
    levels: dict[Level, SlotRange] = Field(default_factory=dict, examples=[{"L2": {"min": 4}}])
    """Bulkheads of levels, all states of a level together."""
    lanes: dict[Text, SlotRange] = Field(default_factory=dict, examples=[{"L2/retrying": {"max": 2}}])
    """Bulkheads of single lanes, by LEVEL/STATE."""


class RateLimit(FileModel):
    """Limit of handler starts per period. Messages over the limit go to pending."""

    kind: Literal["rate"]
    """rate"""
    by: Text | None = optional_like("uid")
    """The message property (or `key`) each value of which has a limit of its own; left out: one limit for all."""
    in_: LimitLanes | None = Field(default=None, alias="in", examples=[{"states": ["retrying"]}])
    """The lanes whose messages the limit is about; left out: all of them."""
    limit: RateField = Field(examples=["100/s"])
    """The rate."""
    burst: PositiveInt | None = optional_like(200)
    """Starts that may come at once after a pause; left out: one second's worth, at least 1."""
    scope: Literal["subscription", "worker"] = "subscription"
    """subscription: all workers together. worker: each worker."""
    overrides: dict[Text, RateField] = Field(default_factory=dict, examples=[{"u1": "1000/s"}])
    """Limits of single values of `by`."""


class ConcurrencyLimit(FileModel):
    """Limit of handlers that run at once. Messages over the limit wait in memory, and the scheduler passes over them. A
    deferred message counts until it ends.
    """

    kind: Literal["concurrency"]
    """concurrency"""
    by: Text | None = optional_like("uid")
    """As for a rate."""
    in_: LimitLanes | None = Field(default=None, alias="in", examples=[{"states": ["retrying"]}])
    """As for a rate."""
    limit: PositiveInt = Field(examples=[8])
    """Handlers at once."""
    scope: Literal["subscription", "worker"] = "subscription"
    """As for a rate."""
    overrides: dict[Text, PositiveInt] = Field(default_factory=dict, examples=[{"u1": 16}])
    """As for a rate."""


class QuotaLimit(FileModel):
    """Limit of messages per window. Messages over the limit go to blocking."""

    kind: Literal["quota"]
    """quota"""
    by: Text | None = optional_like("bucket")
    """As for a rate."""
    in_: LimitLanes | None = Field(default=None, alias="in", examples=[{"states": ["retrying"]}])
    """As for a rate."""
    limit: RateField = Field(examples=["5000/h"])
    """Messages per window: s, m, h or d."""
    scope: Literal["subscription", "worker"] = "subscription"
    """As for a rate."""
    overrides: dict[Text, RateField] = Field(default_factory=dict, examples=[{"b1": "10000/h"}])
    """As for a rate."""


Pattern = Annotated[
    StrictStr,
    AfterValidator(checked_pattern),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_PATTERN}),
]
ErrorSize = Annotated[SizeField, AfterValidator(checked_error_size)]


class ErrorText(FileModel):
    """Settings of the error text that travels with a message that failed: how much of it, and what is redacted."""

    keep: ErrorSize = Field(default=Size(500), examples=["500B"])
    """Bytes of its text, 2KiB at most."""
    stack: ErrorSize = Field(default=Size(500), examples=["500B"])
    """Bytes of its stack, the innermost frames; 2KiB at most, 0B for none."""
    redact: Annotated[tuple[Pattern, ...], Field(max_length=20)] = Field(
        default=(), examples=[["(?i)password=[^ ]+", "[0-9]{13,16}"]]
    )
    """Regular expressions: what one matches is replaced by [redacted], also in logs and traces."""
    audit: StrictBool = Field(default=False, examples=[True])
    """Whether audit records of failed runs have the text, too."""


Limit = Annotated[RateLimit | ConcurrencyLimit | QuotaLimit, Discriminator("kind")]
ROUTE_OPERATORS: Final = (
    "equals", "not_equals", "in_", "not_in", "greater_than", "at_least", "less_than", "at_most", "exists",
)  # fmt: skip


class RouteCondition(FileModel):
    """A test of one message property; exactly one operator. Numbers compare as numbers. A missing property is no match."""

    property: Text = Field(examples=["size"])
    """The property tested."""
    equals: RouteValue | None = optional_like("vip")
    """Is this value."""
    not_equals: RouteValue | None = optional_like("test")
    """Is another value."""
    in_: tuple[RouteValue, ...] | None = Field(default=None, alias="in", examples=[["u1", "u2"]])
    """Is one of these."""
    not_in: tuple[RouteValue, ...] | None = optional_like(["u3"])
    """Is none of these."""
    greater_than: StrictInt | FiniteFloat | None = optional_like(100000)
    """Is a number above this."""
    at_least: StrictInt | FiniteFloat | None = optional_like(10)
    """Is a number not below this."""
    less_than: StrictInt | FiniteFloat | None = optional_like(10)
    """Is a number below this."""
    at_most: StrictInt | FiniteFloat | None = optional_like(10)
    """Is a number not above this."""
    exists: Literal[True] | None = optional_like(True)
    """Is there at all."""


RouteWhen = Annotated[
    Annotated[Text, Tag("word")] | Annotated[RouteCondition, Tag("map")],
    Discriminator(lambda raw: "word" if isinstance(raw, str) else "map"),
]


class Route(FileModel):
    """Sends matching messages to another level: as they are sent, or as they leave a waiting state."""

    when: RouteWhen = Field(examples=[{"property": "size", "greater_than": 100000}, "tenant = 'u7' AND attempts >= 3"])
    """A test of one property, or a condition as a text."""
    at: NotEmpty[RouteMoment] = Field(default=(RouteMoment.DISPATCH,), examples=[["retrying", "pending"]])
    """When it is evaluated: dispatch (sent, or first received), or on leaving retrying, pending, blocking or backup."""
    share: Share = Field(default="100%", examples=["10%"])
    """This part of the messages it would take, by hash of the key, or of the identity where there is no key."""
    to: Level = Field(examples=["B1"])
    """The level."""

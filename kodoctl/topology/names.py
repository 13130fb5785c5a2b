"""Names of Pulsar objects and of the parts of a topology: parsing, printing, order.

A family's topic is `ground + level suffix + "-" + subscription + state suffix` (one naming rule, no exceptions). No
code may *guess* level or state from a name: the topology has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

# Pulsar's own rule for tenant, namespace and local topic names (NamedEntity.checkName), without the empty name; and
# without the two that lead elsewhere in a path of its admin API.
_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_IN_PATH: Final = re.compile(r"(?!\.\.?$)[-=:.\w]+", re.ASCII)
_PARTITION: Final = re.compile(r"-partition-\d+", re.ASCII)
_LAST_PARTITION: Final = re.compile(r"-partition-(\d{1,10})\Z", re.ASCII)  # clients choose names; Pulsar reads an int
PLAIN: Final = -1
"""Number that stands for a topic without partitions where one of a partition is wanted, as in Pulsar's message ids."""
RESERVED_PREFIX: Final = "kodo-"  # of names that no file and no message may choose
RESERVED_NAMESPACE: Final = "kodoctl"  # in every Pulsar tenant
HOLDER: Final = "kodo-hold"
AUDIT_SUFFIX: Final = "-AUDIT"
LEVELS_CONTRADICT: Final = "levels, states or routes that contradict each other"  # K103's summary, wherever it is found


class Level(StrEnum):
    """A priority lane of a ground topic. `L1` is the ground topic itself. Iteration begins with the highest level; `<`
    compares the texts, so compare by `rank`.
    """

    S3 = "S3"
    S2 = "S2"
    S1 = "S1"
    L8 = "L8"
    L7 = "L7"
    L6 = "L6"
    L5 = "L5"
    L4 = "L4"
    L3 = "L3"
    L2 = "L2"
    L1 = "L1"
    B1 = "B1"
    B2 = "B2"
    B3 = "B3"
    D1 = "D1"

    @property
    def suffix(self) -> str:
        """Suffix of topic names for the level: `-L2`; "" for L1."""
        return "" if self is Level.L1 else f"-{self.value}"

    @property
    def is_backup(self) -> bool:
        """True for B1 to B3. They have no state topics: their messages wait in the ready topic."""
        return self[0] == "B"

    @property
    def rank(self) -> int:
        """Position in the order S3 … D1, from 0; a smaller rank is a higher level."""
        return _RANKS[self]


_RANKS: Final = {level: rank for rank, level in enumerate(Level)}


class State(StrEnum):
    """State of a message for one subscription, as far as a topic shows it; a done or discarded message is in no topic."""

    READY = "ready"
    RETRYING = "retrying"
    PENDING = "pending"
    BLOCKING = "blocking"
    DEAD = "dead"

    @property
    def suffix(self) -> str:
        """Suffix of topic names for the state: `-RETRYING`, for dead `-DLQ`; "" for ready."""
        return _STATE_SUFFIXES[self]


class RouteMoment(StrEnum):
    """Moments at which routes are evaluated for a message: when the message is sent (or first received, if the
    sender did not evaluate routes), and when it leaves a waiting state or a backup level.
    """

    DISPATCH = "dispatch"
    RETRYING = "retrying"
    PENDING = "pending"
    BLOCKING = "blocking"
    BACKUP = "backup"


_STATE_SUFFIXES: Final = {
    State.READY: "",
    State.RETRYING: "-RETRYING",
    State.PENDING: "-PENDING",
    State.BLOCKING: "-BLOCKING",
    State.DEAD: "-DLQ",
}
WAITING_STATES: Final = (State.RETRYING, State.PENDING, State.BLOCKING)
RESERVED_SUFFIXES: Final = (
    *(level.suffix for level in Level if level.suffix),
    *(state.suffix for state in State if state.suffix),
    AUDIT_SUFFIX,
)


class InvalidNameError(ValueError):
    """A text is not a valid name. The message gives the reason, and mostly the form of a valid name."""


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """Name of a Pulsar namespace, printed as `tenant/namespace`; `tenant` is the Pulsar tenant."""

    tenant: str
    namespace: str

    def __hash__(self) -> int:  # a text remembers its hash, a tuple of fields does not: names are keys everywhere
        return hash(self.namespace)

    @classmethod
    def parse(cls, text: str) -> NamespaceName:
        """Parses `tenant/namespace`. Raises InvalidNameError."""
        tenant, slash, namespace = text.partition("/")
        if not slash or not _IN_PATH.fullmatch(tenant) or not _IN_PATH.fullmatch(namespace):
            raise InvalidNameError(f"{text!r} is not a namespace: write TENANT/NAMESPACE, for example kodo/trade")
        return cls(tenant, namespace)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A persistent topic, by namespace and local name; without a partition number."""

    namespace: NamespaceName
    local: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parses `persistent://tenant/namespace/local` or the short `tenant/namespace/local`. Raises InvalidNameError
        for other texts, for an invalid tenant or namespace, for the local names `.` and `..`, and for a text with
        surrogates. Does not check the local name further: `-partition-<number>` stays a part of it.
        """
        parts = text.removeprefix("persistent://").split("/")
        if len(parts) != 3 or not all(map(_IN_PATH.fullmatch, parts[:2])) or parts[2] in ("", ".", ".."):
            raise InvalidNameError(f"{text!r} is not a topic: write persistent://TENANT/NAMESPACE/TOPIC")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise InvalidNameError(f"{text!r} is not a topic: it holds what is no text")
        return cls(NamespaceName(parts[0], parts[1]), parts[2])

    @classmethod
    def listed(cls, text: str) -> TopicName:
        """Parses the full name of a topic in a broker's list, without checks: clients choose local names, which may be
        anything, even `..`.
        """
        tenant, namespace, local = text.removeprefix("persistent://").split("/", 2)
        return cls(NamespaceName(tenant, namespace), local)

    full: str = field(init=False, compare=False, repr=False)
    """`persistent://tenant/namespace/local`, as Pulsar prints it."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "full", f"persistent://{self.namespace.tenant}/{self.namespace.namespace}/{self.local}"
        )

    def __hash__(self) -> int:
        return hash(self.full)

    def partition(self, number: int) -> str:
        """Full name of partition `number`, from 0; with PLAIN the name of the topic itself."""
        return partition_name(self.full, number)

    def __str__(self) -> str:
        return self.full


def partition_numbers(count: int) -> Sequence[int]:
    """Numbers of the partitions of a topic with `count` partitions; only PLAIN for a plain topic, whose count is 0."""
    return range(count) or (PLAIN,)


def partition_name(topic: str, number: int) -> str:
    """Name of partition `number` of a topic, or of the topic itself (PLAIN). `topic`: any form of a topic's name."""
    return topic if number == PLAIN else f"{topic}-partition-{number}"


def partition_number(name: str) -> int:
    """Number at the end of a partition's name; PLAIN if the name is not that of a partition, as with more digits than a
    number of partitions has. `name`: any form of the name.
    """
    found = _LAST_PARTITION.search(name)
    return int(found.group(1)) if found else PLAIN


def whole_topic(name: str) -> str:
    """The name without `-partition-<number>` at its end: the topic of a partition, or the topic itself."""
    return _LAST_PARTITION.sub("", name)


def produced_topic(namespace: NamespaceName, target: str) -> TopicName:
    """The topic that an entry of `produces` (`target`) names: by its full name, or by the name of a ground topic in
    `namespace`. Raises nothing: a text with `/` that is no full name counts as a local name.
    """
    if "/" in target:
        try:
            return TopicName.parse(target)
        except InvalidNameError:
            pass
    return TopicName(namespace, target)


def ready_name(ground: str, level: Level) -> str:
    """Local name of a ready topic: every subscription of the ground topic reads it."""
    return f"{ground}{level.suffix}"


def state_name(ground: str, level: Level, subscription: str, state: State) -> str:
    """Local name of the topic for a level and state of one subscription. For ready it is that of all subscriptions; for
    dead it has no level.
    """
    if state is State.READY:
        return ready_name(ground, level)
    if state is State.DEAD:
        return f"{ground}-{subscription}{state.suffix}"
    return f"{ground}{level.suffix}-{subscription}{state.suffix}"


def audit_name(ground: str, subscription: str) -> str:
    """Local name of the topic with one subscription's audit records."""
    return f"{ground}-{subscription}{AUDIT_SUFFIX}"


def why_not_pulsar_name(name: str) -> str | None:
    """Reason why Pulsar, or its naming of partitions, refuses `name` as tenant, namespace or local topic name, or None."""
    if not _NAME.fullmatch(name):
        bad = sorted({c for c in name if not _NAME.fullmatch(c)})
        shown = " ".join(repr(c) for c in bad)
        return f"it holds {shown}: letters, digits and - = : . _ are allowed" if bad else "it is empty"
    if name in (".", ".."):
        return "it is a relative path"
    if name.startswith("__"):
        return "names that begin with __ are Pulsar's own (__change_events, __compaction)"
    if _PARTITION.search(name):
        return "-partition-<number> is how Pulsar names the parts of a partitioned topic"
    return None


def reserved_suffix(name: str) -> str | None:
    """Suffix of a level, a state or audit that `name` ends in, which would be ambiguous in a ground topic or
    subscription; None if it ends in none.
    """
    return next((suffix for suffix in RESERVED_SUFFIXES if name.endswith(suffix)), None)

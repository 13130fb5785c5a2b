"""Facts of a message that a route condition may name; a sender and a worker both have them.

The sender of a first delivery cannot choose state and attempts: ready and none, whatever the message's properties are.
There are neither payloads nor a clock: a condition has one value for a message wherever it is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from kodoctl.expressions.ast import Node, Value, ValueKind
from kodoctl.expressions.filter_errors import ConditionError, SyntaxIssue, diagnostics
from kodoctl.expressions.parser import parse_expression
from kodoctl.expressions.vocabulary import Vocabulary
from kodoctl.topology.names import RESERVED_PREFIX, State

if TYPE_CHECKING:
    from kodoctl.topology.names import Level

MAX_TEXT: Final = 1_024  # characters of a value: a longer one is not looked at
MAX_CONDITION: Final = 1_000  # characters of a condition, which every message pays for


class UnreadableFactError(ValueError):
    """A value has more than MAX_TEXT characters; the message is the name of the fact or property."""


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """Facts of one message. `key`: "" without one; `tenant`: "(none)" without one; `identity`: text that is the same on
    all hops of the message; `size`: bytes of payload; `level`: the level that it is in, or is sent to; `attempts`:
    numbers of (retrying, pending, blocking, backup); `reason`: why a worker moved it last, None if none did.
    """

    properties: Mapping[str, str]
    key: str
    tenant: str
    identity: str
    size: int
    level: Level
    state: State = State.READY
    attempts: tuple[int, int, int, int] = (0, 0, 0, 0)
    reason: str | None = None

    def read_property(self, name: str) -> str | None:
        """Value of a property; None if the message has none of that name. Raises UnreadableFactError if the value has
        more than 1,024 characters (MAX_TEXT).
        """
        return _check_length(name, self.properties.get(name))

    def fact(self, name: str) -> Value | None:
        """Value of the fact `name`, a key of ROUTE_FACTS; None is NULL. Raises UnreadableFactError if the value is a
        text of more than 1,024 characters (MAX_TEXT).
        """
        found = ROUTE_FACTS[name].read(self)
        return _check_length(name, found) if isinstance(found, str) else found

    @property
    def document(self) -> Any:
        """None, because routes do not read payloads."""
        return None

    def chosen(self, salt: str, share: float) -> bool:
        """True if the message belongs to a share (0 to 1) of all messages, by a hash of its key, or of its identity if
        it has no key: either all messages of a key belong to the share, or none. A larger share includes a smaller one
        with the same `salt`.
        """
        if share >= 1:
            return True
        text = f"{salt}\0{self.key or self.identity}".encode(errors="surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8).digest()) < share * 2**64


def _check_length(name: str, text: str | None) -> str | None:
    if text is not None and len(text) > MAX_TEXT:
        raise UnreadableFactError(name)
    return text


@dataclass(frozen=True, slots=True)
class RouteFact:
    """A fact that conditions may name. `meaning`: text for people; `read`: gives its value, None for NULL."""

    kind: ValueKind
    meaning: str
    read: Callable[[RouteFacts], Value | None]


def _attempts(index: int) -> Callable[[RouteFacts], float]:
    return lambda facts: float(facts.attempts[index])


# fmt: off
ROUTE_FACTS: Final[dict[str, RouteFact]] = {
    "key": RouteFact(ValueKind.TEXT, "message key", lambda facts: facts.key or None),
    "tenant": RouteFact(ValueKind.TEXT, "value of fair_by, (none) where it is missing", lambda facts: facts.tenant),
    "level": RouteFact(ValueKind.TEXT, "level it is in, or is sent to", lambda facts: facts.level.value),
    "state": RouteFact(ValueKind.TEXT, "ready, retrying, pending or blocking", lambda facts: facts.state.value),
    "attempts": RouteFact(ValueKind.NUMBER, "attempts of all states", lambda facts: float(sum(facts.attempts))),
    "attempts_retrying": RouteFact(ValueKind.NUMBER, "failed handler runs", _attempts(0)),
    "attempts_pending": RouteFact(ValueKind.NUMBER, "waits for a rate", _attempts(1)),
    "attempts_blocking": RouteFact(ValueKind.NUMBER, "waits for a quota", _attempts(2)),
    "attempts_backup": RouteFact(ValueKind.NUMBER, "failed runs in a backup level", _attempts(3)),
    "reason": RouteFact(ValueKind.TEXT, "why a worker moved it last", lambda facts: facts.reason),
    "payload_size": RouteFact(ValueKind.NUMBER, "bytes of payload", lambda facts: float(facts.size)),
}
# fmt: on
_VOCABULARY: Final = Vocabulary(
    {name: fact.kind for name, fact in ROUTE_FACTS.items()}, payload=False, hidden=RESERVED_PREFIX
)


@lru_cache(maxsize=1024)  # lint asks again and again
def parse_condition(text: str) -> Node:
    """Syntax tree of a route condition. Raises ConditionError with every finding, each with its place."""
    if len(text) > MAX_CONDITION:
        detail = f"{len(text):,} characters; at most {MAX_CONDITION:,} are read"
        issue = SyntaxIssue(MAX_CONDITION, 1, "K551", "a condition beyond the limits", detail)
        raise ConditionError(*diagnostics(text, [issue]))
    tree = parse_expression(text)
    from kodoctl.expressions.compiler import Compiler

    return Compiler(text, None, _VOCABULARY).condition(tree)

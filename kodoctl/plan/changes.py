"""Changes of a plan, from `Create` to `Forget`: a small closed set of frozen values.

Use `match` with `assert_never` on `Change`; never compare action names as text. A reason explains, it never decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, assert_never

from kodoctl.errors import Diagnostic, Where
from kodoctl.topology.resources import Address, Resource


class Action(StrEnum):
    """The verbs of the plan, with the symbol people read."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ADOPT = "adopt"
    FORGET = "forget"

    @property
    def symbol(self) -> str:
        """`+ ~ - ○ .`"""
        return {"create": "+", "update": "~", "delete": "-", "adopt": "○", "forget": "."}[self.value]


class Origin(StrEnum):
    """Origin of a change, seen from a git revision: the edits since, drift of the cluster, or both."""

    EDIT = "edit"
    DRIFT = "drift"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Effective:
    """The value that counts and the level it comes from: topic, namespace, broker, or unknown."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One changed field: `partitions`, `policies.<name>`, `missing_on`, `actions`, `definition`, `marker`,
    `delayed_delivery`.

    None is "not set". `effective_before`/`effective_after` say what counts then, for policies.
    """

    name: str
    before: Any
    after: Any
    effective_before: Effective | None = None
    effective_after: Effective | None = None

    @property
    def policy(self) -> str | None:
        """The policy's name, None for other fields."""
        return self.name.removeprefix("policies.") if self.name.startswith("policies.") else None


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """Common attributes of all changes, besides their values."""

    owner: str
    reason: str = ""
    where: Where | None = None
    dangers: tuple[Diagnostic, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict, compare=False)
    origin: Origin | None = None  # None: nobody asked
    drifted: tuple[str, ...] = ()  # fields that are not as the file said before, whoever edits them now


@dataclass(frozen=True, slots=True)
class Create:
    """The object is absent and declared."""

    after: Resource
    about: ChangeContext

    @property
    def address(self) -> Address:
        """The object's address."""
        return self.after.address


@dataclass(frozen=True, slots=True)
class Update:
    """The object is ours and differs. `unload`: a field only takes effect once the topic is unloaded."""

    before: Resource
    after: Resource
    fields: tuple[FieldChange, ...]
    about: ChangeContext
    unload: bool = False
    adopting: bool = False  # it is nobody's yet: needs --adopt, because somebody set what this would change

    @property
    def address(self) -> Address:
        """The object's address."""
        return self.after.address


@dataclass(frozen=True, slots=True)
class Delete:
    """The object is ours, was created by us (or is named in allow_destroy), and no file declares it."""

    before: Resource
    about: ChangeContext

    @property
    def address(self) -> Address:
        """The object's address."""
        return self.before.address


@dataclass(frozen=True, slots=True)
class Adopt:
    """A live object that nobody owns, or that is taken over, becomes ours: marker and ledger only."""

    before: Resource
    about: ChangeContext
    taken_from: str | None = None

    @property
    def address(self) -> Address:
        """The object's address."""
        return self.before.address


@dataclass(frozen=True, slots=True)
class Forget:
    """The object leaves our ownership untouched. `before` None: it is not there any more."""

    address: Address
    before: Resource | None
    about: ChangeContext


Change = Create | Update | Delete | Adopt | Forget


def action_of(change: Change) -> Action:
    """The verb of a change."""
    match change:
        case Create():
            return Action.CREATE
        case Update():
            return Action.UPDATE
        case Delete():
            return Action.DELETE
        case Adopt():
            return Action.ADOPT
        case Forget():
            return Action.FORGET
        case _:
            assert_never(change)

"""Changes of a plan, from `Create` to `Forget`: a small closed set of frozen values.

Use `match` with `assert_never` on `Change`; never compare action names as text. A reason explains, it never decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, assert_never

from kodoctl.documents.plan_actions import POLICY_PREFIX, Action
from kodoctl.topology.resources import Address, NamespaceResource, Resource, TopicResource

if TYPE_CHECKING:
    from kodoctl.errors import Diagnostic, Where
    from kodoctl.topology.model.policies import PolicyValue


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


FieldName = Literal["partitions", "missing_partitions", "missing_on", "actions", "definition", "delayed_delivery"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One changed field of a resource that is no policy. `missing_partitions` of a topic and `missing_on` of a
    subscription are partitions without it; `delayed_delivery` is a value under which delivery stalls.
    """

    name: FieldName
    before: Any
    after: Any

    @property
    def label(self) -> str:
        """The field's name in messages."""
        return self.name


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """One changed policy of a topic or a namespace; None is "not set". `effective_before` and `effective_after`
    are the values that apply then; None: unknown.
    """

    policy: str
    before: PolicyValue | None
    after: PolicyValue | None
    effective_before: Effective | None = None
    effective_after: Effective | None = None

    @property
    def name(self) -> str:
        """The field's name in JSON, where policies are members of `policies`."""
        return f"{POLICY_PREFIX}{self.policy}"

    @property
    def label(self) -> str:
        """The policy's name in messages."""
        return self.policy

    def counting(self, *, after: bool) -> PolicyValue | None:
        """The value that counts before or after the change; None is Pulsar's default."""
        effective = self.effective_after if after else self.effective_before
        if effective is not None:
            return effective.value
        return self.after if after else self.before


FieldUpdate = FieldChange | PolicyChange


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

    @property
    def policy_changes(self) -> tuple[PolicyChange, ...]:
        """The policies that a topic or a namespace is created with."""
        policies = self.after.policies if isinstance(self.after, TopicResource | NamespaceResource) else {}
        return tuple(PolicyChange(name, None, value) for name, value in policies.items())


@dataclass(frozen=True, slots=True)
class Update:
    """The object is ours and differs. `unload`: a field only takes effect once the topic is unloaded."""

    before: Resource
    after: Resource
    fields: tuple[FieldUpdate, ...]
    about: ChangeContext
    unload: bool = False
    adopting: bool = False  # it is nobody's yet: needs --adopt, because somebody set what this would change

    @property
    def address(self) -> Address:
        """The object's address."""
        return self.after.address

    @property
    def policy_changes(self) -> tuple[PolicyChange, ...]:
        """The policies among the fields."""
        return tuple(field for field in self.fields if isinstance(field, PolicyChange))

    @property
    def granted_actions(self) -> frozenset[str]:
        """The actions that a role has after the update of its grant."""
        changed = next(field for field in self.fields if isinstance(field, FieldChange) and field.name == "actions")
        return frozenset(changed.after)


@dataclass(frozen=True, slots=True)
class Delete:
    """The object is ours, was created by us (or is named in allow_destroy), and no file declares it."""

    before: Resource
    about: ChangeContext

    @property
    def address(self) -> Address:
        """The object's address."""
        return self.before.address

    @property
    def granted_actions(self) -> frozenset[str]:
        """The actions that a role has after its grant is deleted: none."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class Adopt:
    """A live object without an owner, or one that is taken over, becomes ours: marker and ledger only."""

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


def with_context(change: Change, **attributes: Any) -> Change:
    """The change with other attributes of its context."""
    return replace(change, about=replace(change.about, **attributes))


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

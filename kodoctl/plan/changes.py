"""Changes of a plan, from `Create` to `Forget`: a small closed set of frozen values.

Use `match` with `assert_never` on `Change`; never compare action names as text. A `reason` is text for people: no
decision depends on it.
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
    """Origin of a change, against a git revision: edits of the files since then, drift of the cluster, or both. An
    older edit that was never applied looks like drift.
    """

    EDIT = "edit"
    DRIFT = "drift"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Effective:
    """The value of a policy that applies to an object, and `source`, the level that sets it: `topic`, `namespace` or
    `broker`; `broker default`: no level is known to set it, and `value` is None.
    """

    value: Any
    source: str


FieldName = Literal[
    "partitions", "missing_partitions", "missing_on", "actions", "definition", "delayed_delivery", "tables",
    "operations", "via_root", "package", "class", "output", "parallelism", "config", "secrets", "settings", "cpu", "memory", "disk",
    "clusters", "admin_roles", "service_url", "service_url_tls", "broker_service_url", "broker_service_url_tls",
    "publish_rate", "dispatch_rate", "brokers", "namespaces", "primary", "secondary", "min_available",
    "usage_threshold",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One changed field of a resource, other than a policy. Two fields of a topic and one of a subscription repair it:
    `missing_partitions` has as `before` the numbers of the partitions that do not exist, `missing_on` those of the
    partitions without the subscription, and () as `after`; `delayed_delivery` ("set", then None) removes a value of the
    topic under which delivery stalls. Functions and connectors have the fields from `package` to `disk` in `FieldName`;
    objects of the whole cluster those after `disk`, and `settings`. The `package` before is "" if it is not known.
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
    """One changed policy of a topic or a namespace; None is "not set". `effective_before` and `effective_after` are the
    values that apply before and after the change, whatever level sets them; None: unknown.
    """

    policy: str
    before: PolicyValue | None
    after: PolicyValue | None
    effective_before: Effective | None = None
    effective_after: Effective | None = None

    @property
    def name(self) -> str:
        """The field's name in JSON, `policies.POLICY`."""
        return f"{POLICY_PREFIX}{self.policy}"

    @property
    def label(self) -> str:
        """The policy's name in messages."""
        return self.policy

    def counting(self, *, after: bool) -> PolicyValue | None:
        """The value that applies after the change, or before it (`after` False): the effective value if there is an
        `Effective`, else the value that is set on the object itself. None: no value is known, so that a default of the
        broker applies.
        """
        effective = self.effective_after if after else self.effective_before
        if effective is not None:
            return effective.value
        return self.after if after else self.before


FieldUpdate = FieldChange | PolicyChange


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """Context that each change has as `about`. `owner`: name of the topology; `reason`: text for people; `where`: place
    of the object in its file, None if no file declares it, or the change is not of a file; `dangers`: findings about
    this change alone, of which an error refuses the plan; `evidence`: an `EvidenceRow` as JSON, a `SlotEvidence` for a
    replication slot, a `FunctionUse` for a function (`FunctionEvidence` for its deletion, if its inputs could be read);
    {} if nothing was read. `origin` and `drifted` are as in `ChangeFacts`.
    """

    owner: str
    reason: str = ""
    where: Where | None = None
    dangers: tuple[Diagnostic, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict, compare=False)
    origin: Origin | None = None  # None: nobody asked
    drifted: tuple[str, ...] = ()  # fields that are not as the file said before, whoever edits them now


@dataclass(frozen=True, slots=True)
class Create:
    """Change that creates an object which does not exist: it is declared, or restored by an undo."""

    after: Resource
    about: ChangeContext

    @property
    def address(self) -> Address:
        """The object's address."""
        return self.after.address

    @property
    def policy_changes(self) -> tuple[PolicyChange, ...]:
        """The policies that a topic or a namespace is created with; () for other objects."""
        policies = self.after.policies if isinstance(self.after, TopicResource | NamespaceResource) else {}
        return tuple(PolicyChange(name, None, value) for name, value in policies.items())


@dataclass(frozen=True, slots=True)
class Update:
    """Change of an object that exists and differs in `fields`. `unload`: an apply has to unload the topic as well, so
    that a field takes effect; `adopting`: nobody owns the object yet, so that an `Adopt` comes with the update, and the
    plan needs `--adopt` if the update does more than repair (`HEALING`).
    """

    before: Resource
    after: Resource
    fields: tuple[FieldUpdate, ...]
    about: ChangeContext
    unload: bool = False
    adopting: bool = False  # it is nobody's yet, and somebody set what this would change

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
        """The actions that a role has after the update of its grant. Only for an update of a grant."""
        changed = next(field for field in self.fields if isinstance(field, FieldChange) and field.name == "actions")
        return frozenset(changed.after)


@dataclass(frozen=True, slots=True)
class Delete:
    """Change that deletes an object of a topology, with its data: no file declares the object any more, or a destroy or
    an undo removes it. An object that was adopted, other than a grant, is deleted only if it is named for that
    (`Allowances`).
    """

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
    """Change by which a topology becomes the owner of a live object: an apply writes only the object's marker (the
    property that names its owner), if its kind has one, and the ledgers. `taken_from`: the other topology that owned
    the object; None: none did.
    """

    before: Resource
    about: ChangeContext
    taken_from: str | None = None

    @property
    def address(self) -> Address:
        """The object's address."""
        return self.before.address


@dataclass(frozen=True, slots=True)
class Forget:
    """Change by which a topology gives up an object, which stays as it is: an apply removes only the object's marker
    and its entry in the ledger; only the entry if `before` is None: then the topology's object does not exist any more,
    and one of that name, if there is one, belongs to another topology or to nobody.
    """

    address: Address
    before: Resource | None
    about: ChangeContext


Change = Create | Update | Delete | Adopt | Forget


def with_context(change: Change, **attributes: Any) -> Change:
    """Returns a copy of the change in which the attributes given by name replace those of its `ChangeContext`."""
    return replace(change, about=replace(change.about, **attributes))


def action_of(change: Change) -> Action:
    """Verb of a change, as plans print it."""
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

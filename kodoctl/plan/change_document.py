"""JSON of changes and findings, as types: plan files, journals and views of plans contain it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from kodoctl.errors import Where
from kodoctl.topology.json_forms import DescribedBy, FormOf, Listed
from kodoctl.topology.resource_json import AnyResource

Json = dict[str, Any]
FilePosition = Annotated[list[Any], FormOf(Annotated[Where, Listed])]
"""File, line and column; 0: the file as a whole."""
Code = Annotated[str, DescribedBy(Annotated[str, Field(pattern="^K[0-9]{3}$")])]
ResourceRow = Annotated[Json, FormOf(AnyResource)]


class RemedyRow(TypedDict):
    """The flag that allows a refused change. `value`: null for a flag that takes none."""

    flag: str
    value: str | None


class FindingRow(TypedDict):
    """A finding. `remedy`: the flag that allows the change, absent if no flag does. `detail` names that flag, too,
    mostly in its last line.
    """

    severity: Literal["error", "warning", "note"]
    code: Code
    summary: str
    detail: str
    where: FilePosition | None
    remedy: NotRequired[RemedyRow]


EffectiveValue = TypedDict("EffectiveValue", {"value": Any, "from": str})
"""The value of a policy that applies to an object, and `from`, the level that sets it, as in `changes.Effective`."""


class FieldRow(TypedDict):
    """A changed field. `name`: that of a policy is `policies.NAME`. Null is "not set". Only a policy may have the
    effective values, the values that apply whatever level sets them; absent if they are not known.
    """

    name: str
    before: Any
    after: Any
    effective_before: NotRequired[EffectiveValue]
    effective_after: NotRequired[EffectiveValue]


class NoEvidence(TypedDict):
    """Nothing was read."""


class EvidenceRow(TypedDict):
    """Use and data of an object when the plan was made. `entries`, `bytes`: its backlog, of a topic that of the
    subscription with the largest; `messages`: number of messages in these entries, null if the backlog is empty;
    `messages_at_least`: there may be more, because the broker stopped counting early; `oldest`, `last_publish`: publish
    times in ms since the epoch, of the oldest unread message (null: none or unknown) and of the topic's last one (0:
    never, or the object is no topic).
    """

    entries: int
    messages: int | None
    messages_at_least: bool
    bytes: int
    oldest: int | None
    clients: list[str]
    last_publish: int


class SlotEvidence(TypedDict):
    """Use of a replication slot when the plan was made. `active_pid`: null without a reader; `confirmed`: position in
    the WAL up to which changes are confirmed, "" if there never was a reader; `unconfirmed_bytes`: WAL since then;
    `retained_bytes`: WAL that the server keeps for the slot; `lost`: the server removed WAL that the slot needs.
    """

    plugin: str
    active_pid: int | None
    confirmed: str
    unconfirmed_bytes: int
    retained_bytes: int
    lost: bool


class FunctionUse(TypedDict):
    """Use of a function when the plan was made. `instances`, `running`: numbers of all instances and of those that run,
    null if the worker did not answer; `error`: error text of an instance that does not run, "" for none; `cleans_up`:
    its subscription is deleted with it; `has_foreign_options`: its runtime options leave no room for a marker. A
    deletion also has the `EvidenceRow` of its subscription, if all of its inputs could be read.
    """

    instances: int | None
    running: int | None
    error: str
    cleans_up: bool
    has_foreign_options: bool


class FunctionEvidence(FunctionUse, EvidenceRow):
    """Use of a function, and the backlog of its subscription on all of its inputs."""


class ChangeFacts(TypedDict):
    """Facts of every change, besides its action and its resources. `origin`: the source of the change, judged against a
    git revision: an edit of the file, drift on the cluster, or both; null if the plan was compared with no revision.
    `drifted`: names of the fields that were not as the file said at that revision.
    """

    address: str
    owner: str
    reason: str
    where: FilePosition | None
    dangers: list[FindingRow]
    evidence: Annotated[Json, DescribedBy(EvidenceRow | SlotEvidence | FunctionUse | FunctionEvidence | NoEvidence)]
    origin: Literal["edit", "drift", "both"] | None
    drifted: list[str]


class CreateRow(ChangeFacts):
    """An object that is created."""

    action: Literal["create"]
    before: None
    after: ResourceRow


class UpdateRow(ChangeFacts):
    """An object that is updated. `unload`: an apply also unloads its topic once, so that the update takes effect;
    `adopting`: nobody owned the object so far.
    """

    action: Literal["update"]
    before: ResourceRow
    after: ResourceRow
    fields: list[FieldRow]
    unload: bool
    adopting: bool


class DeleteRow(ChangeFacts):
    """An object that is deleted."""

    action: Literal["delete"]
    before: ResourceRow
    after: None


class AdoptRow(ChangeFacts):
    """An object that gets an owner. `taken_from`: the other topology that it is taken from, null if from none."""

    action: Literal["adopt"]
    before: ResourceRow
    after: None
    taken_from: str | None


class ForgetRow(ChangeFacts):
    """An object that loses its owner and stays. `before`: null if the object is gone, or no longer the owner's."""

    action: Literal["forget"]
    before: ResourceRow | None
    after: None


ChangeRow = Annotated[CreateRow | UpdateRow | DeleteRow | AdoptRow | ForgetRow, Field(discriminator="action")]
"""A change of one object; `before` and `after` are whole resources with their `kind`."""

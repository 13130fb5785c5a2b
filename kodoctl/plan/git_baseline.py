"""Comparison of a plan with a git revision (K407): changes by the edits under review, and manual ones on the
cluster.

Three sides: the files now, the files at the git revision, and the live cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from kodoctl.errors import Diagnostic, warning
from kodoctl.plan.changes import (
    Adopt,
    Change,
    Create,
    Delete,
    FieldUpdate,
    Forget,
    Origin,
    PolicyChange,
    Update,
    with_context,
)
from kodoctl.plan.field_diff import ALWAYS_SET, NEVER_UNSET, function_value, normalize
from kodoctl.text.formatting import many
from kodoctl.topology.resources import (
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PlatformResource,
    PublicationResource,
    SchemaResource,
    TopicResource,
)

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired, DesiredObject

K407 = "changes that these edits do not make"
_SHOWN = 3  # addresses named, the plan shows all


@dataclass(frozen=True, slots=True)
class Baseline:
    """A git revision of the files. `ref`: as typed; `commit`: its hash; `then`: the declared objects at that commit."""

    ref: str
    commit: str
    then: Desired


def with_origins(changes: Iterable[Change], now: Desired, then: Desired) -> tuple[Change, ...]:
    """Returns the changes, each with its `origin` and `drifted`, the fields that the edits do not explain, or only in
    part; () unless it is an update. `now`, `then`: the declared objects now, and at the git revision. An edit from
    before the revision that was never applied counts as drift.
    """
    found = []
    for change in changes:
        origin, drifted = _origin(change, now.objects.get(change.address), then.objects.get(change.address))
        found.append(with_context(change, origin=origin, drifted=drifted))
    return tuple(found)


def unedited_warning(changes: Iterable[Change], against: Baseline) -> Iterator[Diagnostic]:
    """Yields one warning (K407) about all changes that the edits since the revision do not explain, or only in part, by
    the origins that `with_origins` gave them; nothing if there is none.
    """
    found = [change for change in changes if change.about.origin is not None and change.about.origin is not Origin.EDIT]
    if not found:
        return
    addresses = list(dict.fromkeys(change.address for change in found))
    shown = ", ".join(addresses[:_SHOWN])
    more = f" and {len(addresses) - _SHOWN} more" if len(addresses) > _SHOWN else ""
    detail = (
        f"{many(len(addresses), 'object')} would change beyond what was edited since {against.ref}: {shown}{more}; somebody"
        " changed the cluster by hand, or an earlier edit was never applied: approve them as such, or apply"
        f" {against.ref} first"
    )
    yield warning("K407", K407, detail)


def _origin(change: Change, now: DesiredObject | None, then: DesiredObject | None) -> tuple[Origin, tuple[str, ...]]:
    match change:
        case Update(fields=fields):
            return _of_fields(fields, now, then)
        case Create(after=after):  # declared before as well, and not there: it drifted
            edited = then is None or after != then.resource
            return (Origin.DRIFT if not edited else Origin.EDIT if then is None else Origin.BOTH), ()
        case Adopt():
            return (Origin.EDIT if then is None or now is None or now.owner != then.owner else Origin.DRIFT), ()
        case Delete() | Forget():
            return (Origin.EDIT if then is not None and now is None else Origin.DRIFT), ()
        case _:
            assert_never(change)


def _of_fields(
    fields: tuple[FieldUpdate, ...], now: DesiredObject | None, then: DesiredObject | None
) -> tuple[Origin, tuple[str, ...]]:
    """The origin of a change, and its fields that drifted, judged field by field. An edited field whose live
    value is the file's earlier value is an edit. A field that was not edited is drift. An edited field with a
    third live value is both.
    """
    if then is None and now is not None:
        return Origin.EDIT, ()
    origins = {field.name: _of_field(field, now, then) for field in fields}
    drifted = tuple(name for name, origin in origins.items() if origin is not Origin.EDIT)
    found = set(origins.values())
    return (found.pop() if len(found) == 1 else Origin.BOTH), drifted


def _of_field(field: FieldUpdate, now: DesiredObject | None, then: DesiredObject | None) -> Origin:
    before, after = _field_value(then, field), _field_value(now, field)
    if then and now and isinstance(field, PolicyChange) and field.policy in then.ignore - now.ignore:
        return Origin.EDIT  # it was somebody else's so far, and is the file's from now on
    if before == after:
        return Origin.DRIFT
    if isinstance(field.before, frozenset):  # a role may have more from others
        return Origin.EDIT if (before or frozenset()) <= field.before else Origin.BOTH
    return Origin.EDIT if before == normalize(field.before) or _is_unset(field, before, now) else Origin.BOTH


def _is_unset(field: FieldUpdate, before: Any, now: DesiredObject | None) -> bool:
    """True if the file had no value of a policy, and the cluster shows the value that an unset one has there."""
    if not isinstance(field, PolicyChange) or before is not None:
        return False
    of_namespace = now is not None and isinstance(now.resource, NamespaceResource)
    shown = (ALWAYS_SET if of_namespace else NEVER_UNSET).get(field.policy)
    return shown is not None and field.before == shown


def _field_value(wanted: DesiredObject | None, field: FieldUpdate) -> Any:
    """Value of a field in a file. None: no value, or the field is not for a file to declare
    (a half-made object is repaired).
    """
    match wanted.resource if wanted else None:
        case TopicResource() | NamespaceResource() as resource if isinstance(field, PolicyChange):
            return normalize(resource.policies.get(field.policy))
        case TopicResource(partitions=partitions) if field.name == "partitions":
            return partitions
        case GrantResource(actions=actions):
            return actions
        case SchemaResource(definition=definition):
            return definition
        case PublicationResource() as publication:
            return getattr(publication, field.name)
        case FunctionResource() as function:
            return function_value(function, field.name)
        case resource if isinstance(resource, PlatformResource):
            return getattr(resource, field.name)
        case _:
            return None

"""The plan's JSON form (`--out`, `--format json`): every view is drawn from it, and apply carries out exactly it.

The format is public API: `format_version` changes with every incompatible change, and an unknown one is refused, never
guessed at. The file is data: its own digest shows an edit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import ValidationError

from kodoctl import __version__
from kodoctl.documents.plan_actions import Action
from kodoctl.errors import InvalidFileError, KodoctlError, RefusedError, Where, error
from kodoctl.plan import serialization
from kodoctl.plan.diff import Allowances
from kodoctl.plan.ledger_plan import ConsumerChange, LedgerPlan
from kodoctl.plan.plan import Plan
from kodoctl.plan.targeting import TargetSummary
from kodoctl.pulsar.values.ledger import Source
from kodoctl.pulsar.values.live_objects import ClusterIdentity
from kodoctl.topology.names import InvalidNameError, NamespaceName
from kodoctl.topology.resource_json import (
    NAMESPACE,
    PLAIN,
    TEXT,
    TEXTS,
    Form,
    record_from_json,
    record_to_json,
    text,
)
from kodoctl.topology.target_flags import TargetFlags

if TYPE_CHECKING:
    from kodoctl.documents.plan_document import PlanAllowances, PlanDocument, PlanOwner, PlanPart, PlanSummary

FORMAT_VERSION: Final = 1
Json = dict[str, Any]
T = TypeVar("T")
_ALLOWANCES: Final = {"adopt": TEXTS, "destroy": TEXTS, "forget": TEXTS, "take_over": PLAIN, "share": PLAIN}
_OWNER: Final = {
    "name": TEXT,
    "namespace": NAMESPACE,
    "source": Form(lambda source: [source.origin, source.path], lambda value: Source(*value)),
    "environment": PLAIN,
    "digest": PLAIN,
    "namespace_keys": TEXTS,
    "grants": Form(
        lambda grants: {address: sorted(actions) for address, actions in sorted(grants.items())},
        lambda value: {address: frozenset(actions) for address, actions in value.items()},
    ),
    "consumers": PLAIN,
    "replaces": Form(list, lambda value: tuple(map(text, value))),
    "leaves": PLAIN,
    "partial": PLAIN,
}


def to_json(plan: Plan) -> PlanDocument:
    """The whole plan."""
    document: PlanDocument = {
        "format_version": FORMAT_VERSION,
        "kodoctl_version": __version__,
        "cluster": {"name": plan.identity.cluster, "uuids": dict(plan.identity.uuids)},
        "environment": plan.environment,
        "destroying": plan.destroying,
        "paths": list(plan.paths),
        "part": _portion_to_json(plan.portion),
        "against": {"ref": plan.against[0], "commit": plan.against[1]} if plan.against else None,
        "namespaces": [str(namespace) for namespace in plan.namespaces],
        "digest": plan.digest,
        "complete": not plan.unseen,
        "unseen": [str(namespace) for namespace in plan.unseen],
        "refused": plan.refused,
        "summary": summary(plan),
        "changes": [serialization.change_to_json(change) for change in plan.changes],
        "findings": [serialization.diagnostic_to_json(finding) for finding in plan.findings],
        "unmanaged": list(plan.unmanaged),
        "elsewhere": dict(plan.elsewhere),
        "consumer_changes": [
            {"subscription": change.subscription, "settings": [list(setting) for setting in change.settings]}
            for change in plan.consumer_changes
        ],
        "allowances": cast("PlanAllowances", record_to_json(plan.allowances, _ALLOWANCES)),
        "owners": [cast("PlanOwner", record_to_json(owner, _OWNER)) for owner in plan.owners],
        "fingerprints": dict(plan.fingerprints),
        "ledger_fingerprints": dict(plan.ledger_fingerprints),
    }
    document["seal"] = serialization.digest(document)
    return document


def summary(plan: Plan) -> PlanSummary:
    """Counts for one line."""
    counts = {action.value: plan.count(action) for action in Action}
    return cast("PlanSummary", counts | {"unchanged": plan.unchanged})


def dumps(plan: Plan) -> str:
    """The plan file's text."""
    return json.dumps(to_json(plan), indent=1)


def loads(text: str, file: str) -> Plan:
    """A plan file's plan. Raises RefusedError for another format or an edited file, InvalidFileError for anything else."""
    return parsed(opened(text, file), file, from_json)


def opened(text: str, file: str) -> Json:
    """A plan file's document, of this format, unbroken and written by this kodoctl. Raises as `loads` does."""
    try:
        document: Json = json.loads(text)
        version, seal = document["format_version"], document.pop("seal", None)
        sealed = seal == serialization.digest(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidFileError(
            error("K530", "not a plan file", "write one with `kodoctl plan --out FILE`", Where(file))
        ) from None
    if "dead_topic" in document:
        detail = f"it is a recall plan: `kodoctl recall apply {file}` carries it out"
        raise InvalidFileError(error("K530", "not a plan file", detail, Where(file)))
    if version != FORMAT_VERSION:
        detail = f"it has format {version}, this kodoctl ({__version__}) reads {FORMAT_VERSION}: plan again with this kodoctl"
        raise RefusedError(error("K531", "plan of another kodoctl", detail, Where(file)))
    if not sealed:
        detail = "its content does not match its seal: it was edited or cut; plan again"
        raise RefusedError(error("K532", "plan file was changed", detail, Where(file)))
    if (made_by := document.get("kodoctl_version")) != __version__:
        detail = f"made by {made_by}, this is {__version__}: plan again with this kodoctl"
        raise RefusedError(error("K531", "plan of another kodoctl", detail, Where(file)))
    return document


def parsed(document: Json, file: str, read: Callable[[Json], T]) -> T:
    """The result of `read` on a document. Raises InvalidFileError if `read` fails."""
    try:
        return read(document)
    except (
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        InvalidNameError,
        ValidationError,
        KodoctlError,
    ) as problem:
        difference = (
            f"its seal is right, and this kodoctl ({__version__}) does not read it: {type(problem).__name__}: {problem}"
        )
        detail = f"{difference}\nit may be of another build of the same version: plan again"
        raise InvalidFileError(error("K530", "not a plan file", detail, Where(file))) from None


def from_json(document: Json) -> Plan:
    """The inverse of `to_json`. Raises the errors of its parts for anything else, and ValueError for a document
    with more keys than a plan.
    """
    plan = Plan(
        identity=ClusterIdentity(document["cluster"]["name"], document["cluster"]["uuids"]),
        environment=document["environment"],
        digest=document["digest"],
        namespaces=tuple(NamespaceName.parse(name) for name in document["namespaces"]),
        changes=tuple(serialization.change_from_json(change) for change in document["changes"]),
        owners=tuple(record_from_json(LedgerPlan, owner, _OWNER) for owner in document["owners"]),
        findings=tuple(serialization.diagnostic_from_json(finding) for finding in document["findings"]),
        unchanged=document["summary"]["unchanged"],
        unmanaged=tuple(document["unmanaged"]),
        elsewhere=document["elsewhere"],
        consumer_changes=tuple(
            ConsumerChange(
                change["subscription"], tuple((name, before, after) for name, before, after in change["settings"])
            )
            for change in document["consumer_changes"]
        ),
        fingerprints=document["fingerprints"],
        ledger_fingerprints=document["ledger_fingerprints"],
        allowances=record_from_json(Allowances, document["allowances"], _ALLOWANCES),
        destroying=document["destroying"],
        paths=tuple(document["paths"]),
        portion=_portion_from_json(document["part"]),
        unseen=tuple(NamespaceName.parse(name) for name in document["unseen"]),
        against=(document["against"]["ref"], document["against"]["commit"]) if document["against"] else None,
    )
    if {**to_json(plan), "seal": None} != {**document, "seal": None}:
        raise ValueError("it says something else than this plan would")
    return plan


def _portion_to_json(portion: TargetSummary | None) -> PlanPart | None:
    if portion is None:
        return None
    return {
        "targets": list(portion.selection.targets),
        "excludes": list(portion.selection.excludes),
        "taken_along": [{"address": address, "needed_by": cause} for address, cause in portion.along],
        "held_back": [{"address": address, "needs": cause} for address, cause in portion.held_back],
        "left_out": dict(portion.left_out),
    }


def _portion_from_json(document: Json | None) -> TargetSummary | None:
    if document is None:
        return None
    return TargetSummary(
        TargetFlags(tuple(document["targets"]), tuple(document["excludes"])),
        tuple((one["address"], one["needed_by"]) for one in document["taken_along"]),
        tuple((one["address"], one["needs"]) for one in document["held_back"]),
        document["left_out"],
    )

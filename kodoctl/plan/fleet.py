"""Plans of the one or several clusters (a fleet) that a command reaches, and their differences. Pure.

The plan file of several clusters contains the whole plan of each, bound to its cluster, under the name of its context.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodoctl import __version__
from kodoctl.documents.json_form import digest, form
from kodoctl.errors import Diagnostic, error
from kodoctl.plan import plan_file, serialization
from kodoctl.plan.changes import Delete
from kodoctl.plan.fleet_document import DifferingChange, FleetDifference, FleetDocument

if TYPE_CHECKING:
    from kodoctl.plan.plan import Plan

FORMAT_VERSION: Final = 1
ONLY: Final = ""
"""Context of the only cluster of a command, and of a plan file of one cluster, which does not name its context."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """One cluster, by the context that reaches it. `plan` None: the cluster could not be planned, and `problems` are
    the errors.
    """

    context: str
    plan: Plan | None
    problems: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Plans of the clusters, in the order in which the command names them."""

    members: tuple[Member, ...]

    @property
    def only(self) -> Plan | None:
        """The plan of a command that has one cluster (context `ONLY`); None for several contexts, or if the only
        cluster has no plan.
        """
        return self.plans.get(ONLY) if len(self.members) == 1 else None

    @property
    def plans(self) -> Mapping[str, Plan]:
        """Context -> plan, for the clusters that have one."""
        return {member.context: member.plan for member in self.members if member.plan is not None}

    @property
    def unreached(self) -> tuple[Member, ...]:
        """Members without a plan: their clusters could not be planned."""
        return tuple(member for member in self.members if member.plan is None)

    @property
    def refused(self) -> bool:
        """True if the plan of any cluster is refused. Then no plan of the fleet may be carried out. A cluster without a
        plan does not count: the others can be applied without it.
        """
        return any(plan.refused for plan in self.plans.values())

    @property
    def empty(self) -> bool:
        """True if no plan has a change, or there is no plan. Ledger entries may still have to be written."""
        return all(plan.empty for plan in self.plans.values())


def to_json(fleet: FleetPlan) -> FleetDocument:
    """The fleet as JSON: all plans, the problems of clusters without one, the differences, and the seal."""
    document: FleetDocument = {
        "format_version": FORMAT_VERSION,
        "kodoctl_version": __version__,
        "refused": fleet.refused,
        "clusters": [
            {
                "context": member.context,
                "plan": plan_file.to_json(member.plan) if member.plan is not None else None,
                "problems": [serialization.diagnostic_to_json(problem) for problem in member.problems],
            }
            for member in fleet.members
        ],
        "differences": list(differences(fleet.plans)),
        "deletes": any(isinstance(change, Delete) for plan in fleet.plans.values() for change in plan.changes),
    }
    document["seal"] = digest(document)
    return document


def alone(plan: Plan) -> FleetPlan:
    """Makes the fleet of one plan, for a command that has one cluster: its member has the context `ONLY`."""
    return FleetPlan((Member(ONLY, plan),))


def dumps(fleet: FleetPlan) -> str:
    """Text of the plan file: that of a single plan (`plan_file.dumps`) if the fleet is one cluster of the context
    `ONLY` and has its plan, else the JSON of the fleet.
    """
    return plan_file.dumps(fleet.only) if fleet.only is not None else json.dumps(to_json(fleet), indent=1)


def is_fleet(text: str) -> bool:
    """True if the text is a JSON object with the key `clusters`, as a plan file of several clusters is; False for any
    other text.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "clusters" in document


def loads(text: str, file: str) -> FleetPlan:
    """The plans in the text of a plan file; `file`: its path, for errors. Raises RefusedError for another version of
    the format or of kodoctl, or an edited file, InvalidFileError for any other fault.
    """
    if not is_fleet(text):
        return alone(plan_file.loads(text, file))
    return plan_file.parse_document(plan_file.open_document(text, file), file, _from_json)


def _from_json(document: Json) -> FleetPlan:
    values = form(FleetDocument).validate_python(document)
    return FleetPlan(
        tuple(
            Member(
                one["context"],
                plan_file.from_json(one["plan"]) if one["plan"] is not None else None,
                tuple(map(serialization.finding_of, one["problems"])),
            )
            for one in values["clusters"]
        )
    )


def differences(plans: Mapping[str, Plan]) -> Iterator[FleetDifference]:
    """Yields each object that does not have the same changes in all clusters, sorted by address, with its changes by
    context ([]: none there). Compared are only the action, the fields of an update (with their values before) and the
    object that a create makes.
    """
    found = {context: _by_address(plan) for context, plan in plans.items()}
    addresses = sorted({address for changes in found.values() for address in changes})
    for address in addresses:
        here = {context: changes.get(address, []) for context, changes in found.items()}
        if any(changes != next(iter(here.values())) for changes in here.values()):
            yield {"address": address, "clusters": here}


def _by_address(plan: Plan) -> Mapping[str, list[DifferingChange]]:
    changes: dict[str, list[DifferingChange]] = {}
    for change in plan.changes:
        document = serialization.change_to_json(change)
        made = document["after"] if document["action"] == "create" else None
        fields = document["fields"] if document["action"] == "update" else []
        differing: DifferingChange = {"action": document["action"], "fields": fields, "after": made}
        changes.setdefault(change.address, []).append(differing)
    return changes


def same_cluster(plans: Mapping[str, Plan]) -> Iterable[Diagnostic]:
    """Yields an error (K548) for each context whose cluster an earlier context reaches: the apply of that cluster would
    wait for itself. Two plans are of one cluster if its name is the same in both, and so are all known UUIDs of their
    Pulsar tenants; a plan without any UUID is not compared.
    """
    seen: dict[tuple[str, frozenset[tuple[str, str | None]]], str] = {}
    for context, plan in plans.items():
        known = frozenset((tenant, uuid) for tenant, uuid in plan.identity.uuids.items() if uuid is not None)
        first = seen.setdefault((plan.identity.cluster, known), context) if known else context
        if first != context:
            detail = f"{first} and {context} reach the cluster {plan.identity.cluster!r}: name it once"
            yield error("K548", "two contexts of one cluster", detail)

"""The plan's JSON form (`--out`, `--format json`): every view is rendered from it, and an apply carries out exactly it.

The format is public API: `format_version` changes with every incompatible change, and a file of an unknown version is
refused. The file contains its own digest (`seal`), which shows an edit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError

from kodoctl import __version__
from kodoctl.documents.json_form import digest, dump_values, form, reason, row_of
from kodoctl.documents.plan_actions import Action
from kodoctl.errors import InvalidFileError, KodoctlError, RefusedError, Where, error
from kodoctl.plan import serialization
from kodoctl.plan.plan import Plan
from kodoctl.plan.plan_document import PlanDocument, PlanPart, PlanSummary
from kodoctl.plan.targeting import TargetSummary
from kodoctl.pulsar.values.live_objects import ClusterIdentity
from kodoctl.topology.names import InvalidNameError
from kodoctl.topology.target_flags import TargetFlags

FORMAT_VERSION: Final = 1
Json = dict[str, Any]
T = TypeVar("T")
_SAME_NAME: Final = (
    "environment", "destroying", "paths", "namespaces", "digest", "unseen", "unmanaged", "elsewhere", "consumer_changes",
    "allowances", "owners", "fingerprints", "ledger_fingerprints",
)  # fmt: skip


def to_json(plan: Plan) -> PlanDocument:
    """The plan as JSON, with its seal."""
    values = row_of(
        PlanDocument,
        plan,
        format_version=FORMAT_VERSION,
        kodoctl_version=__version__,
        cluster={"name": plan.identity.cluster, "uuids": plan.identity.uuids},
        part=_portion_to_json(plan.portion),
        against={"ref": plan.against[0], "commit": plan.against[1]} if plan.against else None,
        complete=not plan.unseen,
        summary=summary(plan),
        changes=[serialization.change_values(change) for change in plan.changes],
        findings=[serialization.finding_values(finding) for finding in plan.findings],
    )
    document: PlanDocument = dump_values(PlanDocument, values)
    document["seal"] = digest(document)
    return document


def summary(plan: Plan) -> PlanSummary:
    """Numbers of changes by action, and of unchanged objects."""
    counts = {action.value: plan.count(action) for action in Action}
    return cast("PlanSummary", counts | {"unchanged": plan.unchanged})


def dumps(plan: Plan, *, indent: int | None = 1) -> str:
    """The plan as the JSON text of its file, with its seal; `loads` reads the text. `indent`: of each level, None for
    one line, which takes much less time.
    """
    return json.dumps(to_json(plan), indent=indent)


def loads(text: str, file: str) -> Plan:
    """The plan in the text of a plan file; `file`: its path, for errors. Raises RefusedError for another version of the
    format or of kodoctl, or an edited file, InvalidFileError for any other fault.
    """
    return parse_document(open_document(text, file), file, from_json)


def open_document(text: str, file: str) -> Json:
    """Parses the text of a plan file, checks its format, its seal and the version of kodoctl that made it, and returns
    the document without its seal. Raises as `loads` does.
    """
    try:
        document: Json = json.loads(text)
        version, seal = document["format_version"], document.pop("seal", None)
        sealed = seal == digest(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidFileError(
            error("K530", "not a plan file", "write one with `kodoctl plan --out FILE`", Where(file))
        ) from None
    if "dead_topic" in document:
        detail = f"it is a recall plan: `kodoctl recall apply {file}` carries it out"
        raise InvalidFileError(error("K530", "not a plan file", detail, Where(file)))
    if document.get("action") == "replay":
        detail = f"it is a replay plan: `kodoctl replay apply {file}` carries it out"
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


def parse_document(document: Json, file: str, read: Callable[[Json], T]) -> T:
    """Returns the result of `read` on a document. Raises InvalidFileError (K530) in place of each KodoctlError,
    ValueError, KeyError, TypeError and AttributeError of `read`. `file`: the document's path, for the error.
    """
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
        difference = f"its seal is right, and this kodoctl ({__version__}) does not read it: {reason(problem)}"
        detail = f"{difference}\nit may be of another build of the same version: plan again"
        raise InvalidFileError(error("K530", "not a plan file", detail, Where(file))) from None


def from_json(document: Json) -> Plan:
    """The inverse of `to_json`, for a document with or without its seal, which is not checked; the plan has no
    `reading`. Raises, for an invalid document, any of the errors that `parse_document` turns into an InvalidFileError;
    ValueError if the JSON of the plan differs from the document, such as in further keys.
    """
    values = form(PlanDocument).validate_python(document)
    same: Json = {name: tuple(found) if isinstance(found := values[name], list) else found for name in _SAME_NAME}
    plan = Plan(
        identity=ClusterIdentity(values["cluster"]["name"], values["cluster"]["uuids"]),
        changes=tuple(map(serialization.change_of, values["changes"])),
        findings=tuple(map(serialization.finding_of, values["findings"])),
        unchanged=values["summary"]["unchanged"],
        portion=_portion_from_json(values["part"]),
        against=(values["against"]["ref"], values["against"]["commit"]) if values["against"] else None,
        **same,
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

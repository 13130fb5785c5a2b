"""The recall plan's JSON form: format, schema and seal. Public API: `format_version` changes with every
incompatible change. Format 1 is a plan in one document. In format 2 the letters are in a table beside the
document (`kodoctl.recall.plan.letter_table`): the document has their number and the digest of their file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kodoctl import __version__
from kodoctl.documents.json_form import form, reason, seal_of
from kodoctl.documents.recall_document import AnyRecallPlan, RecallPlanDocument, RecallTableDocument
from kodoctl.errors import InvalidFileError, RefusedError, Where, error
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import (
    LetterRef,
    LetterTable,
    PlannedLetter,
    PlannedPartition,
    RecallAction,
    RecallPlan,
)

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import LetterFile, PlannedLetterRow, SettledLetter

DOCUMENT, WITH_TABLE = 1, 2
"""Format versions."""
FORMS: Final = {DOCUMENT: RecallPlanDocument, WITH_TABLE: RecallTableDocument}
_RENAMED: Final = {"source_topic": "dead_topic", "source_partitions": "dead_partitions"}
"""Keys of the fields of a plan that have another name in its JSON."""
_OPTIONAL: Final = frozenset({"lane", "landing"})  # keys that are left out if they are empty
HASH: Final = 12  # characters of the seal that people type
Json = dict[str, Any]


def to_json(plan: RecallPlan) -> AnyRecallPlan:
    """Converts a plan to its JSON document, with its seal: a hash of all other values, by which an edited file is
    refused. Of a plan with a table, the document has only a description of the table's file in place of the letters.
    """
    values: Json = {one.name: getattr(plan, one.name) for one in fields(plan) if one.name != "table"}
    values |= {
        "action": plan.action.value,
        "edit": None if plan.edit is None else dict(plan.edit),
        "lanes": [asdict(lane) for lane in plan.lanes],
        "letters": [_letter(one) for one in plan.letters] if plan.table is None else _table(plan.table),
        "settle": _dump_letters(plan.settle),
    }
    document: Any = {
        "format_version": DOCUMENT if plan.table is None else WITH_TABLE,
        "kodoctl_version": __version__,
        **{_RENAMED.get(name, name): value for name, value in values.items() if value or name not in _OPTIONAL},
    }
    document["seal"] = seal_of(document)
    sealed: AnyRecallPlan = document
    return sealed


def hash_of(document: AnyRecallPlan) -> str:
    """Short hash of a plan, for users to compare and type: the first 12 characters of its seal."""
    return document["seal"][:HASH]


def dumps(plan: RecallPlan) -> str:
    """Returns the text of a plan file, with its seal: JSON with one line for each key, and one for each item of a list
    that is the value of a key, so that people can read it. If the plan has a table, the text has none of the letters,
    only the name, the counts and the digest of the table's file, which belongs beside the plan file.
    """
    document = to_json(plan)
    lines = [f" {json.dumps(name)}: {_value(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
    return json.dumps(value)


def loads(text: str, file: str) -> RecallPlan:
    """Parses the text of a plan file, and checks its seal. `file`: its path; a table is looked for beside it later, and
    is not read here. Raises RefusedError for an unknown format or a seal that does not match, such as of an edited
    file; InvalidFileError for any other fault, such as a text that is no JSON or a replay plan.
    """
    try:
        document = json.loads(text)
        version, action = document["format_version"], document.get("action")
        _ = document["letters"] if action != "replay" else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        detail = "write one with `kodoctl recall plan --out FILE`"
        raise InvalidFileError(error("K558", "not a recall plan", detail, Where(file))) from None
    if action == "replay":
        detail = f"it is a replay plan: `kodoctl replay apply {file}` carries it out"
        raise InvalidFileError(error("K558", "not a recall plan", detail, Where(file)))
    if version not in (DOCUMENT, WITH_TABLE):
        detail = f"it has format {version}, this kodoctl ({__version__}) reads {DOCUMENT} and {WITH_TABLE}: use the kodoctl that wrote it"
        raise RefusedError(error("K559", "recall plan that cannot be carried out", detail, Where(file)))
    if document.get("seal") != seal_of(document):
        detail = "its content does not match its seal: it was edited or cut; plan again"
        raise RefusedError(error("K559", "recall plan that cannot be carried out", detail, Where(file)))
    try:
        form(FORMS[version]).validate_python(document, strict=True, extra="forbid")
        return _from_json(document) if version == DOCUMENT else _with_table(document, file)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise InvalidFileError(error("K558", "not a recall plan", reason(problem), Where(file))) from None


def _table(table: LetterTable) -> LetterFile:
    return {
        "file": table.name,
        "rows": table.rows,
        "letters": table.letters,
        "settled": table.settled,
        "by_lane": list(table.by_lane),
        "sha256": table.sha256,
    }


def _with_table(document: Json, file: str) -> RecallPlan:
    """A plan whose letters stay in their file, which has not been read yet."""
    letters = document["letters"]
    path = Path(file).with_name(letters["file"])
    counts = (letters["rows"], letters["letters"], letters["settled"], tuple(letters["by_lane"]))
    table = LetterTable(path, *counts, letters["sha256"])
    return replace(_from_json({**document, "letters": []}), table=table)


def _letter(one: PlannedLetter) -> PlannedLetterRow:
    return {
        "position": str(one.position),
        "published": one.published,
        "recall_id": one.recall_id,
        "digest": one.digest,
        "lane": one.lane,
        "number": one.number,
        "repeats": _dump_letters(one.repeats),
    }


def _dump_letters(letters: Iterable[LetterRef]) -> list[SettledLetter]:
    return [{"position": str(one.position), "published": one.published} for one in letters]


def _load_letters(letters: Iterable[Json]) -> tuple[LetterRef, ...]:
    return tuple(LetterRef(Position.parse(one["position"]), one["published"]) for one in letters)


def _from_json(document: Json) -> RecallPlan:
    lanes = document["lanes"]
    if any(not 0 <= one["lane"] < max(1, len(lanes)) for one in document["letters"]):
        raise ValueError("a letter goes to a lane that is not there")
    taken = {"format_version", "kodoctl_version", "seal", "action", "lanes", "letters", "settle"}
    names = {key: name for name, key in _RENAMED.items()}
    plain = {names.get(name, name): value for name, value in document.items() if name not in taken}
    return RecallPlan(
        action=RecallAction(document["action"]),
        lanes=tuple(PlannedPartition(**lane) for lane in document["lanes"]),
        letters=tuple(
            PlannedLetter(
                **{**one, "position": Position.parse(one["position"]), "repeats": _load_letters(one["repeats"])}
            )
            for one in document["letters"]
        ),
        settle=_load_letters(document["settle"]),
        **plain,
    )

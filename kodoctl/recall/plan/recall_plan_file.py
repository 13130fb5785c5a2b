"""The recall plan's JSON form: format, schema and seal. Public API: `format_version` changes with every
incompatible change. Format 1 is a plan in one document. In format 2 the letters are in a table beside the
document (`kodoctl.recall.plan.letter_table`): the document has their number and the digest of their file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kodoctl import __version__
from kodoctl.errors import InvalidFileError, RefusedError, Where, error
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import (
    MAX_LETTERS,
    LetterRef,
    LetterTable,
    PlannedLetter,
    PlannedPartition,
    RecallAction,
    RecallPlan,
)

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import (
        LetterFile,
        PlannedLetterRow,
        RecallPlanDocument,
        RecallTarget,
        SettledLetter,
    )

DOCUMENT, WITH_TABLE = 1, 2
"""Format versions."""
HASH: Final = 12  # characters of the seal that people type
_LOOKED_AT: Final = (
    100  # letters held against the schema: all of them would take half a minute, and reading them judges too
)
Json = dict[str, Any]

_TEXT: Final = {"type": "string"}
_MAYBE_TEXT: Final = {"type": ["string", "null"]}
_COUNT: Final = {"type": "integer", "minimum": 0}
_POSITION: Final = {"type": "string", "pattern": r"^-?\d+:-?\d+:\d+:-?\d+$"}
_COUNTS: Final = {"type": "object", "additionalProperties": _COUNT}


def _object(properties: Json, optional: frozenset[str] = frozenset()) -> Json:
    required = sorted(properties.keys() - optional)
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


_DATED: Final[Json] = {"type": "array", "items": _object({"position": _POSITION, "published": _COUNT})}
_TABLE: Final[Json] = _object({
    "file": {"type": "string", "pattern": r"^[^/\\]+$"}, "rows": _COUNT, "letters": _COUNT, "settled": _COUNT,
    "by_lane": {"type": "array", "items": _COUNT}, "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
})  # fmt: skip
SCHEMA: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A recall plan of kodoctl, format 1",
    **_object({
        "format_version": {"const": DOCUMENT},
        "kodoctl_version": _TEXT,
        "action": {"enum": [action.value for action in RecallAction]},
        "run": {"type": "string", "pattern": "^[0-9a-z-]{8,40}$"},
        "made_at": _COUNT,
        "cluster": _MAYBE_TEXT,
        "topology": _TEXT,
        "path": _TEXT,
        "environment": _MAYBE_TEXT,
        "topic": _TEXT,
        "subscription": _TEXT,
        "dead_topic": _TEXT,
        "dead_partitions": {"type": "integer", "minimum": 1},
        "holder": _TEXT,
        "where": _TEXT,
        "to": _MAYBE_TEXT,
        "limit": {"type": "integer", "minimum": 1},
        "again": {"type": "boolean"},
        "because": _TEXT,
        "edit": {"type": ["object", "null"]},
        "lanes": {"type": "array", "items": _object({
            "topic": _TEXT, "partition": _COUNT, "ready": {"type": "boolean"},
            "partitions": {"type": "integer", "minimum": 1},
        })},
        "letters": {"type": "array", "maxItems": MAX_LETTERS, "items": _object({
            "position": _POSITION, "published": _COUNT, "recall_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "digest": {"type": "string", "pattern": "^[0-9a-f]{32}$"}, "lane": _COUNT, "number": _COUNT,
            "repeats": _DATED,
        })},
        "settle": _DATED,
        "summary": _object({
            "read": _COUNT, "matched": _COUNT, "chosen": _COUNT, "by_reason": _COUNTS, "by_tenant": _COUNTS,
            "by_age": _COUNTS, "samples": {"type": "array", "items": {"type": "object"}}, "left_out": _COUNTS,
            "not_editable": _COUNTS,
            "by_cause": _COUNTS, "not_landed": {"type": "array", "items": _TEXT},
        }, frozenset({"by_cause", "not_landed"})),
        "lane": _TEXT,
        "landing": _TEXT,
        "seal": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    }, frozenset({"lane", "landing"})),
}  # fmt: skip
TABLE_SCHEMA: Final[Json] = {
    **SCHEMA,
    "title": "A recall plan of kodoctl, format 2: its letters are in a file beside it",
    "properties": {
        **SCHEMA["properties"], "format_version": {"const": WITH_TABLE}, "letters": _TABLE,
        "settle": {"type": "array", "maxItems": 0},
    },
}  # fmt: skip
"""JSON Schema of format 2."""


def to_json(plan: RecallPlan) -> RecallPlanDocument:
    """Converts a plan to its JSON document, with its seal."""
    document: RecallPlanDocument = {
        "format_version": DOCUMENT if plan.table is None else WITH_TABLE,
        "kodoctl_version": __version__,
        "action": plan.action.value,
        "run": plan.run,
        "made_at": plan.made_at,
        "cluster": plan.cluster,
        "topology": plan.topology,
        "path": plan.path,
        "environment": plan.environment,
        "topic": plan.topic,
        "subscription": plan.subscription,
        "dead_topic": plan.source_topic,
        "dead_partitions": plan.source_partitions,
        "holder": plan.holder,
        "where": plan.where,
        "to": plan.to,
        "limit": plan.limit,
        "again": plan.again,
        "because": plan.because,
        "edit": None if plan.edit is None else dict(plan.edit),
        "lanes": [cast("RecallTarget", asdict(lane)) for lane in plan.lanes],
        "letters": [_letter(one) for one in plan.letters] if plan.table is None else _table(plan.table),
        "settle": _dump_letters(plan.settle),
        "summary": plan.summary,
    }
    if plan.lane:
        document["lane"] = plan.lane
    if plan.landing:
        document["landing"] = plan.landing
    document["seal"] = seal_of(document)
    return document


def seal_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON without the seal."""
    bare = {name: value for name, value in document.items() if name != "seal"}
    return hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def hash_of(document: RecallPlanDocument) -> str:
    """Short hash of a plan, for users to compare and type."""
    return document["seal"][:HASH]


def dumps(plan: RecallPlan) -> str:
    """The text of a plan file: one line for each key and for each letter, so that people can read it."""
    document = to_json(plan)
    lines = [f" {json.dumps(name)}: {_value(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
    return json.dumps(value)


def loads(text: str, file: str) -> RecallPlan:
    """Parses the text of a plan file. `file`: its path; a table beside it is not read. Raises RefusedError for another
    format or an edited file, InvalidFileError for any other fault.
    """
    import jsonschema

    try:
        document = json.loads(text)
        version, _ = document["format_version"], document["letters"]
    except (ValueError, TypeError, KeyError, RecursionError):
        detail = "write one with `kodoctl recall plan --out FILE`"
        raise InvalidFileError(error("K558", "not a recall plan", detail, Where(file))) from None
    if version not in (DOCUMENT, WITH_TABLE):
        detail = f"it has format {version}, this kodoctl ({__version__}) reads {DOCUMENT} and {WITH_TABLE}: use the kodoctl that wrote it"
        raise RefusedError(error("K559", "recall plan that cannot be carried out", detail, Where(file)))
    if document.get("seal") != seal_of(document):
        detail = "its content does not match its seal: it was edited or cut; plan again"
        raise RefusedError(error("K559", "recall plan that cannot be carried out", detail, Where(file)))
    letters = document["letters"]
    head = {**document, "letters": letters[:_LOOKED_AT]} if isinstance(letters, list) else document
    schema = SCHEMA if version == DOCUMENT else TABLE_SCHEMA
    problem = next(iter(jsonschema.Draft202012Validator(schema).iter_errors(head)), None)
    if problem is not None:
        detail = f"{problem.json_path}: {problem.message}"[:300]
        raise InvalidFileError(error("K558", "not a recall plan", detail, Where(file)))
    try:
        return _from_json(document) if version == DOCUMENT else _with_table(document, file)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        detail = f"{type(problem).__name__}: {problem}"
        raise InvalidFileError(error("K558", "not a recall plan", detail, Where(file))) from None


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
    names = {"dead_topic": "source_topic", "dead_partitions": "source_partitions"}
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

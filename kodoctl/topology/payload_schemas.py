"""Payload schema files that a topology names: found and read within limits. Lint rules judge them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path as FilePath
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from kodoctl.topology.path_guard import why_outside_repository
from kodoctl.topology.yaml.nodes import MAX_BYTES, MAX_DEPTH, Node

if TYPE_CHECKING:
    from kodoctl.topology.model.topology import Topology


@dataclass(frozen=True, slots=True)
class PayloadFile:
    """The schema file of a ground topic. `type`: `json` or `avro`; `path`: joined with the folder of the topology file;
    `definition`: parsed JSON, None if `problem` says why it cannot be read, or if the file is `null`. Reading does not
    check that the JSON is a valid schema.
    """

    type: str
    path: FilePath
    definition: Any
    problem: str | None = None


def read_payloads(spec: Topology, folder: FilePath) -> dict[str, PayloadFile]:
    """Ground topic -> its schema file, for those that have one; each file is read once. Paths are relative to `folder`.
    Raises nothing for a file that cannot be read: the reason is in `problem`.
    """
    read: dict[tuple[str, str], PayloadFile] = {}
    found: dict[str, PayloadFile] = {}
    for name, ground in spec.topics.items():
        if (payload := ground.payload) is not None:
            key = (payload.type, payload.schema_file)
            if key not in read:
                read[key] = _read_payload(payload.type, FilePath(normpath(folder / payload.schema_file)), folder)
            found[name] = read[key]
    return found


def _read_payload(kind: str, path: FilePath, folder: FilePath) -> PayloadFile:
    try:
        if problem := why_outside_repository(folder, path):
            return PayloadFile(kind, path, None, problem)
        if not S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            return PayloadFile(kind, path, None, "it is not a regular file")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as failed:
        return PayloadFile(kind, path, None, failed.strerror or "it cannot be read")
    return payload_of(kind, path, data)


def payload_of(kind: str, path: FilePath, data: bytes) -> PayloadFile:
    """Parses a payload schema file's bytes as JSON, within the limits of a topology file (size and depth). A fault is
    in `problem` of the result. Does not check that the JSON is a valid schema of `kind`; takes NaN for a number, and
    the last one of two members with the same key.
    """
    if len(data) > MAX_BYTES:
        return PayloadFile(kind, path, None, "it is larger than 8 MiB")
    import json  # most files name no schema, and it takes 1 ms

    try:
        definition = json.loads(data)
    except RecursionError:
        return PayloadFile(kind, path, None, f"it is nested more than {MAX_DEPTH} levels deep")
    except ValueError as problem:
        return PayloadFile(kind, path, None, f"it is not JSON: {problem}")
    if _deeper_than(definition, MAX_DEPTH):
        return PayloadFile(kind, path, None, f"it is nested more than {MAX_DEPTH} levels deep")
    return PayloadFile(kind, path, definition)


def _deeper_than(value: Any, depth: int) -> bool:
    """True if a JSON value has more than `depth` levels of lists and objects; it does not recurse."""
    level = [value]
    for _ in range(depth + 1):
        level = [child for one in level if isinstance(one, dict | list) for child in _members(one)]
        if not level:
            return False
    return True


def _members(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def declared_payloads(root: Node | None) -> dict[str, tuple[str, str]]:
    """Ground topic -> (type, schema path as written) in a file without the overlays of its environments. Entries that
    are not valid are left out; {} for a file that cannot be parsed (`root` is None).
    """
    plain = root.plain() if root else None
    topics = plain.get("topics") if isinstance(plain, dict) else None
    found: dict[str, tuple[str, str]] = {}
    for name, ground in topics.items() if isinstance(topics, dict) else ():
        payload = ground.get("payload") if isinstance(ground, dict) else None
        if isinstance(payload, dict):
            kind, path = payload.get("type"), payload.get("schema")
            if isinstance(kind, str) and isinstance(path, str):
                found[name] = (kind, path)
    return found

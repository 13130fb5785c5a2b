# pure: every branch is tested
"""Changes of a topology between two revisions of its file, key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion

Json = dict[str, Any]
_ELSEWHERE: Final = {"version", "environments", "allow_destroy", "forget"}
"""Keys that declare nothing of the topology in its environment."""


def with_changes(document: Json, now: Sequence[Expansion], then: Sequence[Expansion], ref: str, commit: str) -> Json:
    """Returns the document of a catalogue with two keys more. `changes` of each topology: a list of [path, before,
    after], None on the side that lacks the key; None for a topology that is new. `against` of the document: `ref`,
    `commit` (its hash) and `removed`, name and file of each topology that is gone since. `now`: the topologies of the
    document; `then`: the topologies at the git revision `ref`. A topology is the same as the earlier one with its name,
    else as one with a name in its `formerly`.
    """
    earlier = {one.name: one for one in then}
    by_file = {one.topology.source.name: one for one in now}
    topologies, kept = [], set()
    for entry in document["topologies"]:
        names = [entry["name"], *entry["formerly"]]
        name = next((name for name in names if name in earlier), None)
        kept.add(name)
        changes = None if name is None else list(_changes(by_file[entry["file"]], earlier[name]))
        topologies.append({**entry, "changes": changes})
    removed = [{"name": one.name, "file": one.topology.source.name} for one in then if one.name not in kept]
    return {**document, "topologies": topologies, "against": {"ref": ref, "commit": commit, "removed": removed}}


def _changes(now: Expansion, then: Expansion) -> Iterator[list[Any]]:
    return _differences("", _declared(then), _declared(now))


def _declared(expansion: Expansion) -> Json:
    """Declarations of a file in its environment, and the payload schemas that it names."""
    spec = expansion.topology.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=_ELSEWHERE)
    for ground, payload in expansion.topology.payloads.items():
        spec["topics"][ground]["payload"]["definition"] = payload.definition
    return dict(spec)


def _differences(path: str, before: Any, after: Any) -> Iterator[list[Any]]:
    """Yields [path, before, after] of each value whose JSON differs. Maps are compared by key, other values as a whole;
    a map that is new or gone is one difference.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _differences(f"{path}.{key}" if path else str(key), before.get(key), after.get(key))
    elif json.dumps(before, sort_keys=True) != json.dumps(after, sort_keys=True):  # Python: true is 1, NaN not NaN
        yield [path, before, after]

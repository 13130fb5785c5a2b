"""Apply history of a namespace, read from the entries of its journal. Pure.

An entry is JSON with `kind`: `begin` and `end` of an apply, `before` and `after` each of its writes, `unlock` when a
lease was broken; others (the heartbeats of the lease) are ignored here. An apply without `end` was cut off.

The journal keeps everything for ever, and every client that may produce to its topic may write into it. So an invalid
entry is left out and reported, and the content of the others is shown, confirmed and judged anew before it is used. An
apply of a newer kodoctl is left out, too, and while it is the latest one, `last` means none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from kodoctl import __version__
from kodoctl.documents.json_form import reason, row_of
from kodoctl.errors import UsageError, error
from kodoctl.plan import serialization
from kodoctl.plan.changes import Change, action_of
from kodoctl.plan.history_document import ApplyRow
from kodoctl.pulsar.values import packed_text
from kodoctl.text.escaping import one_line
from kodoctl.topology.names import InvalidNameError, NamespaceName
from kodoctl.topology.units import LATEST

FORMAT_VERSION: Final = 1
MAX_PLAN: Final = 2 << 20  # bytes of a packed plan that an entry holds; a broker takes messages of 5 MiB
Json = dict[str, Any]


@dataclass(frozen=True)
class Applied:
    """One apply (or destroy, undo, forget) from a journal. `verb`: the command; `who`: the user as the command named
    them; `began`, `ended`: ms since the epoch, `ended` None if its end is not in the journal; `commit`: git commit;
    `digest`: first digits of the digest of the files, "" for a plan without files; `complete`: all changes were carried
    out; `total`: number of changes in the plan; `done`: changes that were carried out whole, in the order in which they
    began; `broken`: changes of which a write failed or has no end in the journal, once for each such write, with the
    reason: it may have happened. A change that did not begin is in neither.
    """

    id: str
    verb: str
    who: str
    began: int
    commit: str | None
    digest: str
    ledgers: Mapping[str, str | None] = field(repr=False)  # `namespace/name` -> the entry's text before
    packed: str | None = field(default=None, repr=False)  # the plan that was carried out
    ended: int | None = None
    complete: bool = False
    total: int = 0
    done: tuple[Change, ...] = ()
    broken: tuple[tuple[Change, str], ...] = ()

    @property
    def state(self) -> str:
        """`complete`; `incomplete` if a part was not done; `cut off` if its end is not in the journal, as for an apply
        that still runs.
        """
        return "cut off" if self.ended is None else "complete" if self.complete else "incomplete"


_Text = Annotated[str, Field(max_length=2_000)]
_Time = Annotated[int, Field(ge=0, le=LATEST)]


class _Entry(BaseModel):
    """Common field of all entries of kodoctl."""

    model_config = ConfigDict(strict=True, frozen=True)
    apply: Annotated[str, Field(pattern=r"^[0-9a-z-]{1,64}$")]


class _Begin(_Entry):
    v: Literal[1]
    at: _Time
    verb: _Text
    who: _Text
    commit: _Text | None
    plan: _Text
    changes: Annotated[int, Field(ge=0)]
    ledgers: dict[str, str | None]
    packed: Annotated[str, Field(max_length=MAX_PLAN)] | None


class _End(_Entry):
    at: _Time
    complete: bool


class _Step(_Entry):
    address: _Text
    action: _Text
    part: _Text

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of a write within its apply."""
        return self.address, self.action, self.part


class _Before(_Step):
    change: dict[str, Any]


class _After(_Step):
    status: _Text
    detail: _Text


@dataclass(frozen=True, slots=True)
class History:
    """Content of a journal: `applies`, oldest first, and `foreign`, a text for each invalid entry, which kodoctl did
    not write, and for each that begins an apply of a newer kodoctl (its further entries are ignored). `newer`: text
    about the last apply of a newer kodoctl that began after all of `applies`, "" if there is none.
    """

    applies: tuple[Applied, ...]
    foreign: tuple[str, ...] = ()
    newer: str = ""

    @property
    def latest(self) -> Applied | None:
        """The apply that began last; None if there was none, or if a newer kodoctl carried it out."""
        return self.applies[-1] if self.applies and not self.newer else None


@dataclass(slots=True)
class _Open:
    """An apply while its entries are read."""

    begin: _Begin
    end: _End | None = None
    changes: dict[tuple[str, str, str], Change] = field(default_factory=dict)
    results: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)


def read_history(entries: Iterable[Json]) -> History:
    """Every apply in the journal's entries, in the order in which they began there: the lease makes that order the true
    one, while the clocks of the users who applied may differ. Entries of several namespaces about the same apply, one
    journal after the other, are put together. An entry whose apply has no `begin` before it, or of a kind that is not
    known here, is ignored, and not `foreign`. Raises nothing for an invalid entry, or for the `begin` of a newer
    kodoctl: it becomes a text of `foreign`.
    """
    found: dict[str, _Open] = {}
    foreign, newer = [], ""
    for number, entry in enumerate(entries, 1):
        known = len(found)
        try:
            if text := _newer_begin(entry):
                newer = text
                foreign.append(f"entry {number} is left out: {text}")
            else:
                _take(found, entry)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidNameError) as problem:
            foreign.append(f"entry {number} is none of kodoctl's, and is left out: {reason(problem)}")
        if len(found) > known:
            newer = ""
    return History(tuple(_build_applied(name, one) for name, one in found.items()), tuple(foreign), newer)


def _newer_begin(entry: Json) -> str:
    """Text about the `begin` of an apply in a later format than this kodoctl reads; "" for any other entry."""
    version = entry.get("v")
    if entry.get("kind") != "begin" or not isinstance(version, int) or version <= FORMAT_VERSION:
        return ""
    name, number = one_line(entry.get("apply"), 64), one_line(version, 20)
    return f"apply {name} is of a newer kodoctl: it has format {number}, this kodoctl ({__version__}) reads {FORMAT_VERSION}"


def _take(found: dict[str, _Open], entry: Json) -> None:
    """Adds one entry to `found`. Raises ValueError, or an error of a damaged change, if this kodoctl did not
    write the entry.
    """
    name, kind = entry.get("apply"), entry.get("kind")
    if kind == "begin":
        begin = _Begin.model_validate(entry)
        for place in begin.ledgers:
            NamespaceName.parse(place.rpartition("/")[0])
        found.setdefault(begin.apply, _Open(begin))
        return
    one = found.get(name) if isinstance(name, str) else None
    if one is None:
        return
    match kind:
        case "end":
            one.end = _End.model_validate(entry)
        case "before":
            before = _Before.model_validate(entry)
            one.changes[before.key] = serialization.change_from_json(before.change)
        case "after":
            after = _After.model_validate(entry)
            one.results[after.key] = (after.status, after.detail)
        case _:
            pass  # of a later kodoctl


def _build_applied(name: str, one: _Open) -> Applied:
    begin, end = one.begin, one.end
    status = {key: one.results.get(key, ("unknown", "its end was never written down")) for key in one.changes}
    bad = {key: outcome for key, outcome in status.items() if outcome[0] != "done"}
    touched = {(address, action) for address, action, _ in bad}
    whole = {(key[0], key[1]): change for key, change in one.changes.items() if (key[0], key[1]) not in touched}
    return Applied(
        id=name,
        verb=begin.verb,
        who=begin.who,
        began=begin.at,
        commit=begin.commit,
        digest=begin.plan,
        ledgers=begin.ledgers,
        packed=begin.packed,
        ended=end.at if end else None,
        complete=bool(end and end.complete),
        total=begin.changes,
        done=tuple(whole.values()),
        broken=tuple(
            (one.changes[key], f"{outcome[0]}: {outcome[1]}" if outcome[1] else outcome[0])
            for key, outcome in bad.items()
        ),
    )


def find_apply(found: History, name: str, namespace: str) -> Applied:
    """The apply with the id `name`, else the only one whose id begins with `name`; the latest if `name` is `last`.
    `namespace`: its name, for the error. Raises UsageError (K424) if no apply fits, or several, or if `last` is of a
    newer kodoctl.
    """
    known = list(found.applies)
    if found.newer and (name == "last" or not known):
        onward = "use the newer one, or name an earlier apply by its id; instead of `apply --resume`, plan again"
        detail = f"the latest in {namespace}, {found.newer}\n{onward}"
        raise UsageError(error("K424", "apply not found", detail))
    fitting = known[-1:] if name == "last" else [one for one in known if one.id == name]
    fitting = fitting or [one for one in known if one.id.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if not known:
        detail = f"nothing has been applied in {namespace} yet: its journal is empty"
    else:
        begin = "several applies begin" if fitting else "no apply begins"
        detail = f"{begin} with {name!r}; the latest: {', '.join(one.id for one in known[-5:])}"
    raise UsageError(error("K424", "apply not found", detail))


# What a plan saw and meant: two plans that agree in it do the same to the same objects.
_BOUND_TO: Final = ("cluster", "environment", "destroying", "digest", "fingerprints", "ledger_fingerprints")


def earlier_apply(found: Iterable[Applied], plan: Mapping[str, Any]) -> Applied | None:
    """The latest apply whose plan agrees with `plan` (JSON) in cluster, environment, `destroying`, digest and the
    fingerprints of objects and ledger entries; None if there is none. An apply whose plan the journal does not have,
    because it was too large, never agrees. `found`: applies, oldest first.
    """
    return next(
        (one for one in reversed(tuple(found)) if _binding_values(_document(one)) == _binding_values(plan)), None
    )


def _binding_values(plan: Mapping[str, Any]) -> list[Any]:
    return [plan.get(key) for key in _BOUND_TO]


def _document(one: Applied) -> Json:
    try:
        return parse(unpack(one.packed).encode()) if one.packed is not None else {}
    except ValueError:
        return {}


def pack(document: str) -> str | None:
    """The text of a plan, compressed for an entry; None if the compressed text is longer than MAX_PLAN (2 MiB)."""
    packed = packed_text.pack(document.encode(), 6)
    return packed if len(packed) <= MAX_PLAN else None


def unpack(packed: str) -> str:
    """The inverse of `pack`. Raises ValueError for any other text, and for a document that is too large unpacked
    (MAX_UNPACKED of `packed_text`).
    """
    return packed_text.unpack(packed).decode()


def step_json(change: Change, part: str) -> Json:
    """Key of a write within its apply, as JSON: `address`, `action` and `part`. `part`: value of its `UpdatePhase`."""
    return {"address": change.address, "action": action_of(change).value, "part": part}


def to_json(one: Applied) -> ApplyRow:
    """An apply as JSON."""
    return row_of(
        ApplyRow,
        one,
        plan=one.digest,
        changes=one.total,
        done=[serialization.change_to_json(change) for change in one.done],
        broken=[{"change": serialization.change_to_json(change), "detail": detail} for change, detail in one.broken],
    )


def parse(data: bytes) -> Json:
    """One entry of the journal as a dict; {} for data that is no JSON object."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}

"""Field types that several JSON documents share, and functions that make, check, write and hash a document by its type."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import Field, TypeAdapter, ValidationError

Row = TypeVar("Row")
Count = Annotated[int, Field(ge=0)]
Counts = dict[str, Count]
AtLeastOne = Annotated[int, Field(ge=1)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
DigestOrNone = Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]


def digest(document: Any) -> str:
    """SHA-256 of a document's canonical JSON (sorted keys, no spaces), as 64 hex digits."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def seal_of(document: Mapping[str, Any]) -> str:
    """The digest of a document without its key `seal`."""
    return digest({name: value for name, value in document.items() if name != "seal"})


@cache
def form(kind: Any) -> TypeAdapter[Any]:
    """The pydantic adapter that validates and dumps values of the type `kind`. Each type's adapter is made once and
    kept.
    """
    return TypeAdapter(kind)


def dump_values(kind: Any, values: Any) -> Any:
    """Writes `values` in the JSON form that the type `kind` declares for them, for `json.dumps`. A value without such a
    form (kodoctl.topology.json_forms) stays as it is, a tuple or a set too, and nothing is checked. Lone surrogates in
    a text (a broker's names may have them) are kept.
    """
    return form(kind).dump_python(values, warnings=False)


def row_of(kind: type[Row], *sources: object, **values: Any) -> Row:
    """A document, or a row of one, of the type `kind`, a TypedDict. Each key has the value in `values` or else the
    attribute of that name of the first of `sources` that has it, with a tuple as list; a key without either is left
    out.
    """
    found = {}
    for name in kind.__annotations__:
        holder = next((one for one in sources if hasattr(one, name)), None)
        if name in values or holder is not None:
            value = values[name] if name in values else getattr(holder, name)
            found[name] = list(value) if isinstance(value, tuple) else value
    return cast("Row", found)


def reason(problem: Exception) -> str:
    """The text of an error that occurred while a document was read: of a pydantic ValidationError its first finding
    with the field, of others the class and the message, together at most 200 characters, line ends included.
    """
    if isinstance(problem, ValidationError):
        first = problem.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(problem).__name__}: {problem}"[:200]

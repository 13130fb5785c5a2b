"""Types of fields that several JSON documents have; a document's reader and writer by its type, and its digest."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

Count = Annotated[int, Field(ge=0)]
Counts = dict[str, Count]
AtLeastOne = Annotated[int, Field(ge=1)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
DigestOrNone = Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]


def digest(document: Any) -> str:
    """SHA-256 of a document's canonical JSON, as 64 hex digits."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def form(kind: Any) -> TypeAdapter[Any]:
    """The pydantic adapter that reads and writes the JSON form of a type; made once for each type."""
    return TypeAdapter(kind)


def dump_values(kind: Any, values: Any) -> Any:
    """The JSON form of values of the type `kind`. Text that is no Unicode, such as a name from a broker, stays as it
    is.
    """
    return form(kind).dump_python(values, warnings=False)


def reason(problem: Exception) -> str:
    """The reason for which a document could not be read, on one line."""
    if isinstance(problem, ValidationError):
        first = problem.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(problem).__name__}: {problem}"[:200]

"""Resources as JSON and back: for plan files, fingerprints, digests and the views of `kodoctl expand`."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from kodoctl.topology.resources import Resource

Json = dict[str, Any]
AnyResource = Annotated[Resource, Field(discriminator="kind")]


@cache
def _adapter() -> TypeAdapter[Resource]:
    return TypeAdapter(AnyResource)


def resource_to_json(resource: Resource) -> Json:
    """A resource as plain JSON values; the key `kind` has its kind."""
    document: Json = _adapter().dump_python(resource, warnings=False)
    return document


def resource_from_json(document: Json) -> Resource:
    """The inverse of `resource_to_json`. Raises KeyError for an unknown policy, pydantic's ValidationError for anything
    else that is no resource.
    """
    return _adapter().validate_python(document)

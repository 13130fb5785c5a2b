"""The JSON of `kodoctl pipeline write-off plan`, which is its plan file."""

from __future__ import annotations

from typing import TypedDict


class WriteOffItem(TypedDict):
    """One loss or doubt. `kind`, `topic`, `partition`, `subscription`, `name`, `number`: as in the table `write_offs`."""

    kind: str
    topic: str
    partition: int
    subscription: str
    name: str
    number: int


class WriteOffDocument(TypedDict):
    """`verdict`: of the audit that the plan was made from; `stays`: reasons that a write-off does not settle; `hash`: of all
    else.
    """

    format_version: int
    run: str
    made_at: int
    topology: str
    environment: str | None
    landing: str
    reason: str
    verdict: str
    items: list[WriteOffItem]
    stays: list[str]
    hash: str

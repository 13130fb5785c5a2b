"""How a command on the same tables is typed, for people to copy. Pure."""

from __future__ import annotations

import shlex

from kodoctl.pipeline.landing import DEFAULT


def typed(topology: str, environment: str | None, landing: str) -> str:
    """The argument and the options that name them."""
    options = [
        *(("--env", environment) if environment else ()),
        *(("--landing", landing) if landing != DEFAULT else ()),
    ]
    return shlex.join([topology, *options])

"""How many examples a property is tried with: fewer in the gate than in the night, by KODOCTL_TEST_PROFILE=gate|full."""

from __future__ import annotations

import os
from typing import Any, Final

from hypothesis import HealthCheck, settings

PROFILE: Final = "KODOCTL_TEST_PROFILE"
EXAMPLES: Final = "KODOCTL_TEST_EXAMPLES"
_FULL = 100  # of a property that names no number, as the library has it
_OF_THE_GATE = 30
_LEAST = 10


def load() -> None:
    """The profile of this run, for every property that is defined afterwards."""
    # On a busy machine every test is slow now and then, which says nothing about the code; --timeout ends what hangs.
    every: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("full", max_examples=_FULL, **every)
    settings.register_profile("gate", max_examples=_OF_THE_GATE, **every)
    settings.load_profile(os.environ.get(PROFILE, "gate"))


def examples(number: int, **others: Any) -> settings:
    """Settings of a property that takes so many examples in full, and its share of them in the gate: as many as other properties
    of theirs, but never fewer than ten, or all where it has fewer. KODOCTL_TEST_EXAMPLES=100000 gives it that many.
    """
    if EXAMPLES in os.environ:
        return settings(max_examples=int(os.environ[EXAMPLES]), **others)
    share = number * settings().max_examples // _FULL
    return settings(max_examples=max(share, min(number, _LEAST)), **others)

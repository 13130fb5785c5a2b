"""The compiled core under test: what cannot be tested with it, because it has been compiled in."""

from __future__ import annotations

import pytest
from kodo_consumer.core import COMPILED

INTERPRETED_ONLY = pytest.mark.skipif(
    COMPILED.compiled,
    reason="replaces a function or a constant of the core, which a compiled core does not look up (KODO_FAST_CORE=false)",
)
"""Of tests that break the core or make its bounds small. What they show of it holds for the same sources compiled; the laws
themselves are tested both ways.
"""

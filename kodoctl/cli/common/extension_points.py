"""Extension points: functions and classes of the consumer and the pipeline that the control plane uses, found by name
when they are needed.

Both packages import the control plane, which imports neither: so its commands start without them.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

DONE_STORE: Final = "kodo_consumer.adapters.stores.done_store:DoneStoreClient"
"""Context manager of a `Secret` (the store of the workers) and the full name of a subscription. It yields a `Done`."""
LOST_MESSAGES: Final = "kodo_pipeline.recall.landed_messages:lost_messages"
"""Function of a `RecallPlan`, a `RecallCluster` and a `Signer` or None. It returns the `MessageSource` of the plan."""


def load(target: str) -> Any:
    """Imports the module of `target`, MODULE:NAME, and returns its class or function."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)

"""Extension points: what the control plane takes of the consumer and of the pipeline, found by name when it is asked for.

Both of them import the control plane; it imports neither, so that its commands are read, and started, without them.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

DONE_STORE: Final = "kodo_consumer.adapters.stores.done_store:DoneStoreClient"
"""Context manager of a `Secret` (the store of the workers) and the full name of a subscription. It yields a `Done`."""
LOST_MESSAGES: Final = "kodo_pipeline.recall.landed_messages:lost_messages"
"""Function of a `RecallPlan`, a `RecallCluster` and a `Signer` or None. It returns the `MessageSource` of the plan."""


def load(target: str) -> Any:
    """The class or function `target`, as MODULE:NAME. Its module is imported now."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)

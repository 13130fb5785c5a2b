"""Extension points: names of functions and classes of the consumer and the pipeline, which the control plane imports
when it needs them.

Both packages import the control plane, so the control plane must not import them when it starts.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

DONE_STORE: Final = "kodo_consumer.adapters.stores.done_store:DoneStoreClient"
"""Context manager of a `Secret` (the store of the workers) and the full name of a subscription. It yields a `Done`."""
MESSAGE_HISTORY: Final = "kodo_consumer.cli.history_reader:HistoryReader"
"""Class whose method `read` returns the document of `kodo-consumer why`."""
LIVE_ORDERS: Final = "kodo_consumer.cli.live_orders:open_orders"
"""Context manager of a topology file, topic, subscription and connection options. It yields the orders there."""
NEW_ORDER: Final = "kodo_consumer.cli.live_orders:new_order"
"""Function of kind, duration, reason and details. It returns an `Override` that begins now."""
PAYLOAD_READER: Final = "kodo_consumer.core.payloads.codec:payload_reader"
"""Function of a kind (`json` or `avro`), a schema, and a function that returns the definition of a schema version. It
returns a function that reads a payload (bytes) of a version, and raises ValueError.
"""
LOST_MESSAGES: Final = "kodo_pipeline.recall.landed_messages:lost_messages"
"""Function of a `RecallPlan`, a `RecallCluster` and a `Signer` or None. It returns the `MessageSource` of the plan."""


def load(target: str) -> Any:
    """Imports and returns the class or function named by `target`, written MODULE:NAME. Raises ImportError if the
    module, or a package that it needs, is not installed.
    """
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)

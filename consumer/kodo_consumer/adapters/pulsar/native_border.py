"""The consumer's types of the native border: it reads, acknowledges and publishes in bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.envelope import Delivery, Outgoing
from kodoctl.pulsar.connection.native_border import BorderLoader

if TYPE_CHECKING:
    from kodo_fast import NativeBorder

DELIVERIES: Final[BorderLoader[NativeBorder]] = BorderLoader(
    lambda kodo_fast: kodo_fast.load(Delivery, Outgoing._fields), "the setting native"
)
"""Border of workers and producers."""

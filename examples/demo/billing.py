"""The demo's handler: bills orders, with the troubles real ones have."""

from __future__ import annotations

import asyncio
import os
import time

from kodo_consumer import Dead, Message

LOG = open(os.environ["DEMO_LOG"], "a", buffering=1, encoding="utf-8")  # noqa: SIM115  # one line an order, for the demo to read


async def bill(message: Message) -> None:
    """Raises what a real handler would: refused for good, or down for now."""
    order = message.json()
    if order["amount"] < 0:
        raise Dead("negative amount")
    if order["customer"] == "acme":
        raise ConnectionError("acme's bank does not answer")
    await asyncio.sleep(0.005)
    LOG.write(f"{order['customer']} {time.time() - order['sent']:.3f}\n")

"""The outbox: messages that an application writes in its own transaction, and a relay that sends them.

    outbox = Outbox.load("topologies/trade.yaml", app="shop")
    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.add(session, topic="orders", payload={"order": order.id}, key=str(order.id))

`kodo-consumer outbox run` sends committed messages, and no others.

Modules are imported at the first use, so a command that needs no database starts without SQLAlchemy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kodoctl.host.extras import needs_extra

if TYPE_CHECKING:
    from kodo_consumer.outbox.outbox import Outbox
    from kodo_consumer.outbox.row_filter import RowStatus
    from kodo_consumer.outbox.table import TABLE, outbox_table

_HOMES = {"Outbox": "outbox", "TABLE": "table", "outbox_table": "table", "RowStatus": "row_filter"}
__all__ = ["TABLE", "Outbox", "RowStatus", "outbox_table"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs_extra("database"):
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""The inbox: messages are stored in the application's database, acknowledged, and handled from there.

    inbox = Inbox("postgresql+psycopg://shop@database/shop")
    inbox.create_table()  # or migrate: kodo_consumer.inbox.inbox_table

    @consumer.handler(inbox=inbox)
    def bill(message: Message) -> None: ...

Modules are imported at the first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kodoctl.host.extras import needs_extra

if TYPE_CHECKING:
    from kodo_consumer.inbox.inbox import Inbox
    from kodo_consumer.inbox.table import TABLE, inbox_table

_HOMES = {"Inbox": "inbox", "TABLE": "table", "inbox_table": "table"}
__all__ = ["TABLE", "Inbox", "inbox_table"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs_extra("database"):
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

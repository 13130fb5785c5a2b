"""Disabled loggers: those of this product that an application's logging configuration silenced because it does not name
them.

`logging.config` does so by default (`disable_existing_loggers`), without a message. Nobody would then learn of a worker
that breaks, a dead message or a full store. Users who want silence name a logger and set its level.
"""

from __future__ import annotations

import logging
from typing import Final

_OURS: Final = ("kodo", "kodoctl")
log = logging.getLogger("kodo.consumer")


def enable_loggers() -> None:
    """Enables the disabled loggers of this product, with one warning that names them. Called before a worker or
    producer starts.
    """
    found = [one for one in map(logging.getLogger, _names()) if one.disabled]
    for one in found:
        one.disabled = False
    if found:
        names = ", ".join(one.name for one in found)
        log.warning(
            "a logging configuration disabled %s, as it does by default with what it does not name: they are enabled"
            " again; set `disable_existing_loggers` to false, or name a logger and its level to silence it",
            names,
        )


def _names() -> list[str]:
    made = list(logging.Logger.manager.loggerDict.items())  # other threads may add some meanwhile
    return sorted(name for name, one in made if name.partition(".")[0] in _OURS and isinstance(one, logging.Logger))

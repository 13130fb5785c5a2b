"""Command: loads border and core as the consumer does, and prints whether they can be used here. Exit code 1, with the
reason on stderr, if not.
"""

from __future__ import annotations

import sys
from importlib import import_module

import kodo_fast


def main() -> int:
    """Prints whether border and core are used. Returns the exit code."""
    delivery = type("Delivery", (tuple,), {"__slots__": (), "_fields": kodo_fast.DELIVERY})
    try:
        border = kodo_fast.load(delivery, kodo_fast.OUTGOING)
    except kodo_fast.RefusalError as problem:
        print(f"kodo-fast {kodo_fast.__version__} is not used: {problem}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"kodo-fast {kodo_fast.__version__} with pulsar-client {border.client_version}")  # noqa: T201
    return _core()


def _core() -> int:
    """Prints whether the compiled core fits the installed consumer, if there is one. Returns the exit code."""
    try:
        status = import_module("kodo_consumer.core").COMPILED
    except (ModuleNotFoundError, AttributeError):  # no consumer, or an older one
        return 0
    print(status, file=sys.stdout if status.compiled else sys.stderr)
    return 0 if status.compiled else 1


if __name__ == "__main__":
    sys.exit(main())

"""Native border or not: the suites run both ways, by KODO_CONSUMER_NATIVE in the environment.

`false`: nothing of this process or of those that it starts uses it. `true`: it has to be there, so that no run claims to have
tested what it did without. Unset: whoever has built it uses it.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "KODO_CONSUMER_NATIVE"


def follow_environment() -> None:
    """For this process: consumers of many tests have settings of their own and do not read the variable. Raises SystemExit."""
    match os.environ.get(VARIABLE):
        case "false":
            sys.modules["kodo_fast"] = None  # type: ignore[assignment]  # as if it were not installed
        case "true":
            from kodo_consumer.adapters.pulsar.native_border import DELIVERIES

            if (choice := DELIVERIES.choose()).border is None:
                sys.exit(f"{VARIABLE}=true, and {choice.status}: `make native` builds it")

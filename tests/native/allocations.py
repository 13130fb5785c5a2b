"""Calls of the native border in which each allocation fails once: they raise MemoryError, and the process lives.

    python -m tests.native.allocations

Only calls without a broker: the client library itself does not outlive a send of its own that gets no memory. Prints
how many failures each call had.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_PRELOADED: Final = "KODOCTL_TEST_ALLOCATIONS"
_MOST: Final = 20_000


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """This program in a process whose allocations can fail. Raises CalledProcessError where it cannot be compiled."""
    library = folder / "allocations.so"
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    source = str(Path(__file__).with_suffix(".cpp"))
    subprocess.run([*compiler, "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", str(library)], check=True)
    environ = os.environ | {"LD_PRELOAD": str(library), _PRELOADED: str(library)}
    return subprocess.run(
        [sys.executable, "-m", "tests.native.allocations"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


class Failures:
    """Has the allocations of this thread fail, one after the other."""

    def __init__(self) -> None:
        library = ctypes.CDLL(os.environ[_PRELOADED])
        self._fail_after, self._left = library.fail_after, library.allocations_left
        self._left.restype = ctypes.c_long

    def check(self, name: str, prepare: Callable[[], Any], call: Callable[[Any], Any]) -> None:
        """Calls with the first allocation failing, then the second, until none is left to fail."""
        failed = 0
        for count in range(_MOST):
            argument = prepare()
            self._fail_after(count)
            try:
                call(argument)
            except (MemoryError, RuntimeError):
                failed += 1
            finally:
                left = self._left()
                self._fail_after(-1)
            if left >= 0:
                call(prepare())
                print(f"{name}: {failed} of {count} failures raised")  # noqa: T201
                return
        sys.exit(f"{name} never had all that it asked for")


def built(number: int = 0) -> Any:
    """A message with texts that no string keeps within itself; every other one is not UTF-8."""
    import _pulsar

    builder = _pulsar.MessageBuilder().content(b"x" * 300).property(f"name-{number}" * 9, "value" * 20)
    builder.partition_key("key" * 20)
    return builder.property(b"\xff" * 40, b"").build() if number % 2 else builder.build()


def without_broker(failures: Failures) -> None:
    """Single messages, and columns."""
    from kodo_fast import _native
    from kodo_pipeline.source.native_batches import _decode_message

    failures.check("delivery", built, _native.delivery)
    failures.check(
        "columns",
        lambda: [built(number) for number in range(4)],
        lambda messages: _native.columns(messages, _decode_message, True, 1 << 40),
    )
    failures.check("sender", lambda: None, lambda _: _native.Sender())


def main() -> None:
    """What the module says."""
    from kodo_consumer.adapters.pulsar.native_border import DELIVERIES

    if (choice := DELIVERIES.choose()).border is None:
        sys.exit(choice.status)
    without_broker(Failures())


if __name__ == "__main__":
    main()

"""Consumers that start in a moment: forked from a process that has imported everything and opened nothing.

`python -m tests.faults.nursery`: one JSON line asks for one more child (its variables), one line answers with its pid; a
child that ends is told as `-pid code`. The nursery ends with its standard input, and its children with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.source_roots import ROOT


class Nursery:
    """The nursery as its user sees it."""

    def __init__(self, home: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self._log = (home / "consumers.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery", *arguments],
            cwd=ROOT, env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            text=True,
        )  # fmt: skip
        self._changed = threading.Condition()
        self._born: list[int] = []
        self.ended: dict[int, int] = {}  # pid -> how it ended, as subprocess tells it
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, **variables: str) -> int:
        """One more consumer: its pid."""
        assert self._process.stdin is not None
        with self._changed:
            self._process.stdin.write(json.dumps(variables) + "\n")
            self._process.stdin.flush()
            assert self._changed.wait_for(lambda: self._born, 60), "the nursery is gone"
            return self._born.pop()

    def wait(self, pid: int, seconds: float) -> int | None:
        """How a consumer ended; None when it still runs after that time."""
        with self._changed:
            self._changed.wait_for(lambda: pid in self.ended, seconds)
            return self.ended.get(pid)

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Harmless when it has ended."""
        with suppress(ProcessLookupError):
            if pid not in self.ended:
                os.kill(pid, number)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):  # closed
            for line in self._process.stdout:
                first, _, code = line.strip().partition(" ")
                with self._changed:
                    if code:
                        self.ended[-int(first)] = int(code)
                    else:
                        self._born.append(int(first))
                    self._changed.notify_all()


def main() -> None:
    """The nursery itself."""
    import pulsar  # noqa: F401  # imported, never used before the fork

    import kodoctl.pulsar.admin.admin_http  # noqa: F401

    children: set[int] = set()
    lock = threading.Lock()
    threading.Thread(target=_bury, args=(children, lock), daemon=True).start()
    for line in sys.stdin:
        with lock:
            pid = os.fork()
            if not pid:
                _grow_up(json.loads(line))
            children.add(pid)
            os.write(1, f"{pid}\n".encode())
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _grow_up(variables: Mapping[str, str]) -> None:
    from kodo_consumer.cli.main import main as run

    os.environ.update(variables)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 0)
    os.dup2(2, 1)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.argv = ["kodo-consumer", *sys.argv[1:]]
    code = 1
    try:
        run()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _bury(children: set[int], lock: threading.Lock) -> None:
    while True:
        time.sleep(0.02)
        with lock:
            for pid in list(children):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    children.discard(pid)
                    os.write(1, f"-{pid} {os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main()

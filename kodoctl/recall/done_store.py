"""Client of the idempotency store of the workers: finds the messages that are done. Queries run in a process of the
consumer, because this package does not know the consumer. Raises KodoctlError (K740, K741).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from kodoctl.errors import KodoctlError, error
from kodoctl.pulsar.credentials import Secret

_COMMAND: Final = (
    sys.executable,
    "-P",
    "-m",
    "kodo_consumer.done_query",
)  # -P: no folder of the user's stands in for ours


class DoneStoreClient:
    """One store and subscription, asked for as long as the block lasts. `store`: the workers' setting, which may hold
    a password: it goes to the process as its input, so that no list of processes shows it. `subscription`: named in
    full, `kodo/trade/orders:billing`.
    """

    def __init__(self, store: Secret, subscription: str) -> None:
        self._store, self._subscription = store, subscription
        self._process: subprocess.Popen[str] | None = None
        self._said: Any = None
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process = None
        self._ends.close()

    def __call__(self, identities: Sequence[str]) -> frozenset[str]:
        """Those of them that are done. Raises KodoctlError when the store cannot be asked (K740, K741)."""
        process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(list(identities)) + "\n")
            process.stdin.flush()
        except OSError:
            pass  # its answer, or its last words, say why
        line = process.stdout.readline()
        if not line:
            raise KodoctlError(error("K741", "store cannot be asked", self._last_words(process)))
        answer = json.loads(line)
        if isinstance(answer, dict):
            raise KodoctlError(error(*answer["fault"]))
        return frozenset(answer)

    def _started(self) -> subprocess.Popen[str]:
        said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed with the block
        self._said = self._ends.enter_context(said)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603
            _COMMAND, stdin=pipe, stdout=pipe, stderr=self._said, text=True, encoding="utf-8"
        )
        self._ends.callback(_end, self._process)
        assert self._process.stdin is not None
        request = {"store": self._store.reveal(), "subscription": self._subscription}
        self._process.stdin.write(json.dumps(request) + "\n")
        return self._process

    def _last_words(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        self._said.seek(0)
        last = next((line for line in reversed(self._said.read().splitlines()) if line.strip()), "it said nothing")
        return f"the process that asks it ended with {code}: {last[:300].replace(self._store.reveal(), '***')}"


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()

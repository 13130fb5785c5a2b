"""The ledger outside of what is tested: what producers have receipts for, what handlers ran, what effects are there."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple


def body(number: int) -> str:
    """What message `number` says: nobody else could have made it up."""
    proof = hashlib.sha256(b"%d" % number).hexdigest()
    return json.dumps({"n": number, "proof": proof})


@dataclass(frozen=True)
class Verdict:
    """What became of everything. `unsure`: sent without a receipt, which may be there or not."""

    sent: int
    unsure: int
    done: int
    dead: int
    still_stored: int
    lost: list[int] = field(default_factory=list)
    altered: list[int] = field(default_factory=list)
    doubled_effects: list[int] = field(default_factory=list)
    doubled_runs: int = 0
    bound_of_doubled_runs: int = 0

    @property
    def is_good(self) -> bool:
        """Nothing lost, altered, left over, nor done twice; no more handled again than the faults explain."""
        wrong = self.lost or self.altered or self.doubled_effects or self.still_stored
        return not wrong and self.doubled_runs <= self.bound_of_doubled_runs

    def json(self) -> dict[str, object]:
        return asdict(self)


class Run(NamedTuple):
    """The handler ran for message `number` of `place` (topic and partition), at `at` s of the monotonic clock."""

    number: int
    at: float
    place: str


class Ledger:
    """`effects.db` is the handlers' own database, without a key on effects: what is there twice shows."""

    def __init__(self, home: Path, failing: int = 10) -> None:
        self._home, self._failing = home, failing
        self.store = f"sqlite:///{home / 'effects.db'}"
        self.sent: set[int] = set()
        self.unsure: set[int] = set()
        self._lock = threading.Lock()
        with sqlite3.connect(home / "effects.db") as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("CREATE TABLE effects (number INTEGER, body TEXT)")
        database.close()

    def receipt(self, number: int, *, stored: bool) -> None:
        """What a producer was told of its message."""
        with self._lock:
            (self.sent if stored else self.unsure).add(number)

    @property
    def effects(self) -> int:
        """How many effects there are now."""
        found = self._rows("SELECT count(*) FROM effects")
        return int(found[0][0])

    def done(self) -> set[int]:
        """Numbers of the messages that have an effect."""
        return {number for number, _ in self._rows("SELECT number, body FROM effects")}

    def _rows(self, query: str) -> list[tuple[int, str]]:
        database = sqlite3.connect(self._home / "effects.db", timeout=30)
        try:
            return database.execute(query).fetchall()
        finally:
            database.close()

    def runs(self) -> Counter[int]:
        """Handler runs by message."""
        text = (self._home / "runs").read_text() if (self._home / "runs").exists() else ""
        return Counter(int(line.split()[0]) for line in text.split("\n")[:-1])

    def planned(self, number: int) -> int:
        """How often the handler is meant to run for a message (tests.faults.victim): once, again where it fails or takes too
        long at first; and from the beginning where it dies at first and is recalled.
        """
        tries = 2 if number % self._failing == 0 or number % 1000 == 7 else 1
        return 2 * tries if number % 100 == 55 else tries

    def follow(self, offset: int) -> tuple[list[Run], int]:
        """Runs of the handler from an offset on (bytes, 0: all), and the offset to go on from."""
        try:
            with (self._home / "runs").open("rb") as runs:
                runs.seek(offset)
                lines = runs.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return [], offset
        rows = (line.decode().split() for line in lines)
        found = [Run(int(number), int(ms) / 1000, place) for number, ms, place, _ in rows]
        return found, offset + sum(len(line) + 1 for line in lines)

    def handles(self, pid: int) -> bool:
        """Whether a process has handled anything of late."""
        with (self._home / "runs").open("rb") as runs:
            runs.seek(max(0, runs.seek(0, 2) - (1 << 16)))
            return b" %d\n" % pid in runs.read()

    def judge(self, dead: dict[int, str], *, still_stored: int, bound: int) -> Verdict:
        """Total-queue: every message with a receipt has an effect or is a dead letter. `dead`: bodies by number."""
        rows = self._rows("SELECT number, body FROM effects WHERE number >= 0")  # below: hostile, and each its own
        effects = Counter(number for number, _ in rows)
        everything = [*rows, *dead.items()]
        runs = self.runs()
        again = sum(max(0, runs[number] - self.planned(number)) for number in runs if number >= 0)
        return Verdict(
            sent=len(self.sent),
            unsure=len(self.unsure),
            done=len(effects),
            dead=len(dead),
            still_stored=still_stored,
            lost=sorted(self.sent - effects.keys() - dead.keys()),
            altered=sorted(number for number, text in everything if text != body(number)),
            doubled_effects=sorted(number for number, count in effects.items() if count > 1),
            doubled_runs=again,
            bound_of_doubled_runs=bound,
        )

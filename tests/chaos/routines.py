"""Commands that run one after the other while nodes fail: applies of a hundred topics, recalls, ingests with audits. What each
said, and what the next one made of it.
"""

from __future__ import annotations

import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.campaign import LOSS, ClusterCampaign

TOPICS = 100
_LONGEST = 900.0  # seconds until a command is taken for hung
_SILENT = 45.0  # seconds without a word that are counted as silence
_HEAD = "version: 1\nname: crowd\ntenant: public\nnamespace: crowd\nnamespace_policies: {}\ntopics:\n"
_DOUBTFUL = 6  # exit code of an audit that can say neither yes nor no


@dataclass
class Record:
    """What came of commands of one kind. `unclear`: ended with something else than success or an error with a code;
    `silences`: longest time without a word, of those that had one longer than 45 s; `unfinished`: re-runs that failed though
    every node ran; `wrong`: second plans that were not empty, audits that told of a loss.
    """

    exits: Counter[int] = field(default_factory=Counter)
    unclear: list[str] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Every command complete or clearly ended, every re-run complete, and nothing false said."""
        return not (self.unclear or self.unfinished or self.wrong)

    def json(self) -> dict[str, Any]:
        exits = {str(code): count for code, count in sorted(self.exits.items())}
        return {
            "exits": exits, "unclear": self.unclear, "silences": [round(seconds) for seconds in self.silences],
            "unfinished": self.unfinished, "wrong": self.wrong,
        }  # fmt: skip


class Routine(ABC):
    """A thread that repeats a command. `calm`: the lock of who injects a fault; a re-run takes it, too."""

    name: str
    pause: float  # seconds between two turns

    def __init__(self, campaign: ClusterCampaign, calm: threading.Lock) -> None:
        self.record = Record()
        self.campaign, self._calm = campaign, calm
        self.folder = campaign.folder / self.name
        self.folder.mkdir()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=self.name)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends with the command that runs, and its re-run."""
        self._over.set()
        self._thread.join()

    @abstractmethod
    def turn(self, number: int) -> None:
        """One command with what follows it."""

    def complete(self, *arguments: str) -> bool:
        """A command that is repeated with every node running unless it succeeds; whether it is complete."""
        code, _ = self.run(*arguments)
        if code == 0:
            return True
        with self._calm:
            code, text = self.run(*arguments)
        if code != 0:
            self.record.unfinished.append(f"exit {code}: {text[-600:]}")
        return code == 0

    def calmly(self, *arguments: str) -> tuple[int, str]:
        """A command while every node runs."""
        with self._calm:
            return self.run(*arguments)

    def run(self, *arguments: str) -> tuple[int, str]:
        """A command; its exit code (-1: killed after 15 minutes) and both streams, what it says without a code noted."""
        process = subprocess.Popen(
            self.campaign.command(*arguments),
            cwd=self.folder, env=self.campaign.variables(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        killer = threading.Timer(_LONGEST, process.kill)
        killer.start()
        assert process.stdout is not None
        lines, last, longest = [], time.monotonic(), 0.0
        with process.stdout as output:
            for line in output:
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                lines.append(line)
        process.wait()
        killer.cancel()
        longest = max(longest, time.monotonic() - last)
        if longest > _SILENT:
            self.record.silences.append(longest)
        code, text = max(process.returncode, -1), "".join(lines)
        self.record.exits[code] += 1
        if "Traceback" in text or (code not in (0, LOSS, _DOUBTFUL) and "[K" not in text):
            self.record.unclear.append(f"{' '.join(arguments[:2])}: exit {code}: {text[-600:]}")
        return code, text

    def _work(self) -> None:
        number = 0
        while not self._over.is_set():
            try:
                self.turn(number)
            except Exception as problem:  # noqa: BLE001 - a thread that ended would be taken for one that found nothing
                self.record.wrong.append(f"the routine itself: {problem!r}")
            number += 1
            self._over.wait(self.pause)


class Applies(Routine):
    """Applies of two versions of a file in turn; the plan after each must be empty."""

    name, pause = "applies", 15.0

    def turn(self, number: int) -> None:
        file = self.folder / "crowd.yaml"
        file.write_text(_version(number), encoding="utf-8")
        if self.complete("apply", str(file), "--auto-approve", "--allow-destroy", "all"):
            _, text = self.calmly("plan", str(file))
            if "No changes" not in text:
                self.record.wrong.append(f"second plan: {text[-600:]}")


class Recalls(Routine):
    """Recalls of all dead letters. A worker is done with a letter that was recalled (tests.faults.victim)."""

    name, pause = "recalls", 60.0

    def turn(self, number: int) -> None:
        recall(self, f"recall-{number}.json")


class Audits(Routine):
    """Ingests, and an audit after each, which must not tell of a loss."""

    name, pause = "audits", 180.0

    def turn(self, number: int) -> None:
        audit(self)


def recall(routine: Routine, name: str) -> None:
    """Sends every dead letter back."""
    campaign, plan = routine.campaign, str(routine.folder / name)
    chosen = ["--topic", "orders", "--subscription", "billing", "--where", "true", "--out", plan]
    ledger = ["--ledger", str(campaign.recalls)]
    if routine.complete("recall", "plan", str(campaign.file), *chosen, *ledger):
        routine.complete("recall", "apply", plan, *ledger)


def audit(routine: Routine) -> int:
    """Lands what is new and judges; the exit code of the audit."""
    campaign = routine.campaign
    landing = ["--landing", str(campaign.landing)]
    if not routine.complete("pipeline", "ingest", str(campaign.file), *landing):
        return 1
    code, text = routine.run("pipeline", "audit", str(campaign.file), *landing, "--ledger", str(campaign.recalls))
    if code == LOSS:
        routine.record.wrong.append(f"audit: {text[-2_000:]}")
    return code


def _version(turn: int) -> str:
    """Every second version lacks ten topics, and has another retention on the others."""
    other = turn % 2
    policies = f"{{retention: {{time: {3 + other}d, size: 1GiB}}}}"
    subscription = "{s: {states: [], dead_letter: false}}"
    topics = range(10 * other, TOPICS)
    return _HEAD + "".join(f"  t{n:03}: {{policies: {policies}, subscriptions: {subscription}}}\n" for n in topics)

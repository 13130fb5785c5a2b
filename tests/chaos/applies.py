"""Applies of a hundred topics, one after the other, while nodes fail: what each said, and what the next one made of it."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.campaign import ClusterCampaign

TOPICS = 100
_LONGEST = 900.0  # seconds until an apply is taken for hung
_SILENT = 45.0  # seconds without a word that are counted as silence
_HEAD = "version: 1\nname: crowd\ntenant: public\nnamespace: crowd\nnamespace_policies: {}\ntopics:\n"


@dataclass
class Record:
    """What came of the applies. `unclear`: ended with something else than success or an error with a code; `silences`: longest
    time without a word, of those that had one longer than 45 s; `unfinished`: re-runs that failed, `drift`: second plans that
    were not empty, both while every node ran.
    """

    exits: Counter[int] = field(default_factory=Counter)
    unclear: list[str] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    drift: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Every apply complete or clearly ended, every re-run complete, every second plan empty."""
        return not (self.unclear or self.unfinished or self.drift)

    def json(self) -> dict[str, Any]:
        exits = {str(code): count for code, count in sorted(self.exits.items())}
        return {
            "exits": exits, "unclear": self.unclear, "silences": [round(seconds) for seconds in self.silences],
            "unfinished": self.unfinished, "drift": self.drift,
        }  # fmt: skip


class Applies:
    """A thread that applies two versions of a file in turn. `calm`: held by who injects a fault; a re-run takes it, too."""

    def __init__(self, campaign: ClusterCampaign, calm: threading.Lock) -> None:
        self.record = Record()
        self._campaign, self._calm = campaign, calm
        self._folder = campaign.folder / "crowd"
        self._folder.mkdir()
        self._file = self._folder / "crowd.yaml"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="applies")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends with the apply that runs, and a last re-run."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        turn = 0
        while not self._over.is_set():
            self._file.write_text(_version(turn), encoding="utf-8")
            code, text = self._run("apply", str(self._file), "--auto-approve", "--allow-destroy", "all")
            self.record.exits[code] += 1
            if "Traceback" in text or (code != 0 and "[K" not in text):
                self.record.unclear.append(f"exit {code}: {text[-400:]}")
            with self._calm:
                self._check(code)
            turn += 1
            self._over.wait(5.0)

    def _check(self, code: int) -> None:
        """With every node running: the re-run is complete, and the plan after it empty."""
        if code != 0:
            again, text = self._run("apply", str(self._file), "--auto-approve", "--allow-destroy", "all")
            if again != 0:
                self.record.unfinished.append(f"exit {again}: {text[-400:]}")
                return
        _, text = self._run("plan", str(self._file))
        if "No changes" not in text:
            self.record.drift.append(text[-400:])

    def _run(self, *arguments: str) -> tuple[int, str]:
        """A command; its exit code (-1: killed after 15 minutes) and both streams."""
        process = subprocess.Popen(
            self._campaign.command(*arguments),
            cwd=self._folder, env=self._campaign.variables(), text=True,
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
        code = -1 if process.returncode < 0 else process.returncode
        return code, "".join(lines)


def _version(turn: int) -> str:
    """Every second version lacks ten topics, and has another retention on the others."""
    other = turn % 2
    policies = f"{{retention: {{time: {3 + other}d, size: 1GiB}}}}"
    subscription = "{s: {states: [], dead_letter: false}}"
    topics = range(10 * other, TOPICS)
    return _HEAD + "".join(f"  t{n:03}: {{policies: {policies}, subscriptions: {subscription}}}\n" for n in topics)

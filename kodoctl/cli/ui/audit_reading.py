"""Reader of the last audits for the console, and of the steps that a verdict still lacks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kodoctl.host.programs import find_program
from kodoctl.text.escaping import shell_line
from kodoctl.topology import defaults
from kodoctl.ui.audit_sentence import (
    JUDGED_FROM,
    AuditedTopology,
    AuditVerdict,
    Sentence,
    audit_sentence,
    audit_steps,
    audit_verdict,
)

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.topology.expand import Expansion
    from kodoctl.ui.first_screen import CommandWords

_SPARK: Final = ("pyspark", "pyarrow", "pandas", "deltalake")


class AuditReading:
    """Reader of the documents of the last audits. `files`: documents that the user named. For a topology that none of
    these judges, the document `NAME-audit.json` (`NAME-ENVIRONMENT-audit.json` in an environment) of the working folder
    is read, if it exists.
    """

    def __init__(self, files: Sequence[Path], words: CommandWords, desired: Desired) -> None:
        self._words, self._files = words, list(dict.fromkeys(files))
        self._topologies = [
            (_document_of(one), AuditedTopology(
                one.name,
                frozenset(str(topic.name) for topic in one.topics),
                shell_line([str(_written_by(one, desired, self._files))]),
                list(_unrecorded(one)),
            ))
            for one in desired.expansions
        ]  # fmt: skip

    def __call__(self) -> Sentence:
        """Makes the sentence of the first screen about the last audits, with the steps that a verdict still lacks.
        Files are read at each call, because a nightly run may replace them. A file that is no audit makes a sentence
        that says so.
        """
        sentence = self._sentence()
        if sentence.style == "good":
            return sentence
        every = [one for _, one in self._topologies]
        chosen = [one for one in every if one.name in sentence.unjudged] or every
        steps = audit_steps(
            self._words,
            chosen,
            lacks_spark=_lacks_spark(),
            lacks_java=_lacks_java(),
            earlier=0 if sentence.unjudged else sentence.earlier,
        )
        return replace(sentence, steps=steps, about="" if sentence.is_judged else JUDGED_FROM)

    def _sentence(self) -> Sentence:
        verdicts: list[AuditVerdict] = []
        try:
            verdicts += _verdicts(self._files)
            own = [file for file, one in self._topologies if not any(verdict.is_of(one) for verdict in verdicts)]
            verdicts += _verdicts(file for file in own if file not in self._files)
        except _NoAuditError as problem:
            return Sentence("open", f"{problem}")
        return audit_sentence(verdicts, _now(), [one for _, one in self._topologies])


class _NoAuditError(Exception):
    """A file is no audit. The text of the exception says which, and why."""


def _verdicts(files: Iterable[Path]) -> Iterator[AuditVerdict]:
    """Yields the verdicts of the files that exist. Raises _NoAuditError."""
    for file in files:
        try:
            if file.exists():
                if not (content := file.read_bytes()):
                    raise _NoAuditError(f"{file} is empty: an audit is at work, or could not begin")
                yield audit_verdict(str(file), json.loads(content))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise _NoAuditError(f"{file} is no document of `kodoctl pipeline audit --format json` ({reason})") from None


def _written_by(expansion: Expansion, desired: Desired, files: Sequence[Path]) -> Path:
    """File into which the audit of a topology is to be written: the only one that the user named, for the only
    topology; else the one in the working folder.
    """
    return files[0] if len(files) == len(desired.expansions) == 1 else _document_of(expansion)


def _document_of(expansion: Expansion) -> Path:
    """File for the audit of a topology in the working folder. Its name begins as that of the topology's report does."""
    return Path("-".join(filter(None, (expansion.name, expansion.topology.environment, "audit.json"))))


def _unrecorded(expansion: Expansion) -> Iterator[tuple[str, str]]:
    """(ground topic / subscription, place in the file) of each subscription whose workers do not wait for records."""
    loaded = expansion.topology
    for ground, topic in loaded.spec.topics.items():
        for name, subscription in topic.subscriptions.items():
            audit = defaults.audit(subscription)
            if audit is None or audit.mode != "wait":
                yield f"{ground} / {name}", str(loaded.where("topics", ground, "subscriptions", name))


def _lacks_spark() -> bool:
    return any(find_spec(name) is None for name in _SPARK)


def _lacks_java() -> bool:
    """True if Spark would find no Java: it takes that of JAVA_HOME if the variable is set, and else looks into PATH."""
    home = os.environ.get("JAVA_HOME")
    return find_program("java", {"PATH": str(Path(home) / "bin")} if home else os.environ) is None


def _now() -> int:
    return int(time.time() * 1000)

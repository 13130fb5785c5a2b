"""Reader of the last audits for the console, and of the steps that a verdict still lacks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kodoctl.host.programs import find_program
from kodoctl.text.escaping import shell_line
from kodoctl.topology import defaults
from kodoctl.ui.audit_sentence import AuditedTopology, Sentence, audit_sentence, audit_steps

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.topology.expand import Expansion
    from kodoctl.ui.first_screen import CommandWords

_SPARK: Final = ("pyspark", "pyarrow", "pandas", "deltalake")


class AuditReading:
    """Reads the documents of the last audits. `files`: those that the user named; of each topology the document
    `NAME-audit.json` of the working folder is read as well, if it is there.
    """

    def __init__(self, files: Sequence[Path], words: CommandWords, desired: Desired) -> None:
        self._words = words
        own = [_document_of(one) for one in desired.expansions]
        # as many files as topologies: the user names one for each, in their order
        written = list(files) if len(files) == len(own) else own
        self._files = list(dict.fromkeys([*files, *own]))
        self._topologies = [
            AuditedTopology(
                one.name,
                frozenset(str(topic.name) for topic in one.topics),
                shell_line([str(file)]),
                list(_unrecorded(one)),
            )
            for one, file in zip(desired.expansions, written, strict=True)
        ]

    def __call__(self) -> Sentence:
        """Sentence about the last audits. Files are read each time, because a nightly run may replace them."""
        sentence = self._sentence()
        if sentence.style == "good":
            return sentence
        chosen = [one for one in self._topologies if one.name in sentence.unjudged] or self._topologies
        steps = audit_steps(self._words, chosen, lacks_spark=_lacks_spark(), lacks_java=_lacks_java())
        return replace(sentence, steps=steps)

    def _sentence(self) -> Sentence:
        documents: list[Any] = []
        for file in self._files:
            try:
                if file.exists():
                    content = file.read_bytes()
                    if not content:
                        return Sentence("open", f"{file} is empty: an audit is at work, or could not begin")
                    documents.append(json.loads(content))
                    audit_sentence(documents[-1:], _now(), ())  # raises, so that the file can be named
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
                reason = f"{type(problem).__name__}: {problem}"
                return Sentence("open", f"{file} is no document of `kodoctl pipeline audit --format json` ({reason})")
        return audit_sentence(documents, _now(), self._topologies)


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
    return not os.environ.get("JAVA_HOME") and find_program("java", os.environ) is None


def _now() -> int:
    return int(time.time() * 1000)

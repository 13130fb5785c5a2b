"""Topology files for tests: a short head, the body under test, and a mark (§) where a finding is expected."""

from __future__ import annotations

from kodoctl.errors import Diagnostic
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.lint.linter import LintReport, lint
from kodoctl.topology.load import load_set, source_of
from kodoctl.topology.loaded_topology import LoadedTopology

HEAD = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\n"
MARK = "§"
FILE = "topologies/trade.yaml"


def file_of(body: str) -> str:
    """A whole file: the body below the usual head, unless it has its own."""
    return body if body.startswith("version:") else HEAD + body


def marked(body: str) -> tuple[str, tuple[int, int]]:
    """The file without its mark, and line and column of what stood behind it."""
    text = file_of(body)
    assert text.count(MARK) == 1, "one mark says where the finding is expected"
    before = text[: text.index(MARK)]
    return text.replace(MARK, ""), (before.count("\n") + 1, len(before) - before.rfind("\n"))


def report_on(*bodies: str) -> LintReport:
    """Lint of a set of files."""
    return lint([source_of(file_of(body).encode(), _name(number)) for number, body in enumerate(bodies)])


def found_in(*bodies: str) -> list[Diagnostic]:
    """Findings that nobody allowed."""
    return [finding for finding in report_on(*bodies).findings if finding.allowed_because is None]


def codes_in(*bodies: str) -> list[str]:
    """The codes of those findings, in order."""
    return [finding.code for finding in found_in(*bodies)]


def loaded(body: str, environment: str | None = None) -> LoadedTopology:
    """One file that loads without findings."""
    result = load_set([source_of(file_of(body).encode(), FILE)], environment)
    assert not result.findings, [str(finding) for finding in result.findings]
    return result.topologies[0]


def expanded(body: str, environment: str | None = None) -> Expansion:
    """What one file stands for."""
    return expand(loaded(body, environment))


def _name(number: int) -> str:
    return FILE if number == 0 else f"topologies/other{number}.yaml"

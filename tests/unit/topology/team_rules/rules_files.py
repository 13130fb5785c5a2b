"""Rules files for tests, held against topologies."""

from __future__ import annotations

from kodoctl.errors import Diagnostic
from kodoctl.topology.lint.linter import LintReport, lint
from kodoctl.topology.load import source_of
from kodoctl.topology.team_rules.rule_reader import read_rules
from kodoctl.topology.team_rules.rule_run import TeamRules
from tests.unit.topology.topology_files import FILE, file_of

NAME = "kodoctl-rules.yaml"
TODAY = "2027-01-31"


def rules_of(text: str, *, revision: str = "", earlier: str = "") -> TeamRules:
    """The rules of a file, and of an earlier one."""
    placed, findings = read_rules(source_of(f"version: 1\n{text}".encode(), NAME), None, revision)
    if earlier:
        placed += read_rules(source_of(f"version: 1\n{earlier}".encode(), NAME), None, "main")[0]
    return TeamRules(placed, findings, TODAY)


def judged(text: str, *bodies: str, earlier: str = "") -> LintReport:
    """Lint of topologies with the rules of one file."""
    names = [FILE if number == 0 else f"topologies/other{number}.yaml" for number in range(len(bodies))]
    files = [source_of(file_of(body).encode(), name) for body, name in zip(bodies, names, strict=True)]
    return lint(files, rules=rules_of(text, earlier=earlier))


def of_rules(report: LintReport) -> list[Diagnostic]:
    """The findings of team rules, those included that are exempt."""
    return [one for one in report.findings if one.code == "K310"]

"""Runs every rule over the base and every environment, and applies allow-comments: all findings at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kodoctl.errors import Diagnostic, Severity, has_errors
from kodoctl.topology.allow import apply_allows
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import SourceFile, TopologySet, environments_of, load_set
from kodoctl.topology.overlay import changes_nothing
from kodoctl.topology.payloads import PayloadFile
from kodoctl.topology.rules import flow, keeping, lanes, naming, payloads
from kodoctl.topology.rules.registry import RULES, Scope

_LOADED = (flow, keeping, lanes, naming, payloads)  # importing them registers their rules


@dataclass(frozen=True, slots=True)
class LintReport:
    """All findings in the order of the files, allowed ones included (they carry their reason)."""

    findings: tuple[Diagnostic, ...]
    files: int
    ground_topics: int

    @property
    def failed(self) -> bool:
        """Whether an error stands that nobody allowed."""
        return has_errors(self.findings)

    @property
    def warned(self) -> bool:
        """Whether a warning stands that nobody allowed."""
        return any(f.severity is Severity.WARNING and f.allowed_because is None for f in self.findings)


Earlier = Mapping[tuple[str, str], PayloadFile]


def judge(topologies: TopologySet, earlier: Earlier | None = None) -> tuple[tuple[Expansion, ...], list[Diagnostic]]:
    """Expansions of one environment and what every rule finds in them; allow-comments are not applied yet."""
    expansions = tuple(expand(topology) for topology in topologies.topologies)
    scope = Scope(expansions, earlier or {})
    return expansions, [*topologies.findings, *(finding for rule in RULES for finding in rule.run(scope))]


def check_set(files: Sequence[SourceFile], environment: str | None) -> tuple[tuple[Expansion, ...], list[Diagnostic]]:
    """Expansions and findings of one environment, allow-comments applied: what plan and apply start from."""
    expansions, findings = judge(load_set(files, environment))
    allowed, _ = apply_allows(findings, [allow for file in files for allow in file.allows])
    return expansions, in_order(allowed)


def lint(files: Sequence[SourceFile], earlier: Earlier | None = None) -> LintReport:
    """Findings in the base and every environment; one that an environment alone has says so.

    `earlier`: (file, ground topic) -> the payload schema before the change under review.
    """
    base = load_set(files, None)
    found = judge(base, earlier)[1]
    seen = {(f.where, f.code, f.detail) for f in found}
    for environment in environments_of(files):
        if all(changes_nothing(file.root, environment) for file in files):
            continue
        for finding in judge(load_set(files, environment, base), earlier)[1]:
            key = (finding.where, finding.code, finding.detail)
            if key not in seen:
                seen.add(key)
                found.append(replace(finding, detail=f"{finding.detail} (environment {environment})"))
    allowed, stale = apply_allows(found, [allow for file in files for allow in file.allows])
    grounds = sum(len(topology.spec.topics) for topology in base.topologies)
    return LintReport(tuple(in_order([*allowed, *stale])), len(files), grounds)


def in_order(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By file, line and column; findings without a place first."""
    return sorted(findings, key=lambda f: (f.where is not None, f.where, f.code, f.detail))

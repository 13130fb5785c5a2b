"""Linter: runs every rule over the base and every environment, applies allow-comments, and returns all findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kodoctl.errors import Diagnostic, Severity, Where, has_errors
from kodoctl.topology.environments import changes_nothing
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.lint.registry import RULES, LintFinding, LintScope, Rule
from kodoctl.topology.lint.rules import (
    change_data,
    concurrency,
    exclusivity,
    flow,
    lanes,
    naming,
    payloads,
    retention,
    routes,
)
from kodoctl.topology.lint.suppressions import apply_allows
from kodoctl.topology.load import environments_of, load_set
from kodoctl.topology.loaded_topology import LoadedTopology, SourceFile, TopologySet
from kodoctl.topology.payload_schemas import PayloadFile

_LOADED = (
    flow,
    retention,
    lanes,
    concurrency,
    naming,
    payloads,
    routes,
    exclusivity,
    change_data,
)  # imported, they register


@dataclass(frozen=True, slots=True)
class LintReport:
    """Result of `lint`. `findings`: all, in the order of the files, those included that a comment allows
    (`allowed_because` is the reason); `files`, `ground_topics`: numbers of them, the latter in the base.
    """

    findings: tuple[Diagnostic, ...]
    files: int
    ground_topics: int

    @property
    def failed(self) -> bool:
        """True if there is an error that no comment allows."""
        return has_errors(self.findings)

    @property
    def warned(self) -> bool:
        """True if there is a warning that no comment allows."""
        return any(f.severity is Severity.WARNING and f.allowed_because is None for f in self.findings)


Earlier = Mapping[tuple[str, str], PayloadFile]


def rules_of(code: str) -> list[Rule]:
    """Lint rules with a code; none for a code that is not of lint."""
    return [one for one in RULES if one.code == code]


def judge(topologies: TopologySet, earlier: Earlier | None = None) -> tuple[tuple[Expansion, ...], list[LintFinding]]:
    """(expansions, findings of loading and of every rule) of one environment. Allow-comments are not applied."""
    expansions = tuple(expand(topology) for topology in topologies.topologies)
    loading = [LintFinding(finding, finding.detail) for finding in topologies.findings]
    return expansions, [*loading, *_run_rules(expansions, earlier or {})]


def _run_rules(expansions: Sequence[Expansion], earlier: Earlier) -> list[LintFinding]:
    scope = LintScope(tuple(expansions), earlier)
    return [judged for rule in RULES for judged in rule.run(scope)]


def check_expanded(expansions: Sequence[Expansion]) -> list[Diagnostic]:
    """Findings of every rule for all topologies of one environment, allow-comments applied."""
    return _apply_allow_comments(_run_rules(expansions, {}), [one.topology.source for one in expansions])


def check_set(files: Sequence[SourceFile], environment: str | None) -> tuple[tuple[Expansion, ...], list[Diagnostic]]:
    """(expansions, findings) of one environment (None: base), allow-comments applied: the input of plan and apply."""
    expansions, judged = judge(load_set(files, environment))
    return expansions, _apply_allow_comments(judged, files)


def check_loaded(topology: LoadedTopology) -> list[Diagnostic]:
    """Findings of one topology in the environment in which it was loaded. Allow-comments are applied."""
    _, judged = judge(TopologySet((topology,), topology.environment, ()))
    return _apply_allow_comments(judged, [topology.source])


def _apply_allow_comments(judged: Iterable[LintFinding], files: Sequence[SourceFile]) -> list[Diagnostic]:
    allowed, _ = apply_allows([one.finding for one in judged], [allow for file in files for allow in file.allows])
    return in_order(allowed)


def lint(files: Sequence[SourceFile], earlier: Earlier | None = None) -> LintReport:
    """Lints the files in the base and in every environment. A finding that only an environment has ends in
    "(environment NAME)".

    `earlier`: (file, ground topic) -> the payload schema before the change under review.
    """
    base = load_set(files, None)
    found: dict[tuple[Where | None, str, str], Diagnostic] = {}
    for judged in judge(base, earlier)[1]:
        found.setdefault(_key(judged), judged.finding)
    for environment in environments_of(files):
        if all(changes_nothing(file.root, environment) for file in files):
            continue
        for judged in judge(load_set(files, environment, base), earlier)[1]:
            detail = f"{judged.finding.detail} (environment {environment})"
            found.setdefault(_key(judged), replace(judged.finding, detail=detail))
    allowed, stale = apply_allows(found.values(), [allow for file in files for allow in file.allows])
    grounds = sum(len(topology.spec.topics) for topology in base.topologies)
    return LintReport(tuple(in_order([*allowed, *stale])), len(files), grounds)


def _key(judged: LintFinding) -> tuple[Where | None, str, str]:
    return judged.finding.where, judged.finding.code, judged.cause


def in_order(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings sorted by file, line and column. Findings without a place come first."""
    return sorted(findings, key=lambda f: (f.where is not None, f.where, f.code, f.detail))

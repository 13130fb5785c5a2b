"""Linter: runs every rule over the base and every environment, applies allow-comments, and returns all findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, Severity, Where, has_errors
from kodoctl.topology.environments import changes_nothing
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.lint.registry import RULES, LintFinding, LintScope, Rule
from kodoctl.topology.lint.rules import (
    change_data,
    concurrency,
    exclusivity,
    flow,
    functions,
    lanes,
    naming,
    payloads,
    platform,
    retention,
    routes,
)
from kodoctl.topology.lint.suppressions import apply_allows
from kodoctl.topology.load import environments_of, load_set
from kodoctl.topology.payload_schemas import PayloadFile

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import LoadedTopology, SourceFile, TopologySet
    from kodoctl.topology.team_rules.rule_run import RuleCount, TeamRules

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
    functions,
    platform,
)  # imported, they register


@dataclass(frozen=True, slots=True)
class LintReport:
    """Result of `lint`. `findings`: all, sorted by place, those included that a comment allows (`allowed_because` is
    the reason); `files`, `ground_topics`: numbers of them, the latter in the base; `rules`: counts of each team rule,
    () if there are none.
    """

    findings: tuple[Diagnostic, ...]
    files: int
    ground_topics: int
    rules: tuple[RuleCount, ...] = ()

    @property
    def failed(self) -> bool:
        """True if there is an error that no comment allows."""
        return has_errors(self.findings)

    @property
    def warned(self) -> bool:
        """True if there is a warning that no comment allows."""
        return any(f.severity is Severity.WARNING and f.allowed_because is None for f in self.findings)


Earlier = Mapping[tuple[str, str], PayloadFile]
_Key = tuple[Where | None, str, str, str | None]
"""(place, code, cause, reason of an exemption): findings with the same key in several environments are one."""


def rules_of(code: str) -> list[Rule]:
    """Returns the checks that are registered for a code; [] for a code that lint does not have."""
    return [one for one in RULES if one.code == code]


def judge(
    topologies: TopologySet, earlier: Earlier | None = None, rules: TeamRules | None = None
) -> tuple[tuple[Expansion, ...], list[LintFinding]]:
    """Judges the topologies of one environment by every lint rule and by team rules, and returns (their expansions, all
    findings), those of loading included. Allow-comments are not applied. `earlier`: (file, ground topic) -> the payload
    schema before the change under review, None: no revision to compare with; `rules` None: no team rules judge.
    """
    expansions = tuple(expand(topology) for topology in topologies.topologies)
    loading = [LintFinding(finding, finding.detail) for finding in topologies.findings]
    scope = LintScope(expansions, earlier or {})
    return expansions, _with_team_rules([*loading, *_run_rules(scope)], scope, topologies.environment, rules)


def _with_team_rules(
    found: list[LintFinding], scope: LintScope, environment: str | None, rules: TeamRules | None
) -> list[LintFinding]:
    if rules is None:
        return found
    judges = rules.within(scope, environment)
    return [*judges.raise_severities(found), *judges.judge()]


def _run_rules(scope: LintScope) -> list[LintFinding]:
    return [judged for rule in RULES for judged in rule.run(scope)]


def check_expanded(
    expansions: Sequence[Expansion], environment: str | None = None, rules: TeamRules | None = None
) -> list[Diagnostic]:
    """Findings of every lint rule for all topologies of one environment, allow-comments applied. `environment`: for the
    team rules in `rules`, None: the base; `rules`: their findings, and faults of their files, are in the result as
    well; None: no team rules judge.
    """
    scope = LintScope(tuple(expansions))
    found = _with_team_rules(_run_rules(scope), scope, environment, rules)
    findings, _ = _apply_allow_comments(found, [one.topology.source for one in expansions])
    return in_order([*(rules.findings if rules else ()), *findings])


def check_set(
    files: Sequence[SourceFile], environment: str | None, rules: TeamRules | None = None
) -> tuple[tuple[Expansion, ...], list[Diagnostic]]:
    """(expansions, findings) of one environment (None: base), allow-comments applied: the input of plan and apply.
    Errors of loading are findings, too. `rules`: team rules that judge as well, with the faults of their files.
    """
    expansions, judged = judge(load_set(files, environment), rules=rules)
    findings, _ = _apply_allow_comments(judged, files)
    return expansions, in_order([*(rules.findings if rules else ()), *findings])


def check_loaded(topology: LoadedTopology) -> list[Diagnostic]:
    """Findings of every lint rule about one topology, in the environment in which it was loaded, without the findings
    of loading. Allow-comments are applied.
    """
    return check_expanded([expand(topology)])


def _apply_allow_comments(
    judged: Iterable[LintFinding], files: Sequence[SourceFile]
) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(all findings, allowed ones with their reason; warnings about comments without effect)."""
    every = list(judged)
    allows = [allow for file in files for allow in file.allows]
    return apply_allows([one.finding for one in every], allows, [one.finding for one in every if one.is_firm])


def lint(files: Sequence[SourceFile], earlier: Earlier | None = None, rules: TeamRules | None = None) -> LintReport:
    """Lints the files in the base and in every environment. A finding that only an environment has, or has as a firm
    error (a team rule makes it an error that no comment allows), ends its first line in "(environment NAME)". Comments
    and exemptions without effect are not reported if a file has errors of loading, as long as no rule can judge it.

    `earlier`: (file, ground topic) -> the payload schema before the change under review; `rules`: team rules that judge
    as well.
    """
    base = load_set(files, None)
    all_loaded = not base.findings
    found: dict[_Key, LintFinding] = {}
    for judged in judge(base, earlier, rules)[1]:
        found.setdefault(_key(judged), judged)
    for environment in environments_of(files):
        if rules is None and all(changes_nothing(file.root, environment) for file in files):
            continue
        topologies = load_set(files, environment, base)
        all_loaded &= not topologies.findings
        for judged in judge(topologies, earlier, rules)[1]:
            head, *rest = judged.finding.detail.split("\n")
            detail = "\n".join([f"{head} (environment {environment})", *rest])
            there = replace(judged, finding=replace(judged.finding, detail=detail))
            if found.setdefault(key := _key(judged), there).is_firm < there.is_firm:
                found[key] = there  # a warning in the base, and an error in an environment
    allowed, stale = _apply_allow_comments(found.values(), files)
    grounds = sum(len(topology.spec.topics) for topology in base.topologies)
    if not all_loaded:
        stale = []  # what a comment allows may be found once every file can be judged
    if rules is not None:
        stale += [*rules.findings, *(rules.leftovers(environments_of(files)) if all_loaded else ())]
    return LintReport(tuple(in_order([*allowed, *stale])), len(files), grounds, rules.counts if rules else ())


def _key(judged: LintFinding) -> _Key:
    return judged.finding.where, judged.finding.code, judged.cause, judged.finding.allowed_because


def in_order(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings sorted by file, line and column. Findings without a place come first."""
    return sorted(findings, key=lambda f: (f.where is not None, f.where, f.code, f.detail))

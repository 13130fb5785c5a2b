"""One run of team rules over the topologies of a command, environment by environment: findings, and what was checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, Severity, note, warning
from kodoctl.topology.lint.registry import LintFinding, RuleMatch, findings_of
from kodoctl.topology.load import BASE
from kodoctl.topology.target_flags import fits
from kodoctl.topology.team_rules.discovery import folder_of
from kodoctl.topology.team_rules.field_tests import shown_value
from kodoctl.topology.team_rules.rule_objects import objects_of

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.topology.lint.registry import LintScope
    from kodoctl.topology.loaded_topology import LoadedTopology
    from kodoctl.topology.team_rules.rule_objects import RuleObject
    from kodoctl.topology.team_rules.rule_reader import PlacedExemption, PlacedRule

K310: Final = "against a rule of this repository"


@dataclass(frozen=True, slots=True)
class RuleCount:
    """Number of objects that a rule judged and refused, over all environments. `exempt`: of the refused ones."""

    name: str
    where: Where
    checked: int
    refused: int
    exempt: int


@dataclass(slots=True)
class _Tally:
    """Names of the objects that a rule judged, refused and exempted; exemptions that were needed."""

    checked: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    exempt: set[str] = field(default_factory=set)
    needed: set[int] = field(default_factory=set)


class TeamRules:
    """The rules of one command. `findings`: errors in the rules files; `today`: ISO date, after which exemptions end.
    `judge` and `raise_severities` count what they check, so that one object serves one command.
    """

    def __init__(self, rules: Iterable[PlacedRule], findings: Iterable[Diagnostic], today: str) -> None:
        self._rules: list[PlacedRule] = []
        for one in rules:  # a rule of a revision that is still the same judges once
            self._rules += [] if one in self._rules else [one]
        self._tallies = [_Tally() for _ in self._rules]
        self._today = today
        self.findings = tuple(findings)

    def judge(self, scope: LintScope, environment: str | None) -> Iterator[LintFinding]:
        """Yields the findings of all rules in one environment; None: the base. Exempted findings have the reason."""
        objects: dict[str, list[RuleObject]] = {}
        for rule, tally in zip(self._rules, self._tallies, strict=True):
            if rule.spec.of is None or not _counts_in(rule, environment):
                continue
            if rule.spec.of not in objects:
                objects[rule.spec.of] = list(objects_of(scope, rule.spec.of))
            files = {one.topology.source.name for one in scope.expansions if _is_about(rule, one.topology)}
            groups: dict[str | None, list[RuleMatch]] = {}
            for one in objects[rule.spec.of]:
                if one.expansion.topology.source.name in files and not any(
                    test.failure(one.value(scope, test.path)) for test in rule.select
                ):
                    tally.checked.add(one.name)
                    for reason, match in self._matches(rule, tally, one, scope):
                        groups.setdefault(reason, []).append(match)
            for reason, matches in groups.items():
                for judged in findings_of(matches, "K310", Severity(rule.spec.severity), K310):
                    yield replace(judged, finding=replace(judged.finding, allowed_because=reason))

    def _matches(
        self, rule: PlacedRule, tally: _Tally, one: RuleObject, scope: LintScope
    ) -> Iterator[tuple[str | None, RuleMatch]]:
        """Yields (reason of an exemption or None, violation) of each test that an object fails."""
        for path, failure in _failures(rule, one, scope):
            tally.refused.add(one.name)
            reason, ended = self._exemption(rule, tally, one.name)
            words = [failure, _cited(rule), rule.spec.hint or "", ended]
            yield reason, RuleMatch(one.where(scope, path), "\n".join(filter(None, words)), one.name)

    def _exemption(self, rule: PlacedRule, tally: _Tally, name: str) -> tuple[str | None, str]:
        """(reason of the exemption that counts today for an object, None: there is none; text about one that ended)."""
        ended = ""
        for number, one in enumerate(rule.exemptions):
            if not fits(one.spec.object, name):
                continue
            tally.needed.add(number)
            if one.spec.until is None or one.spec.until >= self._today:
                tally.exempt.add(name)
                return f"{one.spec.because}{f', until {one.spec.until}' if one.spec.until else ''}", ""
            ended = f"the exemption at {one.where} ended on {one.spec.until}"
        return None, ended

    def raise_severities(
        self, findings: Iterable[LintFinding], topologies: Sequence[LoadedTopology], environment: str | None
    ) -> list[LintFinding]:
        """The findings of lint. Those with a code that a rule names are errors, which no comment allows."""
        found = list(findings)
        for rule, tally in zip(self._rules, self._tallies, strict=True):
            if rule.spec.code is None or not _counts_in(rule, environment):
                continue
            names = {one.source.name: one.spec.name for one in topologies if _is_about(rule, one)}
            tally.checked.update(names.values())
            for index, one in enumerate(found):
                name = names.get(one.finding.where.file) if one.finding.where else None
                if one.finding.code != rule.spec.code or name is None:
                    continue
                tally.refused.add(name)
                reason, ended = self._exemption(rule, tally, name)
                if reason is None:
                    detail = "\n".join(filter(None, [one.finding.detail, _cited(rule), rule.spec.hint or "", ended]))
                    raised = replace(one.finding, severity=Severity.ERROR, detail=detail)
                    found[index] = replace(one, finding=raised, is_firm=True)
        return found

    @property
    def counts(self) -> tuple[RuleCount, ...]:
        """Numbers of each rule, in the order of the files."""
        return tuple(
            RuleCount(rule.name, rule.where, len(tally.checked), len(tally.refused), len(tally.exempt))
            for rule, tally in zip(self._rules, self._tallies, strict=True)
        )

    def leftovers(self, environments: Iterable[str]) -> Iterator[Diagnostic]:
        """Yields notes about rules that judged nothing, and warnings about exemptions that exempt nothing. Call it when
        all environments were judged. `environments`: those of the files.
        """
        known = (*environments, BASE)
        for rule, tally in zip(self._rules, self._tallies, strict=True):
            if not tally.checked and not rule.revision:
                yield _unused(rule, known)
            for number, one in enumerate(rule.exemptions):
                judged = any(fits(one.spec.object, name) for name in tally.checked)
                if judged and number not in tally.needed and not rule.revision:
                    yield _needless(rule, one)


def _failures(rule: PlacedRule, one: RuleObject, scope: LintScope) -> Iterator[tuple[str, str]]:
    """Yields (path of the field, text) of each test of a rule that an object fails, and of its condition."""
    for test in rule.require:
        value = one.value(scope, test.path)
        if should := test.failure(value):
            there = "has no value" if value is None else f"is {shown_value(value)}"
            yield test.path, f"{test.path} {there}: {should}"
    if rule.condition is not None and (text := rule.condition.failure(lambda path: one.value(scope, path))):
        fields = rule.condition.fields
        yield fields[0][0] if len(fields) == 1 else "name", text


def _counts_in(rule: PlacedRule, environment: str | None) -> bool:
    return not rule.spec.environments or (environment or BASE) in rule.spec.environments


def _is_about(rule: PlacedRule, topology: LoadedTopology) -> bool:
    """True if a rule judges a topology: it lies below the folder of the rules file, and is production as asked for."""
    inside = rule.folder is None or folder_of(topology.source).is_relative_to(rule.folder)
    chosen = rule.named is None or topology.spec.name in rule.named
    return inside and chosen and rule.spec.production in (None, topology.production)


def _cited(rule: PlacedRule) -> str:
    """The rule with its reason, in the words of its team."""
    since = f" at {rule.revision}" if rule.revision else ""
    return f"rule {rule.name} ({rule.where.file}:{rule.where.line}{since}): {rule.spec.because}"


def _unused(rule: PlacedRule, known: Sequence[str]) -> Diagnostic:
    """The finding about a rule that judged nothing: a warning if an environment in it looks misspelled."""
    unknown = [one for one in rule.spec.environments if one not in known]
    for one in unknown:
        if near := get_close_matches(one, known, 1):
            detail = f"{rule.name}: no file has the environment {one!r}; did you mean {near[0]!r}?"
            return warning("K312", "a rule that judged nothing", detail, rule.where)
    kind = rule.spec.of or "topologies"
    why = f"no file has the environment {', '.join(unknown)}" if unknown else _why_nothing(rule, kind)
    return note("K312", "a rule that judged nothing", f"{rule.name}: {why}", rule.where)


def _why_nothing(rule: PlacedRule, kind: str) -> str:
    words = kind.replace("_", " ")
    if rule.spec.production is not None:
        return f"none of the {words} is in an environment with `production: {str(rule.spec.production).lower()}`"
    return f"none of the {words} fits its `where`" if rule.select else f"these files have no {words} for it"


def _needless(rule: PlacedRule, one: PlacedExemption) -> Diagnostic:
    detail = f"the rule {rule.name} refuses nothing at {one.spec.object}: remove the exemption"
    return warning("K019", "an allowance that allows nothing", detail, one.where)

"""One run of team rules over the topologies of a command, environment by environment: findings, and what was checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, Severity, note, warning
from kodoctl.topology.lint.registry import LintFinding, RuleMatch, findings_of
from kodoctl.topology.load import BASE
from kodoctl.topology.target_flags import fits
from kodoctl.topology.team_rules.discovery import folder_of
from kodoctl.topology.team_rules.field_tests import shown_value
from kodoctl.topology.team_rules.rule_objects import ObjectTable

if TYPE_CHECKING:
    from pathlib import Path

    from kodoctl.errors import Where
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.lint.registry import LintScope
    from kodoctl.topology.team_rules.rule_reader import PlacedExemption, PlacedRule

K310: Final = "against a rule of this repository"


@dataclass(frozen=True, slots=True)
class RuleCount:
    """Numbers of objects that a rule judged (`checked`) and refused; an object counts once, in however many
    environments it was. `exempt`: number of the refused ones that an exemption allows. `name`, `where`: of the rule.
    """

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
    """The rules of one command, equal ones once. `findings`: errors in the rules files, and warnings about those of a
    revision; `today`: ISO date, the last day of exemptions until then; `earlier`: returns the files of an environment
    (None: the base) before the change under review, None: no revision is given, or there was no such environment. The
    object counts all that it checks, and so serves one command.
    """

    def __init__(
        self,
        rules: Iterable[PlacedRule],
        findings: Iterable[Diagnostic],
        today: str,
        earlier: Callable[[str | None], LintScope | None] = lambda _: None,
    ) -> None:
        self.rules: list[PlacedRule] = []
        alike: dict[str, list[PlacedRule]] = {}
        for one in rules:  # a rule of a revision that is still the same judges once
            known = alike.setdefault(one.name, [])
            if one not in known:
                known.append(one)
                self.rules.append(one)
        self.tallies = [_Tally() for _ in self.rules]
        self._today, self._earlier = today, earlier
        self.findings = tuple(findings)

    def within(self, scope: LintScope, environment: str | None) -> EnvironmentJudge:
        """The rules in one environment (None: the base)."""
        return EnvironmentJudge(self, scope, partial(self._earlier, environment), environment)

    def exemption(self, rule: PlacedRule, tally: _Tally, name: str) -> tuple[str | None, str]:
        """Returns (reason of the exemption that counts today for the object `name`, None: there is none; text about one
        that ended, "" for none), and counts the exemption in `tally`.
        """
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

    @property
    def counts(self) -> tuple[RuleCount, ...]:
        """Numbers of each rule for all that was judged up to now, in the order of the rules."""
        return tuple(
            RuleCount(rule.name, rule.where, len(tally.checked), len(tally.refused), len(tally.exempt))
            for rule, tally in zip(self.rules, self.tallies, strict=True)
        )

    def leftovers(self, environments: Iterable[str]) -> Iterator[Diagnostic]:
        """Yields notes about rules that judged nothing (warnings if they name an environment that looks misspelt), and
        warnings about exemptions that fit judged objects, none of which needed them; none about rules of a git
        revision. Call it when all environments were judged. `environments`: those of the files.
        """
        known = (*environments, BASE)
        for rule, tally in zip(self.rules, self.tallies, strict=True):
            if not tally.checked and not rule.revision:
                yield _unused(rule, known)
            for number, one in enumerate(rule.exemptions):
                judged = any(fits(one.spec.object, name) for name in tally.checked)
                if judged and number not in tally.needed and not rule.revision:
                    yield _needless(rule, one)


class _View:
    """Objects of one environment, and which of them a rule is about."""

    def __init__(self, scope: LintScope) -> None:
        self.scope = scope
        self._tables: dict[str, ObjectTable] = {}
        topologies = [one.topology for one in scope.expansions]
        self._files = {one.source.name: (one, folder_of(one.source)) for one in topologies}
        self._about: dict[tuple[Path | None, frozenset[str] | None, bool | None], frozenset[str]] = {}

    def table(self, kind: str) -> ObjectTable:
        """All objects of a kind."""
        if kind not in self._tables:
            self._tables[kind] = ObjectTable(self.scope, kind)
        return self._tables[kind]

    def files(self, rule: PlacedRule, *, production: bool | None) -> frozenset[str]:
        """Files below the folder of a rule's file that the rule is about. `production`: whether they are production,
        None: either.
        """
        key = (rule.folder, rule.named, production)
        if key not in self._about:
            self._about[key] = frozenset(
                name
                for name, (topology, folder) in self._files.items()
                if (rule.folder is None or folder.is_relative_to(rule.folder))
                and (rule.named is None or topology.spec.name in rule.named)
                and production in (None, topology.production)
            )
        return self._about[key]

    def chosen(self, rule: PlacedRule, kind: str) -> frozenset[int]:
        """Numbers of the objects that a rule judges."""
        table = self.table(kind)
        files = self.files(rule, production=rule.spec.production)
        found = frozenset[int]().union(*(table.by_file.get(file, ()) for file in files))
        for test in rule.select:
            fitting = (numbers for values, numbers in table.groups((test.path,)) if not test.failure(values[0]))
            found &= frozenset[int]().union(*fitting)
        return found


class EnvironmentJudge:
    """The rules in one environment. `earlier`: returns the same files before the change under review, None: not known.
    What a rule would have judged there it judges also now, so that no change frees itself of a rule by a label or a
    property.
    """

    def __init__(
        self, rules: TeamRules, scope: LintScope, earlier: Callable[[], LintScope | None], environment: str | None
    ) -> None:
        self._rules, self._now, self._earlier = rules, _View(scope), earlier
        self._counting = [
            (rule, tally)
            for rule, tally in zip(rules.rules, rules.tallies, strict=True)
            if not rule.spec.environments or (environment or BASE) in rule.spec.environments
        ]

    def judge(self) -> Iterator[LintFinding]:
        """Yields the findings of all rules but those about a code of lint, and counts for each rule the objects that it
        judged, refused and exempted. An exempted finding has the reason of its exemption (`allowed_because`).
        """
        for rule, tally in self._counting:
            if rule.spec.of is None:
                continue
            table = self._now.table(rule.spec.of)
            chosen = self._chosen(rule, rule.spec.of)
            tally.checked.update(table.objects[number].name for number in chosen)
            groups: dict[str | None, list[RuleMatch]] = {}
            for number, path, failure in sorted(_failures(rule, table, chosen), key=lambda one: one[0]):
                one = table.objects[number]
                tally.refused.add(one.name)
                reason, ended = self._rules.exemption(rule, tally, one.name)
                words = [failure, _cited(rule), rule.spec.hint or "", ended]
                match = RuleMatch(one.where(self._now.scope, path), "\n".join(filter(None, words)), one.name)
                groups.setdefault(reason, []).append(match)
            for reason, matches in groups.items():
                for judged in findings_of(matches, "K310", Severity(rule.spec.severity), K310):
                    yield replace(judged, finding=replace(judged.finding, allowed_because=reason))

    @cached_property
    def _then(self) -> _View | None:
        earlier = self._earlier()
        return None if earlier is None else _View(earlier)

    def _chosen(self, rule: PlacedRule, kind: str) -> frozenset[int]:
        found = self._now.chosen(rule, kind)
        if not (rule.select or rule.spec.production is not None) or self._then is None:
            return found
        before = {self._then.table(kind).objects[number].name for number in self._then.chosen(rule, kind)}
        inside = self._now.files(rule, production=None)
        objects = self._now.table(kind).objects
        return found | {
            number
            for file in inside
            for number in self._now.table(kind).by_file.get(file, ())
            if objects[number].name in before
        }

    def raise_severities(self, findings: Iterable[LintFinding]) -> list[LintFinding]:
        """Returns the findings of lint, in their order. A finding with a code that a rule names becomes an error that
        no comment allows, if the rule judges a topology that the finding is about, and no exemption counts for that
        topology; others stay as they are. Counts for each such rule the topologies that it judged, refused and
        exempted.
        """
        found = list(findings)
        for rule, tally in self._counting:
            if rule.spec.code is None:
                continue
            about = self._about(rule)
            tally.checked.update(one.name for one in about)
            for index, one in enumerate(found):
                if one.finding.code != rule.spec.code or not (names := self._topologies_of(one, about)):
                    continue
                tally.refused.update(names)
                judged = [self._rules.exemption(rule, tally, name) for name in names]
                if (ended := next((ended for reason, ended in judged if reason is None), None)) is not None:
                    detail = "\n".join(filter(None, [one.finding.detail, _cited(rule), rule.spec.hint or "", ended]))
                    raised = replace(one.finding, severity=Severity.ERROR, detail=detail)
                    found[index] = replace(one, finding=raised, is_firm=True)
        return found

    def _about(self, rule: PlacedRule) -> list[Expansion]:
        """Topologies that a rule about a code judges."""
        numbers = self._chosen(rule, "topologies")
        return [self._now.table("topologies").objects[number].expansion for number in sorted(numbers)]

    def _topologies_of(self, one: LintFinding, about: Sequence[Expansion]) -> list[str]:
        """Names of those of these topologies that a finding is about: the one of its file, else all with a topic to
        which that file's policies of the namespace apply; [] if it is about none of them.
        """
        file = one.finding.where.file if one.finding.where else None
        if mine := [each.name for each in about if each.topology.source.name == file]:
            return mine
        spaces = {each.namespace for each in self._now.scope.expansions if each.topology.source.name == file}
        others = (each for each in about if one.topics and each.namespace in spaces)
        return [each.name for each in others if one.topics & {topic.name.local for topic in each.topics}]


def _failures(rule: PlacedRule, table: ObjectTable, chosen: frozenset[int]) -> Iterator[tuple[int, str, str]]:
    """Yields (number of the object, path of the field, text) of each test of a rule that an object fails, and of its
    condition.
    """
    for test in rule.require:
        for (value,), numbers in table.groups((test.path,)):
            if should := test.failure(value):
                there = "has no value" if value is None else f"is {shown_value(value)}"
                yield from ((number, test.path, f"{test.path} {there}: {should}") for number in numbers & chosen)
    if rule.condition is not None:
        paths = tuple(path for path, _ in rule.condition.fields)
        for values, numbers in table.groups(paths):
            if text := rule.condition.failure(dict(zip(paths, values, strict=True)).get):
                yield from ((number, paths[0] if len(paths) == 1 else "name", text) for number in numbers & chosen)


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
        also = " and fits its `where`" if rule.select else ""
        return f"none of the {words} is in an environment with `production: {str(rule.spec.production).lower()}`{also}"
    return f"none of the {words} fits its `where`" if rule.select else f"these files have no {words} for it"


def _needless(rule: PlacedRule, one: PlacedExemption) -> Diagnostic:
    detail = f"the rule {rule.name} refuses nothing at {one.spec.object}: remove the exemption"
    return warning("K019", "an allowance that allows nothing", detail, one.where)

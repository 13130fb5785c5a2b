"""Reader of rules files: from the nodes of a file to rules that can be held against topologies, and all errors with
their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import resources
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kodoctl.errors import Diagnostic, Where, error
from kodoctl.errors.codes.topology_codes import TOPOLOGY_CODES
from kodoctl.topology.lint.suppressions import TEAM_RULE
from kodoctl.topology.team_rules.field_tests import CompiledTest, compile_test
from kodoctl.topology.team_rules.rules_model import RULES_VERSION, RulesFile
from kodoctl.topology.yaml.nodes import Node, node_at, parse

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import SourceFile
    from kodoctl.topology.team_rules.rule_conditions import CompiledCondition
    from kodoctl.topology.team_rules.rules_model import Exemption, FieldTest, SetUse, TeamRule

SETS: Final = ("production",)
_NAME: Final = re.compile("[A-Za-z0-9._-]+")
K311: Final = "a rule that cannot be checked"


@dataclass(frozen=True, slots=True)
class PlacedExemption:
    """An exemption and its place in the rules file."""

    spec: Exemption
    where: Where = field(compare=False)


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule that can be checked. `name`: SET/RULE for one of a shipped set; `select`: tests that choose the objects to
    judge; `require`, `condition`: the tests that they have to pass; `where`: its place; `folder`: absolute path, the
    topologies in and below it are judged, None: all; `revision`: the git revision of the rules file, "" for the file on
    disk; `named`: only topologies with these names are judged, None: all. Rules are equal if they judge alike, whatever
    their place.
    """

    name: str
    spec: TeamRule
    select: tuple[CompiledTest, ...]
    require: tuple[CompiledTest, ...]
    condition: CompiledCondition | None
    exemptions: tuple[PlacedExemption, ...]
    where: Where = field(compare=False)
    folder: Path | None
    revision: str = field(default="", compare=False)
    named: frozenset[str] | None = None


def read_rules(
    source: SourceFile, folder: Path | None, revision: str = ""
) -> tuple[list[PlacedRule], list[Diagnostic]]:
    """Returns (rules of a rules file, all errors in it). A rule with an error is left out. There are no rules at all if
    the file cannot be read or parsed, is no map, or has another version. `folder`, `revision`: as in `PlacedRule`.
    """
    root = source.root
    if root is None or source.findings:
        return [], list(source.findings)
    spec, findings, wrong_form = _validate(root)
    if spec is None:
        return [], findings
    rules: dict[str, tuple[TeamRule, tuple[str, ...]]] = {}  # name -> (rule, path of its place)
    for name, use in spec.use.items():
        chosen = _of_set(name, use, root, findings)
        rules |= {f"{name}/{one}": (rule, ("use", name)) for one, rule in chosen.items()}
    rules |= {name: (rule, ("rules", name)) for name, rule in spec.rules.items()}
    numbers = (number for number in count() if ("exempt", number) not in wrong_form)
    exemptions = [PlacedExemption(one, _item(root, "exempt", next(numbers))) for one in spec.exempt]
    findings += _unknown_rules(exemptions, rules, wrong_form)
    placed: list[PlacedRule] = []
    for name, (rule, path) in rules.items():
        select, wrong = _compile(rule, rule.where, root, (*path, "where"))
        require, more = _compile(rule, rule.require, root, (*path, "require"))
        condition, faults = _compile_condition(rule, root, path)
        wrong += [*more, *faults, *_unknown_code(rule, root, path)]
        if path[0] == "rules" and not _NAME.fullmatch(name):
            detail = f"{name!r} is no name: letters, digits, `.`, `_` and `-`"
            wrong.append(error("K311", K311, detail, node_at(root, path)[0].key_where))
        findings += wrong
        if not wrong:
            own = tuple(one for one in exemptions if one.spec.rule == name)
            place = node_at(root, path)[0].key_where
            placed.append(PlacedRule(name, rule, select, require, condition, own, place, folder, revision))
    return placed, findings


def _item(root: Node, *path: str | int) -> Where:
    """Place of the first key of a map in a list: that of the map itself is a dash or a bracket."""
    node = node_at(root, path)[0]
    return next((one.key_where for one in node.children()), node.where)


def _validate(root: Node) -> tuple[RulesFile | None, list[Diagnostic], frozenset[tuple[str | int, ...]]]:
    """(the file without entries of a wrong form, errors in these, their paths): the file is None if nothing is left."""
    if not isinstance(root.value, dict):
        detail = f"the file should be a map that begins with `version: {RULES_VERSION}`"
        return None, [error("K004", "wrong value", detail, root.where)], frozenset()
    version = root.value.get("version")
    if version is not None and (version.value != RULES_VERSION or isinstance(version.value, bool)):
        detail = f"this kodoctl reads version {RULES_VERSION} of rules files: write `version: {RULES_VERSION}`"
        return None, [error("K007", "unknown version", detail, version.where)], frozenset()
    try:
        return RulesFile.of_file(root.plain()), [], frozenset()
    except ValidationError as problem:
        from kodoctl.topology.json_schema.rules_schema import rules_schema
        from kodoctl.topology.yaml.validation_errors import from_validation

        details = problem.errors(include_url=False)
        findings = from_validation(details, root, rules_schema())
    wrong = frozenset(detail["loc"][:2] for detail in details)
    return RulesFile.of_file(_without(root, wrong)), findings, wrong


def _without(root: Node, wrong: frozenset[tuple[str | int, ...]]) -> dict[str, Any]:
    """The file as plain values, without the sections and the entries at these paths."""
    document: Any = root.plain()
    kept: dict[str, Any] = {"version": RULES_VERSION}
    for section, content in document.items():
        if section == "version" or (section,) in wrong:
            continue
        if isinstance(content, dict):
            kept[section] = {name: one for name, one in content.items() if (section, name) not in wrong}
        else:
            kept[section] = [one for number, one in enumerate(content) if (section, number) not in wrong]
    return kept


def _of_set(name: str, use: SetUse, root: Node, findings: list[Diagnostic]) -> Mapping[str, TeamRule]:
    """The rules of a shipped set as the file uses it. Adds names that are unknown to `findings`."""
    if name not in SETS:
        detail = f"there is no set {name!r}; sets: {', '.join(SETS)}"
        findings.append(error("K311", K311, detail, node_at(root, ("use", name))[0].key_where))
        return {}
    rules = shipped_set(name).rules
    for number, one in enumerate(use.without):
        if one not in rules:
            where = node_at(root, ("use", name, "without", number))[0].where
            findings.append(error("K311", K311, f"{name} has no rule {one!r}{_nearest(one, rules)}", where))
    return {one: rule for one, rule in rules.items() if one not in use.without}


@cache
def shipped_set(name: str) -> RulesFile:
    """A set of rules that comes with kodoctl; `name`: one of SETS."""
    data = resources.files("kodoctl.topology.team_rules").joinpath("sets", f"{name}.yaml").read_bytes()
    root, _ = parse(data, name)
    assert root is not None
    return RulesFile.of_file(root.plain())


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, 1)
    return (
        f"; did you mean {near[0]!r}?" if near else f"; rules: {', '.join(known)}" if known else "; there are no rules"
    )


def _unknown_rules(
    exemptions: list[PlacedExemption], rules: Mapping[str, Any], wrong_form: frozenset[tuple[str | int, ...]]
) -> Iterator[Diagnostic]:
    """Yields an error for each exemption of a rule that is not there. `wrong_form`: paths of sections and of entries
    whose form is wrong; nobody knows which rules they would have.
    """
    wrong = {str(name) for _, *names in wrong_form for name in names}
    for one in exemptions:
        name = one.spec.rule
        is_read = ("use" if "/" in name else "rules",) not in wrong_form
        if is_read and name not in rules and wrong.isdisjoint({name, name.partition("/")[0]}):
            detail = f"an exemption of the rule {name!r}, which is not here{_nearest(name, rules)}"
            yield error("K311", K311, detail, one.where)


def _unknown_code(rule: TeamRule, root: Node, path: tuple[str, ...]) -> Iterator[Diagnostic]:
    known = {code for group in TOPOLOGY_CODES.values() for code in group} - {TEAM_RULE}
    if rule.code is not None and rule.code not in known:
        detail = f"{rule.code} is no code of lint; `docs/reference/codes.md` lists them, K001 to K306"
        yield error("K311", K311, detail, node_at(root, (*path, "code"))[0].where)


def _compile(
    rule: TeamRule, tests: Mapping[str, FieldTest], root: Node, path: tuple[str, ...]
) -> tuple[tuple[CompiledTest, ...], list[Diagnostic]]:
    """(the tests that can be checked, errors in the others). `path`: of the tests in the file."""
    compiled: list[CompiledTest] = []
    findings: list[Diagnostic] = []
    for name, test in tests.items():
        assert rule.of is not None  # the model sees to it
        one, problems = compile_test(rule.of, name, test)
        compiled += [one] if one else []
        for operator, text in problems:
            node, _ = node_at(root, (*path, name, operator))
            where = node.where if operator else node.key_where
            detail = f"{name}.{operator}: {text}" if operator else text
            findings.append(error("K311", K311, detail, where))
    return tuple(compiled), findings


def _compile_condition(
    rule: TeamRule, root: Node, path: tuple[str, ...]
) -> tuple[CompiledCondition | None, list[Diagnostic]]:
    """(the condition of a rule, errors in it): the condition is None if the rule has none, or a wrong one."""
    if rule.condition is None:
        return None, []
    assert rule.of is not None  # the model sees to it
    from kodoctl.topology.team_rules.rule_conditions import compile_condition

    condition, problems = compile_condition(rule.of, rule.condition)
    where = node_at(root, (*path, "condition"))[0].where
    return condition, [error("K311", K311, f"condition: {text}", where) for text in problems]

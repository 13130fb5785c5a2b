"""Reading of rules files: every error at once, with its place."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from kodoctl.topology.json_schema.rules_schema import rules_schema_text
from kodoctl.topology.load import source_of
from kodoctl.topology.team_rules.rule_reader import SETS, read_rules, shipped_set
from kodoctl.topology.team_rules.rules_model import RulesFile
from tests.source_roots import ROOT
from tests.unit.topology.team_rules.rules_files import NAME
from tests.unit.topology.topology_files import MARK

RULE = "{because: b, of: topics, require: {name: x}}"


def found(text: str) -> list[tuple[str, str]]:
    """(code, detail) of the findings; if the text has a mark, the only finding is at it."""
    findings = read_rules(source_of(text.replace(MARK, "").encode(), NAME), None)[1]
    if MARK in text:
        before = text[: text.index(MARK)]
        (where,) = [one.where for one in findings]
        assert where is not None
        assert (where.line, where.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    return [(one.code, one.detail) for one in findings]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("§[]", "K004", "the file should be a map that begins with `version: 1`"),
        ("version: §2", "K007", "this kodoctl reads version 1 of rules files"),
        ("version: §true", "K007", "this kodoctl reads version 1 of rules files"),
        ("version: 1\nexempt: [{rule: a, object: b, because: c, until: §2027-02-31}]", "K004", "2027-02-31 is no day"),
        ("version: 1\nrules: {a: {because: §' ', of: topics, require: {name: x}}}", "K004", "not only spaces"),
        ("§rules: {}", "K006", "version is needed"),
        ("version: 1\n§ruls: {}", "K003", "did you mean 'rules'?"),
        ("version: 1\nrules: {§a: {of: topics, require: {name: x}}}", "K006", "rules.a.because is needed"),
        ("version: 1\nrules: {a: {because: b, of: §topic, require: {name: x}}}", "K004", "did you mean 'topics'?"),
        ("version: 1\nrules: {a: §{because: b, of: topics}}", "K004", "should have `of` with `require` or `condition`"),
        ("version: 1\nrules: {a: §{because: b, code: K305, of: topics}}", "K004", "it goes without `of`"),
        ("version: 1\nrules: {a: {because: b, code: §305}}", "K004", "the number 305"),
        ("version: 1\nrules: {a: {because: b, code: §K999}}", "K311", "K999 is no code of lint"),
        ("version: 1\nrules: {a: {because: b, code: §K310}}", "K311", "K310 is no code of lint"),
        (f"version: 1\nrules: {{§'a b': {RULE}}}", "K311", "'a b' is no name"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '{§equal: x}')}}}", "K003", "did you mean 'equals'?"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '§{}')}}}", "K004", "should have a test: present, equals"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '§{optional: true}')}}}", "K004", "should have a test"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '§{present: false, equals: x}')}}}", "K004", "stands alone"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '{§matches: }')}}}", "K015", "has no value"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '§{at_least: }')}}}", "K004", "`at_least` is empty"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '§{present: true, optional: true}')}}}", "K004", "contradict"),
        (f"version: 1\nrules: {{a: {RULE.replace('name: x', '§nam: x')}}}", "K311", "did you mean 'name'?"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '§4')}}}", "K311", "name.equals: 4 is no value of it"),
        (f"version: 1\nrules: {{a: {RULE.replace('x', '{matches: §(}')}}}", "K311", "is no regular expression"),
        (
            f"version: 1\nrules: {{a: {RULE[:-1]}, condition: §nam = 'x'}}}}",
            "K311",
            "condition: at character 1: topics has no",
        ),
        (
            f"version: 1\nrules: {{a: {RULE[:-1]}, condition: §labels = 'x'}}}}",
            "K311",
            "`labels` is a map: name a value",
        ),
        (
            f"version: 1\nrules: {{a: {RULE[:-1]}, condition: §name LIKE}}}}",
            "K311",
            "condition: at character 6: something",
        ),
        (f"version: 1\nrules: {{a: {RULE[:-1]}, condition: §partitions}}}}", "K311", "needed is a true or false"),
        ("version: 1\nuse: {§prod: {}}", "K311", "there is no set 'prod'; sets: production"),
        ("version: 1\nuse: {production: {without: [§one]}}", "K311", "production has no rule 'one'"),
        ("version: 1\nexempt: [{§rule: a, object: x, because: b}]", "K311", "which is not here; there are no rules"),
        (
            f"version: 1\nrules: {{owners: {RULE}}}\nexempt: [{{§rule: owner, object: x, because: b}}]",
            "K311",
            "did you mean 'owners'?",
        ),
        ("version: 1\nexempt: [{rule: a, object: x, because: b, until: §2027-13-01}]", "K004", "a text such as 2027"),
        ("version: 1\n§version: 1", "K002", "stands on line 1 already"),
    ],
)
def test_an_error_in_a_rules_file_has_its_place(text: str, code: str, said: str) -> None:
    ((number, detail),) = found(text)
    assert number == code
    assert said in detail


def test_all_errors_come_at_once_and_leave_the_other_rules() -> None:
    text = (
        "version: 1\n"
        "use: {prod: {}}\n"
        "rules:\n"
        f"  a: {RULE}\n"
        "  b: {because: b, of: topics, require: {nam: x, partitions: {at_least: x}}, where: {ownr: x}}\n"
    )
    rules, findings = read_rules(source_of(text.encode(), NAME), None)
    assert [one.name for one in rules] == ["a"]
    assert [one.code for one in findings] == ["K311"] * 4


def test_values_and_meaning_are_judged_together() -> None:
    """An error in the form of one entry hides neither another entry's error nor what the other rules find."""
    text = (
        "version: 1\n"
        "ruls: {}\n"
        "use: {production: 4}\n"
        "rules:\n"
        f"  a: {RULE}\n"
        "  b: {of: topics, require: {nam: x}}\n"
        "  c: {because: b, of: topics, require: {nam: x}}\n"
        "exempt:\n"
        "  - {rule: a, object: x, because: b, until: never}\n"
        "  - {rule: b, object: x, because: b}\n"
        "  - {rule: production/one-source, object: x, because: b}\n"
        "  - {rule: d, object: x, because: b}\n"
    )
    rules, findings = read_rules(source_of(text.encode(), NAME), None)
    assert [one.name for one in rules] == ["a"]
    places = [(one.code, one.where.line) for one in findings if one.where is not None]
    assert sorted(places) == [("K003", 2), ("K004", 3), ("K004", 9), ("K006", 6), ("K311", 7), ("K311", 12)]


@pytest.mark.parametrize("text", ["rules: []", "rules: {a: b}", "exempt: {}", "use: x", "rules: {1: {}}"])
def test_a_section_of_a_wrong_form_leaves_the_others(text: str) -> None:
    other = "exempt: [{rule: a, object: x, because: b}]" if text.startswith("use") else "use: {prod: {}}"
    codes = [code for code, _ in found(f"version: 1\n{text}\n{other}")]
    assert codes[0] in {"K003", "K004", "K006"}
    assert codes[-1] == "K311"


def test_an_exemption_of_a_rule_that_nobody_can_read_is_no_second_error() -> None:
    exempt = "exempt: [{rule: a, object: x, because: b}]"
    assert [code for code, _ in found(f"version: 1\nrules: []\n{exempt}")] == ["K004"]
    other = exempt.replace("a,", "production/x,")
    assert [code for code, _ in found(f"version: 1\nuse: []\n{other}")] == ["K004"]


def test_a_file_that_cannot_be_parsed_has_the_findings_of_its_text() -> None:
    assert [code for code, _ in found("version: [")] == ["K001"]


def test_shipped_sets_can_be_read_and_every_rule_has_a_reason() -> None:
    for name in SETS:
        rules, findings = read_rules(source_of(f"version: 1\nuse: {{{name}: {{}}}}".encode(), NAME), None)
        assert not findings
        assert [one.name for one in rules] == [f"{name}/{rule}" for rule in shipped_set(name).rules]


def test_rules_of_a_set_can_be_left_out() -> None:
    text = "version: 1\nuse: {production: {without: [one-source]}}"
    rules, _ = read_rules(source_of(text.encode(), NAME), None)
    assert "production/one-source" not in [one.name for one in rules]
    assert len(rules) == len(shipped_set("production").rules) - 1


def test_the_schema_in_the_repository_describes_every_key() -> None:
    text = rules_schema_text()
    assert (ROOT / "schemas/kodoctl-rules.v1.json").read_text(encoding="utf-8") == text + "\n"
    document = yaml.safe_load(f"version: 1\nuse: {{production: {{}}}}\nrules: {{a: {RULE}}}")
    jsonschema.Draft202012Validator(json.loads(text)).validate(document)
    for name in RulesFile.model_fields:
        assert f'"{name}": {{' in text
    assert text.count('"description": ""') == 0

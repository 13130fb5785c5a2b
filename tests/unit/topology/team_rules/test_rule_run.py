"""Team rules held against topologies: places, values in effect, environments, exemptions, counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.errors import Severity
from kodoctl.topology.lint.linter import lint
from kodoctl.topology.lint.registry import LintScope
from kodoctl.topology.load import source_of
from kodoctl.topology.team_rules.rule_objects import RuleObject
from kodoctl.topology.team_rules.rule_reader import read_rules
from kodoctl.topology.team_rules.rule_run import TeamRules
from tests.unit.topology.team_rules.rules_files import NAME, TODAY, judged, of_rules
from tests.unit.topology.topology_files import FILE, MARK, marked

OWNERS = (
    "rules: {owners: {because: Somebody is paged., hint: Ask us., of: topics, require: {owners: {present: true}}}}\n"
)


def rule(of: str, require: str, **more: str) -> str:
    parts = "".join(f", {name}: {value}" for name, value in more.items())
    return f"rules: {{r: {{because: b, of: {of}, require: {{{require}}}{parts}}}}}\n"


@pytest.mark.parametrize(
    ("text", "body", "said"),
    [
        (rule("topologies", "name: {matches: '[a-z]{9,}'}"), "version: 1\nname: §trade\ntenant: t\nnamespace: n\ntopics: {}", "trade: name is trade: should match"),
        (rule("topologies", "labels.tier: {in: [gold]}"), "labels: {tier: §tin}\ntopics: {}", "trade: labels.tier is tin: should be gold"),
        (rule("topologies", "labels.tier: {in: [gold]}"), "labels§: {x: y}\ntopics: {}".replace("labels§", "§labels"), "labels.tier has no value: should be gold"),
        (rule("topologies", "namespace_policies.auto_topic_creation: false", where="{namespace_policies: {present: true}}"), "§namespace_policies: {ttl: 8d}\ntopics: {}", "auto_topic_creation has no value: should be false"),
        (rule("topologies", "namespace_policies.ttl: {at_most: 7d}"), "namespace_policies: {ttl: §8d}\ntopics: {}", "ttl is 8d: should be at most 7d"),
        (rule("topics", "name: {matches: '[a-z]+'}"), "topics: {§J: {}}", "trade/J: name is J: should match [a-z]+"),
        (rule("topics", "owners: {in: [a]}"), "topics: {J: {owners: §b}}", "trade/J: owners is [b]"),
        (rule("topics", "owners: {in: [a]}"), "owners: §b\ntopics: {J: {}}", "trade/J: owners is [b]: should be a"),
        (rule("topics", "labels.x: y"), "labels: {x: §z}\ntopics: {J: {}}", "labels.x is z: should be y"),
        (rule("topics", "partitions: {at_most: 2}"), "defaults: {partitions: §4}\ntopics: {J: {}}", "partitions is 4"),
        (rule("topics", "partitions: {at_least: 2}"), "topics: {§J: {partitioned: false}}", "partitions has no value"),
        (rule("topics", "policies.ttl: {at_most: 1d}"), "namespace_policies: {ttl: §8d}\ntopics: {J: {}}", "policies.ttl is 8d"),
        (rule("topics", "policies.retention.time: {at_least: 3d}"), "topics: {J: {policies: {retention: {size: 1GiB, time: §1d}}}}", "policies.retention.time is 1d"),
        (rule("topics", "policies.ttl: {present: true}"), "topics: {§J: {levels: []}}", "policies.ttl has no value: it is needed"),
        (rule("topics", "message_properties.uid.x: required"), "topics: {J: {message_properties: {uid.x: §optional}}}".replace("§", ""), "message_properties.uid.x is optional"),
        (rule("subscriptions", "type: shared", where="{topic: J}"), "topics: {J: {subscriptions: {s: {type: §failover}}}, K: {subscriptions: {s: {type: exclusive}}}}", "trade/J/s: type is failover: should be shared"),
        (rule("subscriptions", "retrying.attempts: {at_most: 9}"), "topics: {J: {subscriptions: {§s: {}}}}", "retrying.attempts is 12: should be at most 9"),
        (rule("subscriptions", "retrying.attempts: {present: true}"), "topics: {J: {subscriptions: {§s: {states: []}}}}", "retrying.attempts has no value"),
        (rule("subscriptions", "backup.attempts: {at_most: 9}"), "topics: {J: {backup: true, subscriptions: {§s: {}}}}", "backup.attempts is 24"),
        (rule("subscriptions", "dead_letter: {present: true}"), "topics: {J: {subscriptions: {s: {dead_letter: §false}}}}", "dead_letter is false: it is needed"),
        (rule("subscriptions", "audit: {present: true}"), "topics: {J: {subscriptions: {§s: {}}}}", "audit is false: it is needed"),
        (rule("subscriptions", "isolate: {present: true}"), "topics: {J: {subscriptions: {s: {isolate: §off}}}}", "isolate is off: it is needed"),
        (rule("subscriptions", "dead_letter.partitions: {at_least: 2}"), "topics: {J: {subscriptions: {§s: {}}}}", "dead_letter.partitions is 1: should be at least 2"),
        (rule("subscriptions", "dead_letter.partitions: {at_least: 2}"), "topics: {J: {subscriptions: {s: {dead_letter: §true}}}}".replace("§", ""), "dead_letter.partitions is 1: should be at least 2"),
        (rule("subscriptions", "dead_letter.partitions: {at_least: 2}"), "topics: {J: {subscriptions: {s: {dead_letter: false}}}}", "dead_letter.partitions has no value"),
        (rule("subscriptions", "audit.mode: best_effort"), "topics: {J: {subscriptions: {s: {audit: true}}}}", "audit.mode is"),
        (rule("subscriptions", "concurrency.total: {at_most: 8}"), "topics: {J: {subscriptions: {§s: {}}}}", "concurrency.total is 32: should be at most 8"),
        (rule("topics", "owners: {at_least: 2}"), "topics: {§J: {}}", "owners has no value: should have at least 2 entries"),
        (rule("subscriptions", "labels.x: y"), "topics: {J: {labels: {x: §z}, subscriptions: {s: {}}}}", "labels.x is z"),
        (rule("pulsar_topics", "policies.ttl: unlimited", where="{state: dead}"), "topics: {J: {subscriptions: {s: {dead_letter: {ttl: §7d}}}}}", "trade/J-s-DLQ: policies.ttl is 7d: should be unlimited"),
        (rule("pulsar_topics", "partitions: {at_least: 2}"), "topics: {J: {partitions: 4, subscriptions: {§s: {}}}}", "trade/J-s-DLQ: partitions is 1"),
        (rule("pulsar_topics", "partitions: {at_least: 2}"), "topics: {J: {partitions: 4, subscriptions: {s: {dead_letter: {partitions: §1}}}}}", "trade/J-s-DLQ: partitions is 1"),
        (rule("subscriptions", "draining: {present: true}"), "topics: {J: {draining: [L2], subscriptions: {§s: {}}}}", "trade/J/s: draining has no value"),
        (rule("topics", "levels: {at_most: 1}"), "topics: {J: {levels: §double}}", "trade/J: levels is [L1, L2]: should have at most 1 entry"),
        (rule("topics", "replication: {present: false}"), "topics: {J: {policies: {§replication: [east]}}}", "trade/J: replication is [east]: it must not be set"),
        (rule("topics", "replication: {in: [west]}"), "topics: {J: {§replication: [east]}}", "trade/J: replication is [east]: should be west"),
        (rule("topologies", "namespace_grants.planner: {present: true}"), "namespace_grants: {§planner: []}\ntopics: {}", "namespace_grants.planner has no value"),
        (rule("pulsar_topics", "name: {matches: '[^A]+'}", where="{state: audit}"), "topics: {J: {subscriptions: {§s: {audit: true}}}}", "name is J-s-AUDIT"),
        (rule("pulsar_topics", "level: L1", where="{state: ready}"), "topics: {§J: {levels: double}}", "trade/J-L2: level is L2"),
    ],
)  # fmt: skip
def test_a_finding_is_at_the_value_wherever_it_comes_from(text: str, body: str, said: str) -> None:
    source, place = marked(body if MARK in body else f"{body}§")
    (finding,) = of_rules(judged(text, source))
    assert said in finding.detail
    assert finding.where is not None
    if MARK in body:
        assert (finding.where.file, finding.where.line, finding.where.column) == (FILE, *place)


@pytest.mark.parametrize(
    "require",
    [
        "levels: double",
        "levels: [L1, L2]",
        "levels: {includes: [L2]}",
        "levels: {at_least: 2}",
        "levels: {in: [L1, L2]}",
    ],
)
def test_a_word_for_levels_is_judged_as_their_list(require: str) -> None:
    for levels in ("double", "[L1, L2]"):
        assert of_rules(judged(rule("topics", require), f"topics: {{J: {{levels: {levels}}}}}")) == []
    assert len(of_rules(judged(rule("topics", require), "topics: {J: {levels: [L3]}}"))) == 1
    condition = "rules: {r: {because: b, of: topics, condition: levels <= 1}}\n"
    assert of_rules(judged(condition, "topics: {J: {levels: single}}")) == []


def test_a_finding_names_the_rule_its_place_its_reason_and_the_way() -> None:
    (finding,) = of_rules(judged(OWNERS, "topics: {J: {}}"))
    assert finding.severity is Severity.ERROR
    assert finding.detail.split("\n") == [
        "trade/J: owners has no value: it is needed",
        f"rule owners ({NAME}:2): Somebody is paged.",
        "Ask us.",
    ]


def test_topics_with_one_reason_at_one_place_are_one_finding() -> None:
    text = rule("pulsar_topics", "policies.ttl: {at_most: 1d, optional: true}", where="{state: {not_in: [dead]}}")
    (finding,) = of_rules(judged(text, "defaults: {policies: {ttl: 8d}}\ntopics: {J: {}, K: {}, L: {}, M: {}}"))
    assert finding.detail.startswith("trade/J, trade/K, trade/L and 1 more: policies.ttl is 8d: ")


def test_what_sends_to_a_topic_is_counted() -> None:
    body = """
topics:
  a: {producers: [app, web], subscriptions: {s: {produces: [b]}, t: {produces: [b-L2]}}}
  b: {levels: double}
  c: {}
sources: {db: {database: DB_URL, tables: {s.a: {topic: b}, s.b: {topic: b}}}}
"""
    findings = of_rules(judged(rule("topics", "fed_by: {at_most: 1, optional: true}"), body))
    assert [one.detail.split("\n")[0] for one in findings] == [
        "trade/b: fed_by is [source db, subscription a/s, subscription a/t]: should have at most 1 entry"
    ]


PRODUCTION = "topics: {J: {}}\nenvironments: {prod: {production: true}, dev: {}}\n"


@pytest.mark.parametrize(
    ("more", "environments"),
    [
        ({"environments": "[prod]"}, ["prod"]),
        ({"environments": "[base]"}, [""]),
        ({"production": "true"}, ["prod"]),
        ({"production": "false"}, [""]),  # the base, and no other for the same
        ({"environments": "[dev]"}, ["dev"]),
        ({}, [""]),
    ],
)
def test_a_rule_counts_in_its_environments(more: dict[str, str], environments: list[str]) -> None:
    report = judged(rule("topics", "owners: {present: true}", **more), PRODUCTION)
    shown = [one.detail.split("\n")[0].partition("(environment ")[2].rstrip(")") for one in of_rules(report)]
    assert shown == environments
    assert (report.rules[0].checked, report.rules[0].refused) == (1, 1)


def test_a_warning_goes_on() -> None:
    report = judged(rule("topics", "owners: {present: true}", severity="warning"), "topics: {J: {}}")
    assert (report.failed, report.warned) == (False, True)


def test_an_exemption_is_shown_with_its_reason_until_its_day() -> None:
    exempt = "exempt: [{rule: owners, object: trade/*, because: moves, until: 2027-01-31}]\n"
    report = judged(OWNERS + exempt, "topics: {J: {}, K: {}}")
    assert [one.allowed_because for one in of_rules(report)] == ["moves, until 2027-01-31"] * 2
    assert not report.failed
    assert (report.rules[0].checked, report.rules[0].refused, report.rules[0].exempt) == (2, 2, 2)
    for_ever = "exempt: [{rule: owners, object: trade/J, because: old}]\n"
    findings = of_rules(judged(OWNERS + for_ever, "topics: {J: {}, K: {}}"))
    assert [(one.detail[:7], one.allowed_because) for one in findings] == [("trade/J", "old"), ("trade/K", None)]
    ended = "exempt: [{rule: owners, object: trade/J, because: moves, until: 2027-01-30}]\n"
    report = judged(OWNERS + ended, "topics: {J: {}}")
    assert report.failed
    assert of_rules(report)[0].detail.endswith(f"the exemption at {NAME}:3:11 ended on 2027-01-30")


def test_an_exemption_of_one_topic_hides_no_other_at_the_same_place() -> None:
    text = rule("topics", "policies.retention.time: {at_least: 3d}")
    exempt = "exempt: [{rule: r, object: trade/J, because: old}]\n"
    body = "namespace_policies: {retention: {time: 1d, size: unlimited}}\ntopics: {J: {}, K: {}}"
    report = judged(text + exempt, body)
    found = [(one.detail.partition(":")[0], one.allowed_because) for one in of_rules(report)]
    assert sorted(found) == [("trade/J", "old"), ("trade/K", None)]
    assert report.failed


def test_an_exemption_without_effect_and_a_rule_that_judges_nothing_are_named() -> None:
    exempt = "exempt: [{rule: owners, object: trade/J, because: b}, {rule: owners, object: elsewhere, because: b}]\n"
    report = judged(OWNERS + exempt, "owners: a\ntopics: {J: {}}")
    assert [(one.code, one.severity.value, one.detail) for one in report.findings] == [
        ("K019", "warning", "the rule owners refuses nothing at trade/J: remove the exemption")
    ]


@pytest.mark.parametrize(
    ("text", "severity", "said"),
    [
        (rule("subscriptions", "type: shared"), "note", "r: these files have no subscriptions for it"),
        (rule("topics", "name: J", where="{name: K}"), "note", "r: none of the topics fits its `where`"),
        (rule("topics", "name: J", where="{name: K}", production="true"), "note", "true` and fits its `where`"),
        (rule("topics", "name: J", production="true"), "note", "is in an environment with `production: true`"),
        (rule("topics", "name: J", environments="[east]"), "note", "r: no file has the environment east"),
        (rule("topics", "name: J", environments="[stagin]"), "warning", "did you mean 'staging'?"),
        ("rules: {r: {because: b, code: K305, production: true}}", "note", "none of the topologies is in an"),
    ],
)
def test_a_rule_that_judged_nothing_is_named(text: str, severity: str, said: str) -> None:
    (finding,) = judged(text, "topics: {J: {}}\nenvironments: {staging: {}}").findings
    assert (finding.code, finding.severity.value) == ("K312", severity)
    assert said in finding.detail


def test_nothing_is_said_about_unused_rules_where_a_file_cannot_be_read() -> None:
    report = judged(rule("subscriptions", "type: shared"), "topics: {J: {levls: double}}")
    assert [one.code for one in report.findings] == ["K003"]


WARNED = "topics: {J: {partitions: 5000}} # kodoctl: allow K207 because we measured it\n"
HARD = "rules: {r: {because: Brokers slow down., hint: Take fewer., code: K207}}\n"


def test_findings_of_lint_become_errors_that_no_comment_allows() -> None:
    (finding,) = judged(HARD, WARNED).findings
    assert (finding.code, finding.severity, finding.allowed_because) == ("K207", Severity.ERROR, None)
    assert finding.detail.endswith(f"\nrule r ({NAME}:2): Brokers slow down.\nTake fewer.")
    assert judged("rules: {}", WARNED).findings[0].allowed_because == "we measured it"


def test_a_topology_can_be_exempt_from_a_raised_code() -> None:
    exempt = "exempt: [{rule: r, object: trade, because: measured, until: 2027-03-31}]\n"
    assert [one.allowed_because for one in judged(HARD + exempt, WARNED).findings] == ["we measured it"]
    ended = exempt.replace("2027-03-31", "2026-03-31")
    assert judged(HARD + ended, WARNED).findings[0].detail.endswith("ended on 2026-03-31")


def test_a_comment_cannot_allow_a_finding_of_a_rule() -> None:
    report = judged(OWNERS, "topics: {J: {}} # kodoctl: allow K310 because I may\n")
    assert [(one.code, one.summary) for one in report.findings] == [("K018", "an allowance that a rules file gives")]


def test_a_finding_at_the_policies_of_a_namespace_in_another_file_is_about_its_topics() -> None:
    """The rule judges the topology `shop` alone; the line that breaks it is in a file for its namespace."""
    text = "rules: {r: {because: b, code: K203}}\n"
    head = "version: 1\ntenant: kodo\nnamespace: trade\nname: "
    evicts = "spaces\nnamespace_policies: {backlog_quota: {size: 1GiB, when_full: evict}}\ntopics: {}"
    files = [
        source_of(f"{head}{body}".encode(), name)
        for body, name in (("shop\ntopics: {J: {}}", "topologies/shop/a.yaml"), (evicts, "topologies/b.yaml"))
    ]
    placed, _ = read_rules(source_of(f"version: 1\n{text}".encode(), NAME), Path("topologies/shop").resolve())
    (finding,) = [one for one in lint(files, rules=TeamRules(placed, [], TODAY)).findings if one.code == "K203"]
    assert finding.where is not None
    assert (finding.where.file, finding.severity) == ("topologies/b.yaml", Severity.ERROR)


def test_an_exemption_of_one_topology_frees_no_other_with_the_same_finding() -> None:
    """The policies of a namespace in one file are those of topics in two others, of which one is exempt."""
    text = "rules: {r: {because: b, code: K203}}\nexempt: [{rule: r, object: shop, because: b}]\n"
    head = "version: 1\ntenant: kodo\nnamespace: trade\nname: "
    evicts = "spaces\nnamespace_policies: {backlog_quota: {size: 1GiB, when_full: evict}}\ntopics: {}"
    for name in ("club", "zoo", ""):
        files = [source_of(f"{head}{evicts}".encode(), "b.yaml")]
        files += [source_of(f"{head}shop\ntopics: {{J: {{}}}}".encode(), "topologies/shop/a.yaml")]
        if name:
            files += [source_of(f"{head}{name}\ntopics: {{K: {{}}}}".encode(), "topologies/shop/c.yaml")]
        placed, _ = read_rules(source_of(f"version: 1\n{text}".encode(), NAME), Path("topologies/shop").resolve())
        report = lint(files, rules=TeamRules(placed, [], TODAY))
        (finding,) = [one for one in report.findings if one.code == "K203"]
        assert ("rule r " in finding.detail) is bool(name)
        assert (report.rules[0].refused, report.rules[0].exempt) == (2 if name else 1, 1)


def test_many_rules_read_each_value_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, str]] = []
    real = RuleObject.value

    def value(one: RuleObject, scope: LintScope, path: str) -> object:
        read.append((one.name, path))
        return real(one, scope, path)

    monkeypatch.setattr(RuleObject, "value", value)
    rules = [f"r{n}: {{because: b, of: topics, require: {{partitions: {{at_most: {n + 1}}}}}}}" for n in range(50)]
    rules += [f"c{n}: {{because: b, of: topics, condition: 'partitions <= {n + 1}'}}" for n in range(50)]
    report = judged(f"rules: {{{', '.join(rules)}}}", "topics: {J: {partitions: 3}, K: {}}")
    assert sorted(set(read)) == sorted(read)
    assert len(of_rules(report)) == 2 + 2


def test_the_set_production_counts_in_production_alone() -> None:
    body = """
namespace_policies: {ttl: 8d}
topics:
  a: {subscriptions: {s: {produces: [b, c]}}}
  b: {subscriptions: {s: {produces: [d]}}}
  c: {subscriptions: {s: {produces: [d]}}}
  d: {policies: {backlog_quota: {size: 1GiB, when_full: evict}, retention: {time: 1d, size: 2GiB}}}
environments: {prod: {production: true}}
"""
    report = judged("use: {production: {}}", body)
    errors = {one.code for one in report.findings if one.severity is Severity.ERROR and "production/" in one.detail}
    assert errors == {"K203", "K205", "K216", "K305", "K310"}
    assert all("(environment prod)" in one.detail for one in report.findings if "production/" in one.detail)


def test_rules_of_an_earlier_revision_judge_as_well_unless_they_are_the_same() -> None:
    strict, loose = rule("topics", "partitions: {at_most: 4}"), rule("topics", "partitions: {at_most: 9}")
    body = "topics: {J: {partitions: 8}}"
    assert of_rules(judged(loose, body)) == []
    (finding,) = of_rules(judged(loose, body, earlier=strict))
    assert finding.detail.endswith(f"rule r ({NAME}:2 at main): b")
    assert len(of_rules(judged(strict, body, earlier=f"\n{strict}"))) == 1
    exempt = "exempt: [{rule: r, object: trade/J, because: b}]\n"
    findings = of_rules(judged(strict + exempt, body, earlier=strict))
    assert {one.allowed_because for one in findings} == {"b", None}
    assert judged("", "topics: {}", earlier=strict + exempt).findings == ()

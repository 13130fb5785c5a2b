"""Lint as a whole: everything at once, in the order of the file, and what plan starts from."""

from kodoctl.errors import Severity
from kodoctl.topology.lint.linter import check_set
from kodoctl.topology.load import source_of
from tests.unit.topology.topology_files import FILE, HEAD, codes_in, report_on

EVICT = "topics: {orders: {policies: {backlog_quota: {size: 1GiB, when_full: evict}}}}"


def test_a_good_file_has_no_findings() -> None:
    report = report_on("topics: {orders: {}, shipments: {}}")
    assert (report.findings, report.files, report.ground_topics, report.failed, report.warned) == (
        (),
        1,
        2,
        False,
        False,
    )


def test_findings_come_in_the_order_of_the_file() -> None:
    body = "topics:\n  b: {fair_by: uid, partitions: 5000}\n  a: {levels: [L2]}\n  c-L2: {}\n"
    assert codes_in(body) == ["K209", "K207", "K103", "K101"]


def test_warnings_alone_do_not_fail() -> None:
    report = report_on("topics: {orders: {partitions: 5000}}")
    assert [finding.severity for finding in report.findings] == [Severity.WARNING]
    assert (report.failed, report.warned) == (False, True)


def test_several_files_are_one_set_and_each_finding_names_its_file() -> None:
    other = "version: 1\nname: other\ntenant: kodo\nnamespace: other\n"
    found = report_on("topics: {orders-L2: {}}", other + "topics: {orders-L2: {}}").findings
    assert [finding.where and finding.where.file for finding in found] == ["topologies/other1.yaml", FILE]


def test_what_only_an_environment_has_says_so_and_is_said_once() -> None:
    body = (
        "topics: {orders: {}}\nenvironments: {a: {defaults: {partitions: 5000}}, b: {defaults: {partitions: 5000}}}\n"
    )
    assert [finding.detail for finding in report_on(body).findings] == [
        "orders: 5000 partitions: above 1024 clients fail to connect (environment a)",
        "orders: 5000 partitions: above 1024 clients fail to connect (environment b)",
    ]


def test_a_cause_of_the_base_that_concerns_more_topics_in_an_environment_is_said_once() -> None:
    body = "defaults: {policies: {ttl: 1m}}\ntopics: {a: {subscriptions: {s: {}}}}\n"
    body += "environments: {prod: {topics: {zebra: {subscriptions: {s: {}}}}}}\n"
    assert codes_in(body) == ["K202"]


def test_plan_starts_from_the_findings_of_one_environment_with_allowances_applied() -> None:
    text = f"{HEAD}{EVICT} # kodoctl: allow K203 because it is a cache\nenvironments: {{prod: {{production: true}}}}\n"
    files = [source_of(text.encode(), FILE)]
    (base,), findings = check_set(files, None)
    assert base.name == "trade"
    assert [(finding.code, finding.allowed_because) for finding in findings] == [("K203", "it is a cache")]
    assert [finding.code for finding in check_set(files, "prod")[1] if not finding.allowed_because] == ["K205", "K216"]

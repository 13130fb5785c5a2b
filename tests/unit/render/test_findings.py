"""Views of lint findings: the text for people, SARIF and JSON for machines, annotations for pull requests."""

import json
from typing import Any

import jsonschema

from kodoctl.errors import Diagnostic, Severity, Where, note
from kodoctl.render.findings import as_json_text, github, sarif, summary, text
from kodoctl.topology.lint.linter import LintReport
from tests.unit.topology.topology_files import FILE

REPORT = LintReport(
    (
        note("K019", "a note", "about nothing"),
        Diagnostic(Severity.ERROR, "K203", "evict on a topic", "orders: drops,\nunread: 100%", Where(FILE, 7, 3)),
        Diagnostic(Severity.WARNING, "K207", "a value", "partitions", Where(FILE), "it is a test"),
    ),
    files=2,
    ground_topics=1,
)


def test_text_is_one_line_a_finding_then_the_counts() -> None:
    shown = text(REPORT).splitlines()
    assert "\\" in shown[1], "a line break in a finding is shown as an escape"
    assert [shown[0], shown[1].partition("\\")[0], *shown[2:]] == [
        "- K019 note a note: about nothing",
        f"{FILE}:7:3 K203 error evict on a topic: orders: drops,",
        f"{FILE} K207 allowed (it is a test) a value: partitions",
        "2 files, 1 ground topic: 1 error, 1 note, 1 allowed.",
    ]


def test_nothing_found_is_said() -> None:
    assert summary(LintReport((), 1, 2)) == "1 file, 2 ground topics: no findings."


def test_json_has_every_finding_with_its_place() -> None:
    found = json.loads(as_json_text(REPORT))
    assert {key: found[key] for key in ("format_version", "files", "ground_topics", "failed")} == {
        "format_version": 1,
        "files": 2,
        "ground_topics": 1,
        "failed": True,
    }
    assert [(one["code"], one["line"], one["allowed_because"]) for one in found["findings"]] == [
        ("K019", None, None),
        ("K203", 7, None),
        ("K207", 0, "it is a test"),
    ]


def test_annotations_escape_what_would_end_them_and_leave_out_what_is_allowed() -> None:
    assert github(REPORT).splitlines() == [
        "::notice title=K019 a note::about nothing",
        f"::error file={FILE},line=7,col=3,title=K203 evict on a topic::orders: drops,%0Aunread: 100%25",
        "2 files, 1 ground topic: 1 error, 1 note, 1 allowed.",
    ]


def test_sarif_has_rules_places_and_suppressions() -> None:
    document = json.loads(sarif(REPORT))
    run = document["runs"][0]
    assert document["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["K019", "K203", "K207"]
    jsonschema.validate(document, SARIF)
    first, second, third = run["results"]
    assert "locations" not in first
    assert second["locations"][0]["physicalLocation"]["region"] == {"startLine": 7, "startColumn": 3}
    assert third["suppressions"] == [{"kind": "inSource", "justification": "it is a test"}]
    assert third["locations"][0]["physicalLocation"]["region"] == {"startLine": 1, "startColumn": 1}


SARIF: dict[str, Any] = {  # what code scanning needs of SARIF 2.1.0
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "properties": {
        "runs": {
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "results": {
                        "items": {
                            "required": ["ruleId", "level", "message"],
                            "properties": {
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"required": ["text"]},
                            },
                        }
                    }
                },
            }
        }
    },
}

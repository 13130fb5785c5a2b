"""Team rules at the command line: found beside and above topologies, given by --rules, held against an earlier revision."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers.workspace import run_main
from tests.unit.cli.running import kodoctl

HEAD = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\n"
FILE = "topologies/shop/trade.yaml"
RULES = "version: 1\nrules:\n  owners:\n    because: Somebody is paged.\n    of: topics\n    require: {owners: {present: true}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one topology, below `work`, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("work").mkdir()
    monkeypatch.chdir("work")
    git("init", "-q", ".")
    write(HEAD + "topics:\n  orders: {}\n", FILE)
    return tmp_path


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def commit() -> None:
    git("add", "-A")
    git("commit", "-qm", "x")


def write(text: str, name: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("place", ["", "topologies/", "topologies/shop/"])
def test_rules_count_at_and_above_a_topology_within_the_repository(place: str) -> None:
    write(RULES, f"{place}kodoctl-rules.yaml")
    ran = kodoctl("lint")
    assert ran.code == 1
    assert ran.out == (
        f"{FILE}:6:3 K310 error against a rule of this repository: trade/orders: owners has no value: it is needed;"
        f" rule owners ({place}kodoctl-rules.yaml:3): Somebody is paged.\n"
        "1 file, 1 ground topic, 1 rule (1 check): 1 error.\n"
    )


@pytest.mark.parametrize("place", ["../", "other/", "topologies/shop/below/"])
def test_rules_elsewhere_do_not_count(place: str) -> None:
    write(RULES, f"{place}kodoctl-rules.yaml")
    ran = kodoctl("lint")
    assert (ran.code, ran.out) == (0, "1 file, 1 ground topic: no findings.\n")


def test_rules_of_a_folder_judge_what_lies_below_it_alone() -> None:
    write(HEAD.replace("trade", "depot") + "topics: {parcels: {}}\n", "topologies/depot.yaml")
    write(RULES, "topologies/shop/kodoctl-rules.yaml")
    document = json.loads(kodoctl("lint", "--format", "json").out)
    assert [one["file"] for one in document["findings"]] == [FILE]
    assert document["rules"] == [
        {
            "name": "owners",
            "file": "topologies/shop/kodoctl-rules.yaml",
            "line": 3,
            "checked": 1,
            "refused": 1,
            "exempt": 0,
        }
    ]


def test_outside_of_a_repository_rules_count_up_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(HEAD + "topics: {orders: {}}\n", "../plain/a/b/trade.yaml")
    write(RULES, "../plain/a/kodoctl-rules.yaml")
    assert kodoctl("lint", "../plain/a/b").code == 0
    for place, code in ((tmp_path / "plain", 1), (tmp_path / "plain/a", 1), (tmp_path / "plain/a/b", 0)):
        monkeypatch.chdir(place)
        assert kodoctl("lint", str(tmp_path / "plain/a/b")).code == code


def test_rules_can_be_given_from_elsewhere() -> None:
    write(RULES, "../central.yaml")
    ran = kodoctl("lint", "--rules", "../central.yaml")
    assert (ran.code, "rule owners (../central.yaml:3)" in ran.out) == (1, True)
    missing = kodoctl("lint", "--rules", "none.yaml")
    assert (missing.code, "there is no such rules file" in missing.err) == (64, True)
    write(RULES, "kodoctl-rules.yaml")
    commit()
    for more in ([], ["--against", "HEAD"]):
        assert kodoctl("lint", "--rules", "kodoctl-rules.yaml", *more).out.count("K310") == 1


def test_a_rules_file_is_no_topology() -> None:
    write(RULES, "topologies/kodoctl-rules.yaml")
    ran = kodoctl("lint", "topologies/kodoctl-rules.yaml")
    assert (ran.code, "this is a rules file" in ran.out) == (1, True)


def test_a_rules_file_behind_a_link_out_of_the_repository_is_refused() -> None:
    write(RULES, "../central.yaml")
    Path("kodoctl-rules.yaml").symlink_to("../central.yaml")
    ran = kodoctl("lint")
    assert (ran.code, "kodoctl-rules.yaml K016 error cannot read file: it lies outside" in ran.out) == (1, True)


def test_a_change_cannot_weaken_the_rules_that_judge_it() -> None:
    write(RULES, "kodoctl-rules.yaml")
    write(HEAD + "topics:\n  orders: {owners: shop}\n", FILE)
    commit()
    write(HEAD + "topics:\n  orders: {}\n", FILE)
    for weaker in (RULES.replace("of: topics", "of: topics\n    severity: warning"), "version: 1\n", None):
        if weaker is None:
            Path("kodoctl-rules.yaml").unlink()
        else:
            write(weaker, "kodoctl-rules.yaml")
        assert kodoctl("lint").code == 0
        ran = kodoctl("lint", "--against", "HEAD")
        assert (ran.code, "rule owners (kodoctl-rules.yaml:3 at HEAD): Somebody is paged." in ran.out) == (1, True)


def test_a_change_cannot_weaken_rules_that_are_named_by_an_option() -> None:
    write(RULES, "policies/central.yaml")
    write(RULES, "../elsewhere.yaml")
    write(HEAD + "topics:\n  orders: {owners: shop}\n", FILE)
    commit()
    write(HEAD + "topics:\n  orders: {}\n", FILE)
    write("version: 1\n", "policies/central.yaml")
    assert kodoctl("lint", "--rules", "policies/central.yaml").code == 0
    ran = kodoctl("lint", "--rules", "policies/central.yaml", "--against", "HEAD")
    assert (ran.code, "rule owners (policies/central.yaml:3 at HEAD)" in ran.out) == (1, True)
    write("version: 1\n", "../elsewhere.yaml")
    assert kodoctl("lint", "--rules", "../elsewhere.yaml", "--against", "HEAD").code == 0, "of no repository of theirs"


PRODUCTION = RULES.replace("of: topics", "of: topics\n    production: true")
LABELLED = RULES.replace("of: topics", "of: topics\n    where: {labels.tier: gold}")
CODE = "version: 1\nrules: {many: {because: Brokers slow down., code: K207, production: true}}\n"


@pytest.mark.parametrize(
    ("rules", "before", "after"),
    [
        (PRODUCTION, "environments: {prod: {production: true}}", "environments: {prod: {}}"),
        (LABELLED, "labels: {tier: gold}", "labels: {tier: tin}"),
        (LABELLED, "labels: {tier: gold}", ""),
        (CODE, "environments: {prod: {production: true}}", "environments: {prod: {}}"),
    ],
)
def test_a_change_cannot_leave_a_rule_by_a_property_or_a_label(rules: str, before: str, after: str) -> None:
    write(rules, "kodoctl-rules.yaml")
    owned = HEAD + "topics:\n  orders: {owners: shop}\n"
    write(owned + before + "\n", FILE)
    commit()
    changed = owned.replace("{owners: shop}", "{partitions: 5000}" if rules is CODE else "{}")
    write(changed + after + "\n", FILE)
    assert kodoctl("lint").code == 0
    ran = kodoctl("lint", "--against", "HEAD")
    assert (ran.code, "trade/orders" in ran.out or "K207 error" in ran.out) == (1, True)


def test_a_new_topology_has_not_been_another_before() -> None:
    write(LABELLED, "kodoctl-rules.yaml")
    commit()
    write(HEAD.replace("trade", "new") + "topics: {orders: {}}\n", "topologies/new.yaml")
    assert kodoctl("lint", "--against", "HEAD").code == 0


def test_a_topology_that_leaves_the_folder_of_its_rules_is_judged_by_them() -> None:
    write(RULES, "topologies/shop/kodoctl-rules.yaml")
    write(
        "version: 1\nname: other\ntenant: kodo\nnamespace: other\ntopics:\n  orders: {}\n", "topologies/pay/other.yaml"
    )
    commit()
    Path("topologies/pay/trade.yaml").write_text(Path(FILE).read_text() + "  parcels: {}\n")
    Path(FILE).unlink()
    assert kodoctl("lint").code == 0
    ran = kodoctl("lint", "--against", "HEAD")
    assert ran.code == 1
    assert "topologies/pay/trade.yaml:6:3 K310 error against a rule of this repository: trade/orders" in ran.out
    assert "rule owners (topologies/shop/kodoctl-rules.yaml:3 at HEAD)" in ran.out
    assert "other/orders" not in ran.out
    git("checkout", "-q", "HEAD", "--", FILE)
    Path("topologies/pay/trade.yaml").unlink()
    Path("topologies/shop").rename("real")
    Path("topologies/shop").symlink_to("../real")
    Path("real/kodoctl-rules.yaml").unlink()
    assert kodoctl("lint", FILE, "--against", "HEAD").code == 1, "a folder that is a link now"


def test_earlier_rules_behind_a_link_judge() -> None:
    write(RULES, "shared/rules.yaml")
    Path("topologies/kodoctl-rules.yaml").symlink_to("../shared/rules.yaml")
    commit()
    write("version: 1\n", "shared/rules.yaml")
    ran = kodoctl("lint", "--against", "HEAD")
    assert (ran.code, "rule owners (topologies/kodoctl-rules.yaml:3 at HEAD)" in ran.out) == (1, True)
    Path("topologies/kodoctl-rules.yaml").unlink()
    assert kodoctl("lint", "--against", "HEAD").code == 1


def test_a_link_in_a_circle_is_named() -> None:
    Path("kodoctl-rules.yaml").symlink_to("kodoctl-rules.yaml")
    commit()
    Path("kodoctl-rules.yaml").unlink()
    ran = kodoctl("lint", "--against", "HEAD")
    assert "K407 warning an earlier file cannot be read: at HEAD: kodoctl-rules.yaml:1:1" in ran.out


def test_earlier_rules_that_cannot_be_read_are_named() -> None:
    write("version: 1\nuse: {prod: {}}\n", "kodoctl-rules.yaml")
    commit()
    write("version: 1\n", "kodoctl-rules.yaml")
    ran = kodoctl("lint", "--against", "HEAD")
    assert ran.code == 0
    assert (
        "K407 warning an earlier file cannot be read: at HEAD: kodoctl-rules.yaml:2:7: there is no set 'prod'"
        in ran.out
    )


def test_findings_have_their_excerpts_and_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    write(RULES, "kodoctl-rules.yaml")
    (result,) = json.loads(kodoctl("lint", "--format", "sarif").out)["runs"][0]["results"]
    assert result["ruleId"] == "K310"
    assert "\nrule owners (kodoctl-rules.yaml:3): Somebody is paged." in result["message"]["text"]
    assert kodoctl("lint", "--format", "github").out.startswith(f"::error file={FILE},line=6,col=3,")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = run_main("lint").out
    assert "     6 |   orders: {}\n" in out
    assert "^^^^^^" in out


def test_an_error_in_the_rules_fails_and_shows_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    write(RULES.replace("owners: {present", "ownrs: {present"), "kodoctl-rules.yaml")
    ran = kodoctl("lint")
    assert ran.code == 1
    assert (
        "kodoctl-rules.yaml:6:15 K311 error a rule that cannot be checked: topics has no 'ownrs'; did you mean"
        in ran.out
    )


def test_standard_input_is_judged_by_the_rules_of_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    write(RULES, "kodoctl-rules.yaml")
    ran = subprocess.run(
        [sys.executable, "-m", "kodoctl", "lint", "-"],
        input=HEAD + "topics: {J: {}}\n",
        text=True,
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.startswith("-:5:10 K310 error")) == (1, True)


def test_the_schema_of_rules_files_is_printed() -> None:
    assert json.loads(kodoctl("schema", "rules").out)["$id"] == "urn:kodoctl:schema:kodoctl-rules.v1"
    assert json.loads(kodoctl("schema").out)["$id"] == "urn:kodoctl:schema:topology.v1"

"""The last audits as files that a nightly job replaces, and what stands between a topology file and a verdict."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kodoctl.cli.common.command_target import TargetOptions, load_desired
from kodoctl.cli.ui import audit_reading
from kodoctl.cli.ui.audit_reading import AuditReading
from kodoctl.cli.ui.ui_command import _words

TRADE = """\
version: 1
name: trade
tenant: public
namespace: trade
topics:
  orders:
    subscriptions:
      billing: {audit: true}
      mailing: {audit: best_effort}
      search: {}
"""
AUDIT = {"verdict": "no loss", "reasons": [], "coverage": [{"topic": "persistent://public/trade/orders"}]}


def reading(*files: str, names: tuple[str, ...] = ("trade",)) -> AuditReading:
    """Audits of topologies whose files are written here."""
    for name in names:
        Path(f"{name}.yaml").write_text(TRADE.replace("trade", name))
    paths = [f"{name}.yaml" for name in names]
    desired = load_desired(paths, None)
    return AuditReading(
        [Path(one) for one in files], _words(TargetOptions(context="prod"), desired, paths, None), desired
    )


def write(file: str, verdict: str = "no loss", topology: str = "trade") -> None:
    coverage = [{"topic": f"persistent://public/{topology}/orders"}]
    document = {**AUDIT, "verdict": verdict, "coverage": coverage, "read_at": time.time_ns() // 1_000_000}
    Path(file).write_text(json.dumps(document))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "3",
        "{}",
        '{"verdict": "fine", "reasons": [], "coverage": []}',
        '{"verdict": [], "reasons": [], "coverage": []}',
        '{"verdict": "loss", "reasons": 3, "coverage": []}',
        '{"verdict": "loss", "reasons": [], "coverage": [], "read_at": "now"}',
        "[" * 200_000,
    ],
)
def test_a_file_that_is_no_audit_is_no_verdict(folder: Path, text: str) -> None:
    read = reading("audit.json")
    (folder / "audit.json").write_text(text)
    sentence = read()
    assert sentence.style == "open"
    assert "audit.json is no document of `kodoctl pipeline audit --format json`" in sentence.text
    audit = "kodoctl pipeline audit trade.yaml --format json --context prod > audit.json"
    assert sentence.steps[-1].commands == (audit,)


def test_an_empty_file_is_an_audit_under_way(folder: Path) -> None:
    read = reading("audit.json")
    (folder / "audit.json").write_text("")
    assert read().text == "audit.json is empty: an audit is at work, or could not begin"


def test_audits_are_read_each_time_as_they_may_be_replaced_and_lie_where_steps_say(folder: Path) -> None:
    for files, file in (((), "trade-audit.json"), (("my audit.json",), "my audit.json")):
        read = reading(*files)
        sentence = read()
        assert (sentence.text, sentence.is_judged) == ("Not judged whether a message was lost", False)
        assert sentence.steps[-1].commands[0].endswith(f"> {file}" if " " not in file else f"> '{file}'")
        for verdict, style in (("no loss", "good"), ("loss", "bad")):
            write(file, verdict)
            assert read().style == style
        Path(file).unlink()


def test_topologies_have_audits_of_their_own(folder: Path) -> None:
    read = reading(names=("trade", "bank"))
    write("trade-audit.json")
    sentence = read()
    assert sentence.text.endswith("; not judged: bank")
    assert sentence.steps[-1].commands[0].endswith("> bank-audit.json")
    assert len(sentence.steps[-1].commands) == 1, "of those that are not judged"
    write("bank-audit.json", topology="bank")
    assert (read().style, read().steps) == ("good", ())


def test_audits_belong_to_the_topologies_that_they_judged_whatever_their_order(folder: Path) -> None:
    read = reading("two.json", "one.json", names=("trade", "bank"))
    assert [one.rpartition("> ")[2] for one in read().steps[-1].commands] == ["trade-audit.json", "bank-audit.json"]
    write("one.json")
    assert (read().files, read().unjudged) == (("one.json",), ("bank",))
    write("two.json", topology="bank")
    assert (read().style, read().files) == ("good", ("two.json", "one.json"))
    write("trade-audit.json", "loss")
    assert read().files == ("two.json", "one.json"), "an older one in the folder does not count beside a named one"
    Path("one.json").unlink()
    assert (read().style, read().files) == ("bad", ("two.json", "trade-audit.json"))


def test_a_folder_without_java_is_no_java(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reading, "_SPARK", ())
    (folder / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(folder))
    read = reading()
    assert read().steps[0].text.startswith("Install Java 17 or 21")
    (folder / "bin/java").touch(0o755)
    assert not read().steps[0].text.startswith("Install Java")


def test_subscriptions_whose_workers_record_too_little_are_named_with_their_places(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_reading, "_SPARK", ())
    monkeypatch.setattr(audit_reading, "find_program", lambda *_: "/usr/bin/java")
    text = reading()().steps[0].text
    assert text.startswith(
        "Write audit: true below orders / mailing (trade.yaml:9:7), orders / search (trade.yaml:10:7)."
    )


def test_what_is_not_installed_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(audit_reading, "_SPARK", ("no_such_library",))
    assert [one.commands for one in reading()().steps[:2]] == [("pip install '.[spark]'",), ()]

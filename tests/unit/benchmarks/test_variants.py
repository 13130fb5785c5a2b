"""Variants of the benchmarks' arms: which command in which environment measures an arm."""

from __future__ import annotations

import argparse
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks" / "consumer"
_spec = spec_from_file_location("benchmark_variants", FOLDER / "variants.py")  # a program's folder, no package
assert _spec is not None
assert _spec.loader is not None
variants = module_from_spec(_spec)
sys.modules[_spec.name] = variants  # dataclasses look there
_spec.loader.exec_module(variants)


def _asked(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    variants.add_variants(parser)
    return parser.parse_args(arguments)


def test_an_arm_of_a_variant_is_the_arm_in_its_environment() -> None:
    found = variants.variants_of(
        _asked("--variant", "plain=A=1,B=x=y"), ["sync-plain", "raw-reroute"], ["sync", "raw-reroute"]
    )
    assert found.split("sync-plain") == ("sync", "plain")
    assert found.split("raw-reroute") == ("raw-reroute", ""), "a hyphen is no variant"
    command, environ = found.one("throughput.py", "sync-plain", "t", "s")
    assert command == [sys.executable, str(FOLDER / "throughput.py"), "--one", "sync", "t", "s"]
    assert (environ["A"], environ["B"]) == ("1", "x=y")
    assert found.one("throughput.py", "sync-python")[1]["KODO_CONSUMER_NATIVE"] == "false"
    assert found.names == ["python", "plain"]


def test_an_arm_of_another_checkout_is_measured_by_that_checkouts_program(tmp_path: Path) -> None:
    found = variants.variants_of(_asked("--beside", str(tmp_path)), ["sync-before"], ["sync"])
    command, environ = found.one("throughput.py", "sync-before", "t")
    assert command[1:] == [str(tmp_path / "benchmarks/consumer/throughput.py"), "--one", "sync", "t"]
    assert environ["PYTHONPATH"].split(":") == [str(tmp_path / "consumer"), str(tmp_path)]


@pytest.mark.parametrize("text", ["name", "name=VARIABLE", "na-me=A=1", "=A=1", "name=A=1,B"])
def test_a_variant_without_a_name_or_a_value_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _asked("--variant", text)
    assert f"invalid variant value: '{text}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arm", "told"),
    [("asnyc", "no arm is named asnyc; there is sync, each also with -python"), ("sync-before", "name it by --beside")],
)
def test_an_arm_that_is_none_or_needs_a_checkout_ends_the_program(arm: str, told: str) -> None:
    with pytest.raises(SystemExit) as end:
        variants.variants_of(_asked(), [arm], ["sync"])
    assert told in str(end.value)


def test_a_run_is_the_last_line_of_the_program_and_a_failure_says_why(tmp_path: Path) -> None:
    program = tmp_path / "benchmarks" / "consumer"
    program.mkdir(parents=True)
    (program / "p.py").write_text(
        "import sys\nprint('log')\nprint('{\"arm\": \"' + sys.argv[2] + '\"}')\n", encoding="utf-8"
    )
    (program / "q.py").write_text("import sys\nsys.exit('no broker')\n", encoding="utf-8")
    found = variants.Variants(beside=tmp_path)
    assert found.run("p.py", "sync-before") == {"arm": "sync"}
    with pytest.raises(SystemExit, match=r"(?s)sync-before ended with 1:.*no broker"):
        found.run("q.py", "sync-before")

"""Without the extra: no other command misses it, and those that need it say how to install it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers.workspace import isolated, run_main
from tests.services.servers import Answer, serving

FILE = "topologies/trade.yaml"
NAMED = ("--topic", "orders", "--subscription", "billing", "--where", "true")
COMMANDS = [
    ("run", FILE), ("ingest", FILE), ("rollup", FILE), ("audit", FILE), ("recommend", FILE), ("report", FILE, "--out", "page.html"),
    ("lab", FILE, "--candidate", FILE), ("recall", "plan", FILE, *NAMED), ("recall", "apply", "p.json"),
]  # fmt: skip
BARE = """
import sys
for name in ("pyspark", "py4j", "pyarrow", "pandas", "deltalake"):
    sys.modules[name] = None
from kodoctl.cli.main import main
main()
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path):
    with isolated(tmp_path):
        path = tmp_path / FILE
        path.parent.mkdir()
        path.write_text(
            "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics:\n  orders: {subscriptions: {billing: {}}}\n",
            encoding="utf-8",
        )
        yield


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: " ".join(one[:2]))
def test_a_command_of_the_pipeline_says_how_to_install_it(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    nobody = () if command[0] in ("rollup", "recommend", "lab") else ("--admin-url", "http://127.0.0.1:1")
    found = run_main("pipeline", *command, *nobody)
    assert (found.code, "Spark is not installed [K570]" in found.err) == (64, True), found.text
    assert "pip install '.[spark]' in a clone of kodoctl" in found.err
    begun = (
        r"Carrying out a recall plan\. Spark"
        if command[:2] == ("recall", "apply")
        else r"Run \d{8}-\d{6}-[0-9a-f]{8}: "
    )
    assert re.match(begun, found.err), "the first line does not wait for Spark"


def test_a_lane_belongs_to_lost_messages() -> None:
    named = ("--admin-url", "http://127.0.0.1:1", "--lane", "L1/ready")
    found = run_main("pipeline", "recall", "plan", FILE, *NAMED, *named)
    assert (found.code, "K825" in found.err) == (64, True), found.text
    assert "--lost" in found.err


def test_help_is_the_same_without_it_and_loads_nothing_of_it() -> None:
    loaded = (
        "import atexit, sys; atexit.register(lambda: print(sorted({'pyspark', 'pyarrow', 'pandas'} & {*sys.modules})))"
    )
    with_it = [sys.executable, "-c", f"{loaded}\nfrom kodoctl.cli.main import main\nmain()"]
    shown = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        for command in (with_it, [sys.executable, "-c", BARE])
    ]
    assert shown[0] == shown[1] + "[]\n"


def test_plan_needs_nothing_of_it() -> None:
    with serving(lambda _: Answer(401)) as server:  # which is not tried again, unlike one that gives no answer
        command = [sys.executable, "-c", BARE, "plan", FILE, "--admin-url", server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert server.url in done.stderr
    assert "Import" not in done.stderr
    assert "[K599]" not in done.stderr

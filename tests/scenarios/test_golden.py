"""What a user sees, session by session. `KODOCTL_UPDATE_GOLDEN=1` records anew after a wanted change: read the diff."""

from __future__ import annotations

import difflib
import os
import random
import string
from pathlib import Path

import pytest

from tests.brokers.broker import PULSAR, Broker
from tests.brokers.workspace import Workspace
from tests.scenarios.session import play, too_wide

HERE = Path(__file__).parent
UPDATE = bool(os.environ.get("KODOCTL_UPDATE_GOLDEN"))  # a workspace hides the variables of whoever runs the tests
ONLY_SINCE_4_2 = ("subscription_expiry", "last publish")
SESSIONS = sorted(path.parent.name for path in HERE.glob("*/session.txt"))


@pytest.fixture
def tenant(broker: Broker) -> str:
    """A fresh Pulsar tenant whose name is as long as the word that stands for it: lines fold where they were recorded."""
    letters = "ghjkmnpqrstvwxyz"  # none of a hexadecimal number
    for _ in range(50):
        name = "".join(random.choice(kind) for kind in (letters, string.digits, letters, string.digits))
        made = broker.admin("PUT", f"tenants/{name}", {"allowedClusters": [broker.cluster], "adminRoles": []})
        if made.status_code != 409:
            assert made.ok, made.text
            return name
    pytest.fail("no name is left for a tenant")


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_goes_as_recorded(name: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    file = HERE / name / "session.txt"
    expected = file.read_text(encoding="utf-8")
    if PULSAR < (4, 2) and any(words in expected for words in ONLY_SINCE_4_2):
        pytest.skip("it shows what Pulsar 4.0 neither has nor tells")
    found = play(expected, workspace, HERE / name, monkeypatch)
    if UPDATE:
        file.write_text(found, encoding="utf-8")
        return
    diff = "\n".join(difflib.unified_diff(expected.splitlines(), found.splitlines(), "recorded", "now", lineterm=""))
    assert found == expected, f"KODOCTL_UPDATE_GOLDEN=1 records it anew\n{diff}"


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_fits_a_screen(name: str) -> None:
    assert too_wide((HERE / name / "session.txt").read_text(encoding="utf-8")) == []

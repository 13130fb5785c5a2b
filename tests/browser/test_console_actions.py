"""Acting in `kodoctl ui`, in a real browser on the real broker: plan, review, confirm, result, and what the cluster has then."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.brokers.workspace import Workspace, workspace
from tests.broker.recalling import RETRYING, Recalls
from tests.browser.conftest import Opened

__all__ = ["workspace"]
pytestmark = [pytest.mark.broker, pytest.mark.filterwarnings("ignore::ResourceWarning")]
SHOTS = os.environ.get("KODO_SHOTS")
LETTERS = "/action?topology=trade&topic=orders-billing-DLQ&subscription=billing"


class Ui:
    """A running console, and a page of a browser that has entered it. `own`: address of its pages."""

    def __init__(self, address: str, page: Page) -> None:
        self.page, self.address = page, address
        page.goto(address)
        self.own = address.partition("?")[0].removesuffix("/")
        page.wait_for_url(f"{self.own}/")

    def go(self, path: str) -> None:
        self.page.goto(self.own + path)

    def shot(self, name: str) -> None:
        if SHOTS:
            self.page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)

    @property
    def text(self) -> str:
        return " ".join(self.page.inner_text("main").split())

    def planned(self) -> str:
        """Sends the form of a plan, and returns the text of the page once it is made."""
        self.page.click("text=Make the plan")
        self.page.wait_for_selector("text=On the command line", timeout=60_000)
        return self.text

    def carried_out(self) -> str:
        """Confirms the plan, and returns the text of the page once it has ended."""
        self.page.click(".confirm button.main")
        return self.ended()

    def ended(self) -> str:
        self.page.wait_for_selector("section.sentence", timeout=60_000)
        return self.text


@contextmanager
def ui(workspace: Workspace, opened: Opened, *arguments: str) -> Iterator[Ui]:
    process = workspace.process("ui", *arguments)
    assert process.stdout is not None
    try:
        yield Ui(process.stdout.readline().strip(), opened.page)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors, errors
    assert process.returncode == 0


def plans(workspace: Workspace) -> list[Path]:
    return list((workspace.folder / ".kodoctl/plans").glob("*"))


def test_letters_of_a_cause_are_sent_again(workspace: Workspace, opened: Opened) -> None:
    recalls = Recalls(workspace)
    recalls.die(range(6))
    with ui(workspace, opened) as console:
        page = console.page
        console.shot("home")
        page.click("aside >> text=Look at its messages")
        console.shot("lane")
        page.click("tr:has-text('timeout') >> text=send again")
        console.shot("form")
        assert page.input_value("#where") == "cause = 'timeout'"
        page.fill("#because", "the bank is back")
        text = console.planned()
        console.shot("plan")
        assert "3 letters to send" in text
        assert "why the bank is back" in text
        assert re.search(r"to \S+orders-billing-RETRYING \(3\)", text)
        assert "kodoctl recall plan " in text
        assert plans(workspace) == [], "nothing is written before the confirmation"
        assert not recalls.arrived()
        text = console.carried_out()
        console.shot("done")
        assert "Done: 3 sent, 3 acknowledged" in text
        page.reload()
        assert "Done: 3 sent" in console.text
        assert page.locator(".confirm").count() == 0
        page.click("text=Actions")
        assert "done" in console.text
        console.shot("acts")
    assert recalls.arrived(RETRYING) == {1: 1, 3: 1, 5: 1}
    assert plans(workspace) == []
    assert recalls.plan("cause = 'timeout'", file="again.json")["summary"]["left_out"] == {}
    assert opened.complaints == []

"""`kodoctl plan --format html` in a real browser: found, folded, printed; and nothing in a name does anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.errors import warning
from kodoctl.plan.changes import ChangeContext, Create, Delete, PolicyChange, Update
from kodoctl.plan.plan import Plan
from kodoctl.plan.plan_file import to_json
from kodoctl.render.plan_html import plan_html
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import SubscriptionResource, TopicResource
from tests.browser.conftest import Opened
from tests.samples.inventories import HERE
from tests.unit.render.test_plan_views import ABOUT, TARGET, J, danger, plan_of

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>\x1b[31m\u202e"


def _plan() -> Plan:
    gone = TopicResource(TopicName(HERE, "K"), 1, {})
    kept = TopicResource(TopicName(HERE, "M"), 1, {})
    return plan_of(
        Create(TopicResource(J, 1, {}), ABOUT),
        Create(SubscriptionResource(J, "billing", "latest"), ABOUT),
        Update(kept, kept, (PolicyChange("ttl", "1h", EVIL),), ChangeContext("trade", EVIL)),
        Delete(gone, danger("topic.persistent://acme/ns/K")),
        findings=(warning("K404", EVIL, EVIL),),
    )


@pytest.fixture
def plan(opened: Opened, tmp_path: Path) -> Opened:
    file = tmp_path / "plan.html"
    file.write_text(plan_html(to_json(_plan()), TARGET))
    opened.open(file)
    return opened


def test_nothing_is_asked_of_anybody_and_no_name_does_anything(plan: Opened) -> None:
    plan.page.click("#unfold")
    assert len(plan.requests) == 1, plan.requests
    assert plan.complaints == []
    assert "<img src=x onerror=alert(1)>" in plan.page.inner_text("main")
    assert "\\x1b[31m\\u202e" in plan.page.inner_text("main")


def test_what_is_at_stake_is_open_and_first_and_the_way_out_is_there(plan: Opened) -> None:
    first = plan.page.locator(".group").first
    assert first.get_attribute("open") is not None
    assert "K401 error: deletes data" in first.inner_text()
    assert plan.visible(".ways-out pre") == ["--allow-destroy topic.persistent://acme/ns/K"]
    assert "refused" in plan.page.inner_text("h1")
    assert [one.get_attribute("open") for one in plan.page.locator(".group").all()][1:] == [None, None]


def test_search_and_filters_show_what_fits(plan: Opened) -> None:
    assert plan.page.inner_text("#shown") == "4 objects"
    plan.page.keyboard.press("/")
    plan.page.keyboard.type("BILLING latest")
    assert plan.visible(".group .name") == ["acme/ns/J"]
    assert plan.page.inner_text("#shown") == "2 of 4 objects"
    plan.page.fill("#search", "")
    plan.page.uncheck("input[value=create]")
    assert plan.visible(".group .name") == ["acme/ns/K", "acme/ns/M"]
    plan.page.check("#stake")
    assert plan.visible(".group .name") == ["acme/ns/K"]


def test_folding_is_for_all_at_once(plan: Opened) -> None:
    plan.page.click("#unfold")
    assert len(plan.visible(".change")) == 4
    plan.page.click("#fold")
    assert plan.visible(".change") == []


def test_dark_and_light_and_on_paper(plan: Opened) -> None:
    def ground() -> str:
        return str(plan.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground()
    plan.page.emulate_media(color_scheme="dark")
    assert ground() != light
    plan.page.emulate_media(media="print")
    assert plan.visible(".tools") == []


def test_only_losses_are_at_stake_and_the_list_at_the_top_leads_to_them(opened: Opened, tmp_path: Path) -> None:
    lowered = TopicResource(TopicName(HERE, "W"), 1, {})
    about = ChangeContext("trade", "differs", None, (warning("K406", "lowered", f"{lowered.address}: less"),))
    gone = TopicResource(TopicName(HERE, "K"), 1, {})
    alike = [TopicResource(TopicName(HERE, f"T{number:02}"), 1, {}) for number in range(60)]
    document = to_json(
        plan_of(
            Update(lowered, lowered, (PolicyChange("ttl", "1h", "2h"),), about),
            *(Update(topic, topic, (PolicyChange("ttl", "7d", "3d"),), ABOUT) for topic in alike),
            Delete(gone, danger(gone.address)),
        )
    )
    (tmp_path / "plan.html").write_text(plan_html(document, TARGET))
    for width in (1280, 390):
        opened.page.set_viewport_size({"width": width, "height": 800})
        opened.open(tmp_path / "plan.html")
        assert opened.visible(".verdict") == ["refused", "at stake", "warning"]
        assert len(opened.visible(".group")) == 3
        assert opened.page.inner_text("#shown") == "62 objects"
        colors = [opened.page.evaluate(f"getComputedStyle(document.querySelector('{box}')).backgroundColor")
                  for box in (".danger.error", ".danger.warning")]  # fmt: skip
        assert colors == ["rgb(255, 241, 240)", "rgb(255, 248, 230)"]
        opened.page.click(".stakes a")
        box = opened.page.locator(".at-stake .name").bounding_box()
        tools = opened.page.locator(".tools").bounding_box()
        assert box
        assert tools
        assert tools["y"] + tools["height"] <= box["y"] < 800, "not below the bar that stays"
        opened.page.check("#stake")
        assert opened.visible(".group .name") == ["acme/ns/K"]
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    opened.page.uncheck("#stake")
    opened.page.fill("#search", "T59")
    assert opened.page.inner_text("#shown") == "60 of 62 objects", "a folded topic is found by its name"


def test_a_narrow_screen_is_not_scrolled_sideways(plan: Opened) -> None:
    plan.page.set_viewport_size({"width": 360, "height": 700})
    plan.page.click("#unfold")
    assert plan.page.evaluate("document.documentElement.scrollWidth <= innerWidth")

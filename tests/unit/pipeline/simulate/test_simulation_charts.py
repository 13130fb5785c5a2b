"""The lab's pictures."""

from __future__ import annotations

from functools import partial

import matplotlib as mpl
from kodo_pipeline.charts.charts import LIGHT
from kodo_pipeline.simulate.simulation_charts import for_chat, waits

from tests.samples.reports import EVIL, tried
from tests.unit.render.drawings import drawing


def test_each_tenant_has_its_waits_of_today_and_with_the_candidate():
    ((name, data),) = for_chat(tried())
    assert name == "lab-orders-billing.png"
    assert data.startswith(b"\x89PNG")
    (trial,) = tried()["trials"]
    drawn = drawing(partial(waits, title="x"), trial, LIGHT)
    for text in ("acme", "1,200 messages", "22 s", "120 ms", "(12 others)", "today", "with the candidate", "95 of 100"):
        assert text in drawn
    for colour in LIGHT.marks[:2]:
        assert colour in drawn, "blue and vermilion, and other marks and dashes"
    assert "stroke-dasharray" in drawn


def test_two_subscriptions_never_have_one_file():
    (trial,) = tried()["trials"]
    places = (("a-b", "c"), ("a", "b-c"), ("a", "b-c-2"))
    trials = [trial | {"topic": topic, "subscription": subscription} for topic, subscription in places]
    names = [name for name, _ in for_chat(tried() | {"trials": trials})]
    assert names == ["lab-a-b-c.png", "lab-a-b-c-2.png", "lab-a-b-c-2-2.png"]


def test_without_a_candidate_a_tenant_has_one_line():
    (trial,) = tried()["trials"]
    trial["candidate"] = None
    drawn = drawing(waits, trial, LIGHT)
    assert "today" in drawn
    assert "with the candidate" not in drawn
    assert "29.9 s" in drawn or "30 s" in drawn


def test_what_never_started_is_told_and_names_are_harmless():
    (trial,) = tried()["trials"]
    for side in ("today", "candidate"):
        trial[side]["tenants"][0]["tenant"] = EVIL
        trial[side]["tenants"][1]["messages"] = 1
    trial["candidate"]["tenants"][1]["wait_ms"] = None
    drawn = drawing(waits, trial, LIGHT)
    assert "<img" not in drawn
    assert "1 message<" in drawn
    assert "with the candidate: none" in drawn
    for side in ("today", "candidate"):
        for one in trial[side]["tenants"]:
            one["wait_ms"] = None
    assert list(for_chat(tried() | {"trials": [trial]})) == []


def test_settings_of_a_file_in_the_working_folder_count_for_nothing():
    """matplotlib reads a `matplotlibrc` of the working folder before any other."""
    (trial,) = tried()["trials"]
    usual = drawing(waits, trial, LIGHT)
    with mpl.rc_context(
        {"figure.facecolor": "#123456", "lines.linewidth": 50, "axes.titlesize": 60, "xtick.labelsize": 3}
    ):
        assert drawing(waits, trial, LIGHT) == usual
        assert mpl.rcParams["lines.linewidth"] == 50, "and others in the process keep theirs"

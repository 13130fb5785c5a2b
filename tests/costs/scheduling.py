"""Which process of a run takes which tests, and in which order: longest first by `tests/costs.json`."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

from tests.costs import table

_SPARK = "tests/spark"
_WHOLE = (_SPARK, "tests/clusters")
"""Folders whose files share a session of Spark, or a cluster that has one test at a time."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """`--dist loadfile`, where some folders stay whole."""
    return _Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In processes of pytest-xdist: first the tests of Spark, one process's work for most of the run, which leaves the cores to
    others (tests/spark/conftest.py); then files that are marked `timed`, for they need the cores most; then those that cost
    most, so that no process has a long file left when the others end.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    cost: defaultdict[str, float] = defaultdict(float)
    for file in dict.fromkeys(item.nodeid.split("::", 1)[0] for item in items):
        cost[_scope(file)] += table.seconds(file)
    timed = {_scope(item.nodeid) for item in items if item.get_closest_marker("timed")}
    order = sorted(cost, key=lambda scope: (scope != _SPARK, scope not in timed, -cost[scope]))
    place = {scope: number for number, scope in enumerate(order)}
    items.sort(key=lambda item: place[_scope(item.nodeid)])


class _Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def _scope(nodeid: str) -> str:
    """What stays in one process, in order: a file, or a whole folder."""
    folders = _WHOLE[1:] if os.environ.get("KODOCTL_TEST_SPARK") == "full" else _WHOLE
    whole = next((folder for folder in folders if nodeid.startswith(f"{folder}/")), None)
    return whole or nodeid.split("::", 1)[0]

"""Which process of a run takes which tests, and in which order: longest first by `tests/costs.json`."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.costs import table

_SPARE = "KODOCTL_TEST_SPARE"
_WHOLE = ("tests/spark", "tests/clusters")
"""Folders whose files share a session of Spark, or a cluster that has one test at a time."""
PATIENCE_S = 1200.0
"""Time limit of a test of the spare worker, which may get a twentieth of a core for a while."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """`--dist loadfile`, where some folders stay whole and the last process may be the spare one."""
    return _Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With KODOCTL_TEST_SPARE: first files that are marked `timed`, for they need the cores most; then those that cost most, so
    that no process has a long file left when the others end.
    """
    if _SPARE not in os.environ:
        return
    cost: Counter[str] = Counter()
    for file in dict.fromkeys(item.nodeid.split("::", 1)[0] for item in items):
        cost[_scope(file)] += table.seconds(file)
    timed = {_scope(item.nodeid) for item in items if item.get_closest_marker("timed")}
    order = sorted(cost, key=lambda scope: (scope not in timed, -cost[scope]))
    place = {scope: number for number, scope in enumerate(order)}
    items.sort(key=lambda item: place[_scope(item.nodeid)])


def is_spare(worker: str, workers: int) -> bool:
    """Whether a worker of pytest-xdist is the spare one: the last of several, with KODOCTL_TEST_SPARE."""
    return _SPARE in os.environ and workers > 1 and worker == f"gw{workers - 1}"


class _Scheduling(LoadFileScheduling):
    """The spare process uses what the others leave of the cores while they wait for a broker: it runs files that need no
    service, no process and no time.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if is_spare(node.gateway.id, self.numnodes):
            fitting = next((scope for scope in self.workqueue if table.needs_nothing(scope)), None)
            if fitting is None:
                return  # it ends with the others
            self.workqueue.move_to_end(fitting, last=False)
        super()._assign_work_unit(node)


def _scope(nodeid: str) -> str:
    """What stays in one process, in order: a file, or a whole folder."""
    folders = _WHOLE[1:] if os.environ.get("KODOCTL_TEST_SPARK") == "full" else _WHOLE
    whole = next((folder for folder in folders if nodeid.startswith(f"{folder}/")), None)
    return whole or nodeid.split("::", 1)[0]

"""Writes into each test's properties what its phases and fixtures cost: pytest puts them into the junit file of a run.

Properties: `file`, `begin` (seconds since 1970), `worker`, `setup`, `call` and `teardown` (seconds), `cpu` (seconds of
processor time of this process and of its children that ended meanwhile), and for each fixture that this test was the
first to need `fixture:SCOPE:NAME` (seconds, without the fixtures that the fixture itself names).
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import Any

import pytest

_LEAST_S = 0.01
"""A cheaper fixture is not worth a line."""
_BEGIN = pytest.StashKey[float]()
"""Processor time of this process before the set-up of the item."""


def _processor_time() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Notes the processor time before any fixture."""
    item.stash[_BEGIN] = _processor_time()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, pytest.TestReport]:
    """Adds the phase to the item, for later phases, and to this report, which has a copy."""
    report: pytest.TestReport = yield
    costs: list[tuple[str, str]] = [(report.when or "", f"{call.duration:.3f}")]
    if report.when == "setup":
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        costs += [("file", item.nodeid.split("::")[0]), ("begin", f"{call.start:.3f}"), ("worker", worker)]
    if report.when == "teardown":
        costs += [("cpu", f"{_processor_time() - item.stash[_BEGIN]:.3f}")]
    item.user_properties += costs
    report.user_properties += costs
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Fixtures that a fixture names are set up before it, each by a call of its own."""
    start = time.perf_counter()
    try:
        return (yield)
    finally:
        cost = time.perf_counter() - start
        node = getattr(request, "_pyfuncitem", None)
        if cost >= _LEAST_S and node is not None:
            node.user_properties.append((f"fixture:{fixturedef.scope}:{fixturedef.argname}", f"{cost:.3f}"))

"""Which Pulsar a text means."""

from __future__ import annotations

import pytest

from kodoctl.dev import versions
from kodoctl.errors import UsageError


@pytest.mark.parametrize(
    ("asked", "version"),
    [("4.2", "4.2.4"), ("4.0", "4.0.7"), ("4.2.4", "4.2.4"), ("4.1.3", "4.1.3"), ("5.0.0", "5.0.0")],
)
def test_a_line_or_an_exact_release(asked, version):
    assert versions.exact(asked) == version


@pytest.mark.parametrize(
    "asked", ["", "4", "3.3", "4.1", "latest", "4.2.x", "4.2.4-rc1", "../4.2.4", "4.2.4 -o", "4.٢.4"]
)
def test_anything_else_is_refused(asked):
    with pytest.raises(UsageError, match=r"K611"):
        versions.exact(asked)


@pytest.mark.parametrize(
    ("asked", "version", "served"),
    [("4.2", "4.2.4", True), ("4.2", "4.2.5", True), ("4.2.4", "4.2.5", False), ("4.0", "4.2.4", False)],
)
def test_which_data_serves_whom(asked, version, served):
    assert versions.fits(asked, version) is served


@pytest.mark.parametrize(("version", "needed"), [("4.0.7", 17), ("4.2.4", 17), ("5.0.0", 21)])
def test_java_that_a_release_needs(version, needed):
    assert versions.java_needed(version) == needed


def test_download_sizes_are_known_for_proved_releases_only():
    assert versions.download_size("4.2.4") > 200
    assert versions.download_size("4.1.3") == 0

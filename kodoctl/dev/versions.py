"""Resolver of Pulsar versions: a release line such as 4.2 means the one release of that line that is tested here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kodoctl.errors import UsageError, error

DEFAULT_LINE: Final = "4.2"


@dataclass(frozen=True, slots=True)
class Release:
    """A tested release; `download`: megabytes that Maven downloads the first time."""

    version: str
    download: int


RELEASES: Final = {"4.2": Release("4.2.4", 270), "4.0": Release("4.0.7", 260)}
_EXACT: Final = re.compile(r"[4-9]\.\d{1,3}\.\d{1,3}", re.ASCII)


def exact(asked: str) -> str:
    """Release to start, given a release line (`4.2`, `4.0`) or an exact version of Pulsar 4 or later, such as `4.1.3`.
    Raises UsageError (K611) for anything else.
    """
    if asked in RELEASES:
        return RELEASES[asked].version
    if _EXACT.fullmatch(asked):
        return asked
    known = ", ".join(f"{line} ({release.version})" for line, release in RELEASES.items())
    raise UsageError(
        error("K611", "unknown Pulsar version", f"{asked!r}: write {known}, or an exact one such as 4.2.4")
    )


def fits(asked: str, version: str) -> bool:
    """True if `version`, of existing data, is the version `asked`, or is a release of the release line `asked`."""
    return asked == version or (asked in RELEASES and version.startswith(f"{asked}."))


def download_size(version: str) -> int:
    """Megabytes that Maven downloads the first time; 0 if unknown."""
    return next((release.download for release in RELEASES.values() if release.version == version), 0)


def java_needed(version: str) -> int:
    """Lowest feature version of Java that a Pulsar release needs, such as 17."""
    return 17 if version.startswith("4.") else 21

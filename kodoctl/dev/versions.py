"""Resolver of Pulsar versions: a line such as 4.2 means its release that was proved to start from Maven jars."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kodoctl.errors import UsageError, error

DEFAULT_LINE: Final = "4.2"


@dataclass(frozen=True, slots=True)
class Release:
    """A proved release; `download` megabytes come from Maven the first time."""

    version: str
    download: int


RELEASES: Final = {"4.2": Release("4.2.4", 270), "4.0": Release("4.0.7", 260)}
_EXACT: Final = re.compile(r"[4-9]\.\d{1,3}\.\d{1,3}")


def exact(asked: str) -> str:
    """The release to start for `4.2`, `4.0` or an exact version. Raises UsageError (K611) for anything else."""
    if asked in RELEASES:
        return RELEASES[asked].version
    if _EXACT.fullmatch(asked):
        return asked
    known = ", ".join(f"{line} ({release.version})" for line, release in RELEASES.items())
    raise UsageError(
        error("K611", "unknown Pulsar version", f"{asked!r}: write {known}, or an exact one such as 4.2.4")
    )


def fits(asked: str, version: str) -> bool:
    """True if data made with `version` serves a request for `asked`: a line is served by any release of it."""
    return asked == version or (asked in RELEASES and version.startswith(f"{asked}."))


def download_size(version: str) -> int:
    """Megabytes fetched the first time; 0 when not known."""
    return next((release.download for release in RELEASES.values() if release.version == version), 0)


def java_needed(version: str) -> int:
    """Feature version of Java that a release needs at least."""
    return 17 if version.startswith("4.") else 21

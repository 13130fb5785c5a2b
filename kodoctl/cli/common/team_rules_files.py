"""Team rules of a command: read from the folders of its topologies, from `--rules`, and from an earlier revision."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, UsageError, Where, error, warning

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import SourceFile
    from kodoctl.topology.team_rules.rule_reader import PlacedRule
    from kodoctl.topology.team_rules.rule_run import TeamRules


def team_rules(files: Sequence[SourceFile], named: Sequence[str] | None, against: str | None) -> TeamRules | None:
    """Team rules for topology files: of the rules files at or above them, and of the files `named` by `--rules`. With
    `against`, the rules files of that git revision judge as well, so that a change under review can make rules stricter
    and cannot weaken them. None if there is no rules file. Raises UsageError for a missing file of `--rules`, or an
    unknown revision.
    """
    from kodoctl.topology.team_rules.discovery import places_of_rules

    places = places_of_rules(files)
    apart = {os.path.realpath(name) for name in named or ()}
    there = [place for place in places if os.path.lexists(place) and os.path.realpath(place) not in apart]
    earlier = list(_earlier(places, against)) if against is not None else []
    if not (there or named or earlier):
        return None
    from kodoctl.topology.load import read_source
    from kodoctl.topology.team_rules.rule_reader import read_rules
    from kodoctl.topology.team_rules.rule_run import TeamRules

    if missing := [name for name in named or () if not Path(name).exists()]:
        raise UsageError(
            *(error("K016", "cannot read file", "there is no such rules file", Where(one)) for one in missing)
        )
    rules: list[PlacedRule] = []
    findings: list[Diagnostic] = []
    for path, folder in [*((one, one.parent.resolve()) for one in there), *((Path(one), None) for one in named or ())]:
        read, wrong = read_rules(read_source(path), folder)
        rules += read
        findings += wrong
    for source in earlier:
        read, wrong = read_rules(source, source.path.parent.resolve(), str(against))
        rules += read
        if wrong:
            detail = f"at {against}: {wrong[0].where}: {wrong[0].detail}; what it cannot say there does not count"
            findings.append(warning("K407", "an earlier file cannot be read", detail))
    return TeamRules(rules, findings, datetime.now(UTC).date().isoformat())


def _earlier(places: Sequence[Path], against: str) -> Iterator[SourceFile]:
    """Yields the rules files that a git revision had at these places."""
    from kodoctl.cli.common.git import Revision
    from kodoctl.topology.load import source_of

    revision = cache(lambda folder: Revision(against, folder))
    for place in places:
        if (data := revision(place.parent).read(place)) is not None:
            yield source_of(data, str(place))

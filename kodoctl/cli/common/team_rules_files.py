"""Team rules of a command: read from the folders of its topologies, from `--rules`, and from an earlier revision."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, UsageError, Where, error, warning

if TYPE_CHECKING:
    from kodoctl.topology.lint.registry import LintScope
    from kodoctl.topology.loaded_topology import SourceFile
    from kodoctl.topology.team_rules.rule_reader import PlacedRule
    from kodoctl.topology.team_rules.rule_run import TeamRules


def team_rules(files: Sequence[SourceFile], named: Sequence[str] | None, against: str | None) -> TeamRules | None:
    """Team rules for topology files: those of the rules files at or above them, and of the files `named` by `--rules`.
    None if there is no rules file. Raises UsageError for a missing file of `--rules`, or an unknown revision.

    With `against`, each of these files judges as it was at that git revision as well, if it is in a repository of the
    topology files: also topologies that have left its folder since, and objects that a rule would have judged then. So
    a change under review can make rules stricter, but can neither weaken them nor move an object out of their reach.
    """
    from kodoctl.topology.team_rules.discovery import places_of_rules

    places = places_of_rules(files)
    apart = {os.path.realpath(name) for name in named or ()}
    there = [place for place in places if os.path.lexists(place) and os.path.realpath(place) not in apart]
    left = list(_left(files, against)) if against is not None else []
    earlier = list(_earlier(places, named or (), files, against)) if against is not None else []
    if not (there or named or earlier or left):
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
    for source, names in [*((one, None) for one in earlier), *left]:
        is_everywhere = names is not None or os.path.realpath(source.path) in apart
        read, wrong = read_rules(source, None if is_everywhere else source.path.parent.resolve(), str(against))
        rules += (replace(one, named=names) for one in read)
        if wrong:
            detail = f"at {against}: {wrong[0].where}: {wrong[0].detail}; what it cannot say there does not count"
            findings.append(warning("K407", "an earlier file cannot be read", detail))
    today = datetime.now(UTC).date().isoformat()
    if against is None:
        return TeamRules(rules, findings, today)
    return TeamRules(rules, findings, today, _scopes_at(files, against))


def _scopes_at(files: Sequence[SourceFile], against: str) -> Callable[[str | None], LintScope | None]:
    """Returns the function that loads the topologies of these files as a git revision had them in an environment (None:
    the base), without files that are invalid there. It returns None if they had no such environment then.
    """
    from kodoctl.cli.common.baseline_files import files_at
    from kodoctl.topology.expand import expand
    from kodoctl.topology.lint.registry import LintScope
    from kodoctl.topology.load import environments_of, load_set

    then = cache(lambda: files_at([str(file.path) for file in files], against))

    def scope(environment: str | None) -> LintScope | None:
        if environment not in (None, *environments_of(then())):
            return None
        return LintScope(tuple(map(expand, load_set(then(), environment).topologies)))

    return scope


def _left(files: Sequence[SourceFile], against: str) -> Iterator[tuple[SourceFile, frozenset[str]]]:
    """Yields (rules file as it was at a git revision, names of the topologies that were below its folder then, and no
    longer are).
    """
    from kodoctl.cli.common.git import Revision, has_content
    from kodoctl.topology.load import RULES_FILE, is_topology_file, source_of
    from kodoctl.topology.team_rules.discovery import folder_of

    now = {name: folder_of(file) for file in files if (name := _name_of(file))}
    revisions = {one.top: one for one in (Revision(against, file.path.parent) for file in files)}
    for revision in revisions.values():
        blobs = revision.files()
        places = [path for path in blobs if path.name == RULES_FILE]
        names: dict[Path, str] = {}  # of the topologies that are no longer what they were, by their path then
        for path, blob in blobs.items():
            moved = is_topology_file(path.name) and not (path.resolve() == path and has_content(path, blob))
            if moved and any(path.is_relative_to(place.parent) for place in places):
                names[path] = _name_of(source_of(revision.content(blob), str(path)))
        for place in places:
            below = [name for path, name in names.items() if path.is_relative_to(place.parent)]
            if gone := frozenset(one for one in below if one in now and not now[one].is_relative_to(place.parent)):
                data = revision.read(place) if place.parent.resolve() == place.parent else None
                yield source_of(data or revision.content(blobs[place]), os.path.relpath(place)), gone


def _name_of(file: SourceFile) -> str:
    """Name of the topology in a file, "" if it has none that is a text."""
    node = file.root.members().get("name") if file.root is not None else None
    return node.value if node is not None and isinstance(node.value, str) else ""


def _earlier(
    places: Sequence[Path], named: Sequence[str], files: Sequence[SourceFile], against: str
) -> Iterator[SourceFile]:
    """Yields the rules files that a git revision had at these places, and those of `--rules` (`named`) that a repository
    of the topology files had.
    """
    from kodoctl.cli.common.git import Revision
    from kodoctl.topology.load import source_of

    revision = cache(lambda folder: Revision(against, folder))
    for place in places:
        if (data := revision(place.parent).read(place)) is not None:
            yield source_of(data, str(place))
    revisions = {one.top: one for one in (revision(file.path.parent) for file in files)}
    there = {os.path.realpath(place) for place in places}
    for path in (Path(name) for name in named if os.path.realpath(name) not in there):
        for one in revisions.values():
            if (data := one.read(path)) is not None:
                yield source_of(data, str(path))

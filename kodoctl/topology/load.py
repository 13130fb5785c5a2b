"""Loading of topology files: read, check, overlay with an environment, validate. All findings at once, with places."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from os.path import realpath
from pathlib import Path as FilePath
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kodoctl.errors import Diagnostic, InvalidFileError, UsageError, Where, error
from kodoctl.topology import defaults
from kodoctl.topology import environments as overlay
from kodoctl.topology.lint.suppressions import Suppression, find_allows
from kodoctl.topology.loaded_topology import MAX_ENVIRONMENTS, LoadedTopology, SourceFile, TopologySet
from kodoctl.topology.model.topology import VERSION, GroundTopic, Topology
from kodoctl.topology.path_guard import why_outside_repository
from kodoctl.topology.payload_schemas import read_payloads
from kodoctl.topology.yaml.nodes import MAX_BYTES, MAX_FINDINGS, Node, parse

BASE = "base"
STANDARD_INPUT: Final = "-"
RULES_FILE: Final = "kodoctl-rules.yaml"
"""Name of a file with team rules, which is no topology."""
_NO_FILE = "it does not exist; `kodoctl init` writes an example"
MAX_TOPICS = 150_000  # that one file stands for: twice what 5,000 ground topics of the largest shape need
# a ground topic is validated within a file, because building a validator of its own costs 0.1 s a start
_ANY_HEAD: Final = {"version": VERSION, "name": "n", "tenant": "t", "namespace": "n"}


def read_files(paths: Iterable[str]) -> list[SourceFile]:
    """Reads and parses the files that `find_files` finds, which may raise UsageError. Faults of a file are in its
    `findings`.
    """
    return [read_source(path) for path in find_files(paths)]


def find_files(paths: Iterable[str]) -> list[FilePath]:
    """Finds every file named, and every topology file below every folder named, each once and in a stable order. Raises
    UsageError for missing paths, folders without topology files, folders that cannot be read, and links below a folder
    that lead to folders outside of it, because links are not followed.
    """
    found: dict[str, FilePath] = {}
    problems: list[Diagnostic] = []
    for text in paths:
        path = FilePath(text)
        try:
            for one in _files_of(path, problems):
                found.setdefault(realpath(one), one)
        except OSError as problem:  # such as of a path below a folder that may not be entered
            problems.append(error("K016", "cannot read file", problem.strerror or "it cannot be read", Where(text)))
    if problems:
        raise UsageError(*problems)
    return list(found.values())


def _files_of(path: FilePath, problems: list[Diagnostic]) -> list[FilePath]:
    """Returns a file, or the topology files below a folder in a stable order. What a path lacks is added to `problems`."""
    if path.is_dir():
        known = len(problems)
        inside = sorted(_below(path, problems))
        if not inside and len(problems) == known:
            detail = "no *.yaml and no *.yml below this folder; `kodoctl init` writes an example"
            problems.append(error("K016", "no topology files", detail, Where(str(path))))
        return inside
    if path.exists():
        return [path]
    problems.append(error("K016", "cannot read file", _why_missing(path), Where(str(path))))
    return []


def _why_missing(path: FilePath) -> str:
    """Reason why a path names nothing, with the most similar path in its folder, if there is one."""
    if str(path) == STANDARD_INPUT:
        return "only `lint` reads standard input: name a file or a folder"
    if path.is_symlink():
        return f"it is a link to {path.readlink()}, which does not exist"
    folder = path.parent
    try:
        names = sorted(one.name for one in folder.iterdir() if is_topology_file(one.name) or one.is_dir())
    except OSError:
        return _NO_FILE if folder.is_dir() else f"it does not exist, because there is no folder {folder}"
    near = get_close_matches(path.name, names, 1, 0.75)
    return f"it does not exist; did you mean {folder / near[0]}?" if near else _NO_FILE


def is_topology_file(name: str) -> bool:
    """True if a file with this name or path counts as a topology file of its folder: any `*.yaml` or `*.yml` but
    `kodoctl-rules.yaml`. Looks at the name only, so that it can judge files of a commit as well.
    """
    return is_yaml(name) and FilePath(name).name != RULES_FILE


def is_yaml(name: str) -> bool:
    """True if the name or path ends in `.yaml` or `.yml`, in lower or upper case. Does not look at the content."""
    return name.lower().endswith((".yaml", ".yml"))


def _below(folder: FilePath, problems: list[Diagnostic]) -> Iterator[FilePath]:
    """Yields the topology files of a folder, including files that are not regular: `read_source` reports those.

    Folders that cannot be read are added to `problems`, because nobody would notice that their files are not
    judged. A link to a folder inside `folder` is no problem, because that folder is read itself.
    """

    def refuse(place: str, detail: str) -> None:
        problems.append(error("K016", "cannot read folder", detail, Where(place)))

    def on_walk_error(problem: OSError) -> None:
        refuse(str(problem.filename), problem.strerror or "it cannot be read")

    top = realpath(folder)
    for place, folders, names in os.walk(folder, onerror=on_walk_error):
        for link in filter(os.path.islink, (os.path.join(place, name) for name in folders)):  # noqa: PTH118  # os.walk's texts
            if not FilePath(realpath(link)).is_relative_to(top):
                refuse(link, f"it is a link to {realpath(link)}, and links are not followed: name that folder")
        yield from (FilePath(place, name) for name in names if is_topology_file(name))


def read_source(path: FilePath) -> SourceFile:
    """Reads and parses one file. Raises nothing for a file that is missing, not regular, outside of the repository or
    not valid: such faults are in its `findings`.
    """
    try:
        if stray := why_outside_repository(path.parent, path):
            return _unread(path, "K016", "cannot read file", stray)
        if not path.exists():
            return _unread(path, "K016", "cannot read file", _why_missing(path))
        if not path.is_file():
            return _unread(path, "K016", "cannot read file", "it is not a regular file")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
            size = path.stat().st_size
    except OSError as problem:
        return _unread(path, "K016", "cannot read file", problem.strerror or "it cannot be read")
    return _sized_source(data, size, path)


def typed_source(data: bytes) -> SourceFile:
    """Parses the bytes of standard input. Findings, which include all faults of its content, name it `-`; paths in it
    are relative to the working folder.
    """
    return _sized_source(data, len(data), FilePath(STANDARD_INPUT))


def _sized_source(data: bytes, size: int, path: FilePath) -> SourceFile:
    """Parses a file's bytes, of which there are `size`. A file above the limit has that as its only finding."""
    if size > MAX_BYTES:
        detail = f"{size / (1 << 20):.1f} MiB, at most 8 MiB: split it into several files with names of their own"
        return _unread(path, "K009", "file too large", detail)
    return source_of(data, str(path))


def _unread(path: FilePath, code: str, summary: str, detail: str) -> SourceFile:
    return SourceFile(path, str(path), None, (), (error(code, summary, detail, Where(str(path))),))


def source_of(data: bytes, name: str) -> SourceFile:
    """Parses a file's bytes. `name`: path of the file, which findings name; paths in the file are relative to its
    folder. Raises nothing: all faults are in `findings` of the result.
    """
    root, findings = parse(data, name)
    allows: list[Suppression] = []
    if root is not None:
        allows, more = find_allows(data.decode("utf-8-sig"), root, name)
        findings += more
    return SourceFile(FilePath(name), name, root, tuple(allows), tuple(findings))


def environments_of(files: Iterable[SourceFile]) -> tuple[str, ...]:
    """Names of all environments of the files, without duplicates, in the order of their first mention."""
    return tuple(dict.fromkeys(name for file in files for name in file.environments))


def choose_environment(files: Sequence[SourceFile], asked: str | None) -> str | None:
    """Returns the environment for a command that reads a cluster: `asked`, or None for the base (if `asked` is `base`,
    or is None and the files have no environments). Raises UsageError (K017) if the files have environments and `asked`
    is None, or if they do not have `asked`.

    Raises InvalidFileError instead if a file without environments is broken, which may be why they are missing.
    """
    names = environments_of(files)
    if asked in (*names, BASE) or (asked is None and not names):
        return None if asked == BASE else asked
    if broken := load_set([file for file in files if not file.environments], None).findings:
        raise InvalidFileError(*broken)
    shown = ", ".join((*names, BASE))
    if asked is None:
        raise UsageError(error("K017", "environment needed", f"name one with --env: {shown}"))
    choice = f"these files have: {shown}" if names else "these files have no `environments`: leave --env out"
    raise UsageError(error("K017", "unknown environment", f"{asked!r}: {choice}"))


def load_set(files: Sequence[SourceFile], environment: str | None, base: TopologySet | None = None) -> TopologySet:
    """Loads the topologies of `files` in `environment` (None: the base), and reads the payload schema files that they
    name. A file that has errors, or does not have `environment`, is left out; its findings are in the set that is
    returned. Raises nothing for the content of files. `base`: the same files loaded without environment, if available:
    parts that the overlay does not change are not validated again.
    """
    topologies: list[LoadedTopology] = []
    findings: list[Diagnostic] = []
    known = {loaded.source.name: loaded.spec for loaded in base.topologies} if base else {}
    for file in files:
        loaded, found = _load(file, environment, known.get(file.name))
        findings += [*file.findings, *found]
        if loaded is not None:
            topologies.append(loaded)
    return TopologySet(tuple(topologies), environment, tuple(findings))


def load_topology(path: str, environment: str | None = None) -> LoadedTopology:
    """Reads and loads one file, or the only one of a folder, in one environment (None: the base). Runs no lint rules.
    Raises UsageError for a missing path and for a folder that cannot be read or has no file or several (K701),
    InvalidFileError with all findings for a file that is invalid, cannot be read or does not have `environment`.
    """
    files = read_files([path])
    if len(files) != 1:
        raise UsageError(error("K701", "one topology file needed", f"{path} holds {len(files)}: name one of them"))
    loaded = load_set(files, environment)
    if loaded.findings:
        raise InvalidFileError(*loaded.findings)
    return loaded.topologies[0]


def _load(
    file: SourceFile, environment: str | None, base: Topology | None
) -> tuple[LoadedTopology | None, list[Diagnostic]]:
    root = file.root
    if root is None:
        return None, []
    if not isinstance(root.value, dict):
        return None, [
            error("K004", "wrong value", "the file should be a map that begins with `version: 1`", root.where)
        ]
    if unknown := _unknown_version(root):
        return None, [unknown]
    if {"format_version", "seal"} <= root.value.keys():
        detail = f"this is a plan file, not a topology; to carry it out: kodoctl apply {file.name}"
        return None, [error("K004", "wrong value", detail, root.where)]
    if file.path.name == RULES_FILE:
        detail = (
            "this is a rules file: `lint` and `plan` read it with the topologies at and below its folder; name those"
        )
        return None, [error("K004", "wrong value", detail, root.where)]
    if len(root.value) > 1 and root.value.keys().isdisjoint(Topology.model_fields):
        kind = "a Kubernetes object, not a topology" if "apiVersion" in root.value else "no topology"
        detail = f"this is {kind}: it has none of the keys version, name, tenant, namespace and topics"
        return None, [error("K004", "wrong value", detail, root.where)]
    if environment is not None and environment not in file.environments:
        detail = (
            f"the set is read in environment {environment!r}, which this file does not have: add it (it may be {{}})"
        )
        return None, _bad_environments(root) or [error("K017", "missing environment", detail, root.where)]
    merged, production, findings = overlay.in_environment(root, environment)
    if environment is None:
        findings += _bad_environments(root)
    spec, invalid = validate(merged, root, base)
    if invalid:
        from kodoctl.topology.json_schema.file_schema import topology_schema
        from kodoctl.topology.yaml.validation_errors import from_validation

        findings += from_validation(invalid, merged, topology_schema())
    if spec is None or findings or file.findings:
        return None, findings
    if (many := defaults.number_of_topics(spec)) > MAX_TOPICS:
        detail = (
            f"the file stands for {many:,} topics, at most {MAX_TOPICS:,}: split it into files with names of their own"
        )
        return None, [error("K008", "too many topics", detail, root.where)]
    return LoadedTopology(spec, read_payloads(spec, file.path.parent), merged, file, environment, production), findings


def _unknown_version(root: Node) -> Diagnostic | None:
    assert isinstance(root.value, dict)
    version = root.value.get("version")
    if version is None or version.value is None:  # missing: the model says so
        return None
    if not isinstance(version.value, int) or isinstance(version.value, bool):
        return error("K007", "unknown version", f"version is a whole number: write `version: {VERSION}`", version.where)
    if version.value != VERSION:
        detail = f"this kodoctl reads version {VERSION}; version {version.value} needs another one (see its CHANGELOG)"
        return error("K007", "unknown version", detail, version.where)
    return None


def _bad_environments(root: Node) -> list[Diagnostic]:
    """Errors in shape and names of the overlays, checked once with the base; values are checked in each environment."""
    assert isinstance(root.value, dict)
    node = root.value.get("environments")
    if node is None:
        return []
    if not isinstance(node.value, dict):
        detail = "environments should be a map from names to overlays, such as {prod: {production: true}}"
        return [error("K004", "wrong value", detail, node.where)]
    if len(node.value) > MAX_ENVIRONMENTS:
        detail = f"{len(node.value):,} environments, at most {MAX_ENVIRONMENTS}: each is checked on its own"
        return [error("K008", "too many values", detail, node.key_where)]
    return [
        error("K017", "reserved name", f"{BASE!r} names the file without overlay: choose another", child.key_where)
        for name, child in node.value.items()
        if name == BASE
    ]


def validate(merged: Node, root: Node, base: Topology | None) -> tuple[Topology | None, list[ErrorDetails]]:
    """Returns (model of `merged`, validation errors): the model is None if there are errors. Ground topics are
    validated one by one, until there are 200 errors (MAX_FINDINGS).

    `merged`: the file with its overlay. A ground topic whose node there is the same object as in `root`, the file
    without overlay, is taken from `base`, the model of `root`; None: there is no such model.
    """
    assert isinstance(merged.value, dict)
    plain: dict[str, object] = {key: node.plain() for key, node in merged.value.items() if key != "topics"}
    topics, before = merged.value.get("topics"), root.members("topics")
    if topics is not None:
        plain["topics"] = {} if isinstance(topics.value, dict) else topics.plain()
    head, details = _attempt(plain)
    grounds: dict[str, GroundTopic] = {}
    for name, node in merged.members("topics").items():
        if base is not None and before.get(name) is node:
            grounds[name] = base.topics[name]
            continue
        one, wrong = _attempt({**_ANY_HEAD, "topics": {name: node.plain()}})
        grounds |= one.topics if one else {}
        details += wrong
        if len(details) >= MAX_FINDINGS:
            break
    if head is None or details:
        return None, details[:MAX_FINDINGS]
    return head.model_copy(update={"topics": grounds}), []


def _attempt(document: dict[str, object]) -> tuple[Topology | None, list[ErrorDetails]]:
    try:
        return Topology.of_file(document), []
    except ValidationError as problem:
        return None, problem.errors(include_url=False)

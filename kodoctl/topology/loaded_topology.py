"""A file as it was read, a topology as it was loaded, and the set of topologies that one command works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from kodoctl.topology.yaml.nodes import Node, node_at

if TYPE_CHECKING:
    from kodoctl.errors import Diagnostic, Where
    from kodoctl.topology.lint.suppressions import Suppression
    from kodoctl.topology.model.topology import Topology
    from kodoctl.topology.package_files import PackageFile
    from kodoctl.topology.payload_schemas import PayloadFile

MAX_ENVIRONMENTS = 64  # of one file: each is judged on its own


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as it was read. `name`: its name in findings; `root`: its nodes, None if it cannot be parsed; `allows`:
    its allow-comments; `findings`: errors of reading and parsing it, and of those comments.
    """

    path: FilePath
    name: str
    root: Node | None
    allows: tuple[Suppression, ...]
    findings: tuple[Diagnostic, ...]

    @property
    def environments(self) -> tuple[str, ...]:
        """Names of the environments in the file, in its order, at most MAX_ENVIRONMENTS; more are a finding."""
        return tuple(self.root.members("environments") if self.root else ())[:MAX_ENVIRONMENTS]


@dataclass(frozen=True)
class LoadedTopology:
    """One topology as it is in one environment. `environment`: its name, None: the base, without an overlay;
    `payloads`: ground topic -> its schema file; `root`: nodes of the file with the overlay merged in; `production`: the
    environment is a production one.
    """

    spec: Topology
    payloads: Mapping[str, PayloadFile] = field(repr=False)
    root: Node = field(repr=False, compare=False)
    source: SourceFile = field(repr=False, compare=False)
    environment: str | None
    production: bool

    @cached_property
    def packages(self) -> Mapping[str, PackageFile]:
        """Packages by their keys in the file (`TYPE://TENANT/NAMESPACE/NAME@VERSION`). Reads the package files at the
        first access, because workers of a topology need none; a file that cannot be read is a `problem` of its package.
        """
        from kodoctl.topology.package_files import read_packages

        return read_packages(self.spec, self.source.path.parent)

    def where(self, *path: str | int) -> Where:
        """Place of the value at `path` (keys and list indices) in the file. For a map or a list the place of its key;
        for a value that is missing that of the key of the nearest entry around it.
        """
        node, walked = node_at(self.root, path)
        return node.where if walked == path and not isinstance(node.value, dict | list) else node.key_where

    def says(self, *path: str | int) -> bool:
        """True if the file, with the overlay merged in, has a value at `path`, be it null."""
        return node_at(self.root, path)[1] == path

    def where_key(self, *path: str | int) -> Where:
        """Place of the key at `path`, or of the nearest entry around it if there is none."""
        return node_at(self.root, path)[0].key_where


@dataclass(frozen=True)
class TopologySet:
    """The topologies of one command in one environment (None: the base), and the findings of loading them. Files with
    errors have only findings here.
    """

    topologies: tuple[LoadedTopology, ...]
    environment: str | None
    findings: tuple[Diagnostic, ...]

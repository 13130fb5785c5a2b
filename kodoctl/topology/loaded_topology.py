"""A loaded topology, the file that it comes from, and the set of those that one command reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from kodoctl.topology.yaml.nodes import Node, node_at

if TYPE_CHECKING:
    from kodoctl.errors import Diagnostic, Where
    from kodoctl.topology.lint.suppressions import Suppression
    from kodoctl.topology.model.topology import Topology
    from kodoctl.topology.payload_schemas import PayloadFile

MAX_ENVIRONMENTS = 64  # of one file: each is judged on its own


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as read: its nodes, its allow-comments, and the findings about its text."""

    path: FilePath
    name: str
    root: Node | None
    allows: tuple[Suppression, ...]
    findings: tuple[Diagnostic, ...]

    @property
    def environments(self) -> tuple[str, ...]:
        """Names of the environments the file declares, in its order (too many are a finding, and not looked at)."""
        return tuple(self.root.members("environments") if self.root else ())[:MAX_ENVIRONMENTS]


@dataclass(frozen=True)
class LoadedTopology:
    """One topology as one environment sees it. `environment` is None for the base."""

    spec: Topology
    payloads: Mapping[str, PayloadFile] = field(repr=False)
    root: Node = field(repr=False, compare=False)
    source: SourceFile = field(repr=False, compare=False)
    environment: str | None
    production: bool

    def where(self, *path: str | int) -> Where:
        """The place of the value at `path`, or of the nearest entry around it (a value that expand derived has none)."""
        node, walked = node_at(self.root, path)
        return node.where if walked == path and not isinstance(node.value, dict | list) else node.key_where

    def says(self, *path: str | int) -> bool:
        """True if the file (overlay included) has a value at `path`."""
        return node_at(self.root, path)[1] == path

    def where_key(self, *path: str | int) -> Where:
        """The place of the key at `path`, or of the nearest entry around it."""
        return node_at(self.root, path)[0].key_where


@dataclass(frozen=True)
class TopologySet:
    """All topologies of one command in one environment, and the findings of loading them."""

    topologies: tuple[LoadedTopology, ...]
    environment: str | None
    findings: tuple[Diagnostic, ...]

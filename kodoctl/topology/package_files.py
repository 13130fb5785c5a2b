"""Packages that a topology declares: their files, and the digests of these, by which an apply knows the content."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os.path import normpath
from pathlib import Path as FilePath
from stat import S_ISREG
from typing import TYPE_CHECKING

from kodoctl.topology.path_guard import why_outside_repository
from kodoctl.topology.resources import PackageResource, parse_package

if TYPE_CHECKING:
    from kodoctl.topology.model.topology import Topology


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A declared package. `resource`: None if the key in the file is no name of a package; `problem`: the reason why
    the package's file cannot be read, so that `resource` has the digest "".
    """

    resource: PackageResource | None
    problem: str | None = None


def read_packages(spec: Topology, folder: FilePath) -> dict[str, PackageFile]:
    """Reads the files of the declared packages. Returns the packages with their digests, by their keys in the topology
    file. Paths are relative to `folder`. A file that cannot be read raises nothing: the package has a `problem`.
    """
    found = {}
    for url, package in spec.packages.items():
        resource = parse_package(url)
        if resource is None:
            found[url] = PackageFile(None)
            continue
        path = FilePath(normpath(folder / package.file))
        digest, problem = _digest(path, folder)
        declared = replace(resource, digest=digest, file=str(path), description=package.description)
        found[url] = PackageFile(declared, problem)
    return found


def _digest(path: FilePath, folder: FilePath) -> tuple[str, str | None]:
    import hashlib  # few files declare a package

    try:
        if problem := why_outside_repository(folder, path):
            return "", problem
        if not S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            return "", "it is not a regular file"
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest(), None
    except OSError as failed:
        return "", failed.strerror or "it cannot be read"

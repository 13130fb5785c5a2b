"""Environments: a JSON merge patch (RFC 7396) over the nodes of a file; every value keeps its place in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodoctl.errors import Diagnostic, error

if TYPE_CHECKING:
    from kodoctl.topology.yaml.nodes import Node

PRODUCTION = "production"
_FIXED = ("name", "version", "formerly", "environments")


def apply_overlay(root: Node | None, patch: Node) -> Node:
    """Returns `root` with `patch` merged in: null deletes, maps merge, any other value replaces. Neither argument is
    changed. `root` None: there is no value below the patch.
    """
    if not isinstance(patch.value, dict):
        return patch
    base = root if root is not None and isinstance(root.value, dict) else _with_children(patch, {})
    children = base.members().copy()
    for key, change in patch.value.items():
        if change.value is None:
            children.pop(key, None)
        else:
            children[key] = apply_overlay(children.get(key), change)
    return _with_children(base, children)


def in_environment(root: Node, environment: str | None) -> tuple[Node, bool, list[Diagnostic]]:
    """(root node of the file with the overlay of `environment` merged in, True if the environment is a production one,
    errors in the overlay). `environment` None, or one that the file does not have: the file without `environments`.
    """
    if not isinstance(root.value, dict):
        return root, False, []
    base = _with_children(root, {key: child for key, child in root.value.items() if key != "environments"})
    patch = root.members("environments").get(environment) if environment is not None else None
    if patch is None:
        return base, False, []
    if not isinstance(patch.value, dict):
        detail = f"environments.{environment} should be a map; {{}} changes nothing"
        return base, False, [error("K004", "wrong value", detail, patch.where)]
    head = f"environments.{environment}"
    findings = [
        error("K017", "an overlay may not change this", f"{head}.{key}: {key} is the same everywhere", node.key_where)
        for key, node in patch.value.items()
        if key in _FIXED
    ]
    production = patch.value.get(PRODUCTION)
    if production is not None and not isinstance(production.value, bool):
        detail = f"{head}.production should be true or false"
        findings.append(error("K004", "wrong value", detail, production.where))
    rest = _with_children(patch, {k: n for k, n in patch.value.items() if k != PRODUCTION and k not in _FIXED})
    return apply_overlay(base, rest), production is not None and production.value is True, findings


def changes_nothing(root: Node | None, environment: str) -> bool:
    """True if the file has the environment and its overlay is empty, so that it has the same findings as the base."""
    patch = root.members("environments").get(environment) if root else None
    return patch is not None and patch.value == {}


def _with_children(node: Node, children: dict[str, Node]) -> Node:
    copy = node.twin()
    copy.value = children
    copy.key_line, copy.key_column = node.key_line, node.key_column
    return copy

"""Syntax trees of the product's modules: parsed and walked once, for the dozen rules that look at every node of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """The tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of the file, the module first."""
    return tuple(ast.walk(tree(path)))

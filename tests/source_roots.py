"""Folders of the three parts in this tree, for tests that read the sources and for processes that run them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = {
    name: ROOT / folder
    for name, folder in {
        "kodoctl": "kodoctl",
        "kodo_consumer": "consumer/kodo_consumer",
        "kodo_pipeline": "pipeline/kodo_pipeline",
    }.items()
}
"""Packages of the product, by their names."""
SOURCES: Final = sorted(path for package in PACKAGES.values() for path in package.rglob("*.py"))
PATHS: Final = os.pathsep.join(dict.fromkeys(str(package.parent) for package in PACKAGES.values()))
"""PYTHONPATH of a process that is to run this tree, whatever is installed."""

"""A repository with topologies, as the reviews of both forges have it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.brokers.workspace import Workspace

BARE = "{subscriptions: {s: {states: [], dead_letter: false}}}"


class TopologyRepository:
    """A repository whose `topologies/trade.yaml` is for the broker of a workspace. On main, and applied: topic J."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.origin, self.runner_folder = workspace, folder / "origin", folder / "runner"
        self.origin.mkdir()
        self.runner_folder.mkdir()
        self.git("init", "-q", "-b", "main")
        self.commit(f"J: {BARE}")
        workspace.apply(str(self.origin / "topologies"))

    def git(self, *arguments: str) -> str:
        names = ["-c", "user.name=anna", "-c", "user.email=anna@example.org"]
        done = subprocess.run(["git", *names, *arguments], cwd=self.origin, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, topics: str, files: Mapping[str, str] = MappingProxyType({})) -> str:
        """Commits the topology with these topics, and other files by name; the commit."""
        text = f"version: 1\nname: trade\ntenant: {self.workspace.tenant}\nnamespace: ns\ntopics:\n  {topics}\n"
        (self.origin / "topologies").mkdir(exist_ok=True)
        (self.origin / "topologies/trade.yaml").write_text(text, encoding="utf-8")
        for name, content in files.items():
            (self.origin / name).write_text(content, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "topologies")
        return self.git("rev-parse", "HEAD")

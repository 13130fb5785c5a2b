"""Every command and file in the documentation is really run, on the real broker, in the order of the page.

A block that begins with `# file: NAME` is written to that file; `sh` blocks are run (`# exit N` behind a command: that exit code
is right); `console` blocks are not (they start brokers or install things, which other tests do). `<!-- test … -->` is run, too:
what a page takes for granted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$|^<!-- test\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# file: (\S+)\n")
_EXIT = re.compile(r"^(.*\S)\s+# exit (\d+)$", re.MULTILINE)


def steps(page: Path) -> list[tuple[str, str]]:
    """(file name or "", text) of every block that does something, in order."""
    found = []
    for kind, text, hidden in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if hidden or kind == "sh":
            found.append(("", hidden or text))
        elif (named := _FILE.match(text)) is not None:
            found.append((named[1], text))
    return found


def script(text: str) -> str:
    """A block as bash that stops at the first unexpected exit code."""
    return "set -euo pipefail\n" + _EXIT.sub(r"code=0; \1 || code=$?; test $code -eq \2", text)


PAGES = [
    page
    for page in sorted([ROOT / "README.md", ROOT / "docs" / "tutorial.md", *(ROOT / "docs" / "how-to").glob("*.md")])
    if steps(page)
]
AT_NIGHT = {
    "bulkheads",
    "migrating-from-soften",
    "move-tenants",
    "pull-requests",
    "slow-customers",
    "steering",
    "waiting-messages",
    "worker-processes",
}
"""Pages whose commands take long."""
INSTALLED = "monitoring"
"""The page whose commands are processes of their own, started by the installed scripts."""


@pytest.mark.parametrize(
    "page", [pytest.param(one, id=one.stem, marks=[pytest.mark.full] * (one.stem in AT_NIGHT)) for one in PAGES]
)
def test_what_a_page_shows_really_works(page, broker, commands, tmp_path):
    shutil.copytree(ROOT / "topologies", tmp_path / "topologies")
    shutil.copytree(ROOT / "schemas", tmp_path / "schemas")
    installed = str(Path(sys.executable).parent)
    environ = {
        **os.environ,
        "PATH": ":".join([*([str(commands)] if page.stem != INSTALLED else []), installed, os.environ["PATH"]]),
        "KODOCTL_ADMIN_URL": broker.admin_url,
        "KODOCTL_BROKER_URL": broker.broker_url,
        "KODOCTL_FUNCTION_WORKER": "none",
        "KODOCTL_CONFIG": str(tmp_path / "kodoctl-of-the-test.toml"),
    }

    for name, text in steps(page):
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
            continue
        done = subprocess.run(
            ["bash", "-c", script(text)],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

        assert done.returncode == 0, f"{page.name}:\n{text}\n--- printed\n{done.stdout}\n--- errors\n{done.stderr}"


def test_every_page_is_found_from_the_index():
    """A page nobody can find is not documentation."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    lost = [page.name for page in ROOT.glob("docs/*/*.md") if f"({page.relative_to(ROOT / 'docs')})" not in index]

    assert lost == []


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md"]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]

    broken = [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()]

    assert broken == []


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_a_part_of_a_page_find_its_heading():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    links = [
        (page, target, anchor)
        for page in pages
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    ]

    broken = [
        f"{page.name}: {target}#{anchor}"
        for page, target, anchor in links
        if anchor not in anchors(page.parent / target if target else page)
    ]

    assert broken == []

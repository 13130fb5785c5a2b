"""Earlier files from git: a pull request's files are read, and nothing that they say is run."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kodoctl.cli.common import git as module
from kodoctl.cli.common.baseline_files import expansions_at
from kodoctl.cli.common.git import Revision, head_of, source_of_topology
from kodoctl.errors import UsageError
from kodoctl.pulsar.values.ledger import Source
from tests.source_roots import SOURCES
from tests.unit.cli.running import kodoctl

TOPOLOGY = b"version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics: {orders: {}}\n"
ROOT = Path(__file__).parents[4]


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write(name: str, content: bytes = TOPOLOGY) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def commit() -> str:
    git("init", "-q", ".") if not Path(".git").exists() else None
    git("add", "-A")
    git("commit", "-qm", "x")
    return git("rev-parse", "HEAD")


@pytest.fixture
def hostile() -> Path:
    """A pull request whose folder `topologies` is a bare repository to git: its config names a command, which git runs to
    fetch the commit that its ref names and that is not there. The result: what the command writes.
    """
    canary = Path("canary").absolute()
    write("topologies/trade.yaml")
    commit()
    write("topologies/HEAD", b"ref: refs/heads/main\n")
    command = f'echo "token=$KODOCTL_TOKEN" > {canary}; false'
    config = (
        "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tpartialClone = origin\n"
        f'[remote "origin"]\n\turl = .\n\tpromisor = true\n\tuploadpack = "{command.replace(chr(34), chr(92) + chr(34))}"\n'
    )
    write("topologies/config", config.encode())
    write("topologies/refs/remotes/origin/main", b"1" * 40 + b"\n")
    write("topologies/objects/info/x", b"")
    return canary


def test_the_folder_of_this_test_does_make_git_run_a_command(hostile: Path) -> None:
    asked = ["git", "-C", "topologies", "rev-parse", "origin/main^{commit}"]
    subprocess.run(asked, env={**os.environ, "KODOCTL_TOKEN": "secret"}, capture_output=True, check=False)
    assert hostile.read_text() == "token=secret\n"


@pytest.mark.parametrize("what", ["topologies", "topologies/trade.yaml", "."])
@pytest.mark.parametrize("command", [("lint",), ("plan", "--admin-url", "http://127.0.0.1:9")], ids=["lint", "plan"])
def test_files_that_are_a_bare_repository_run_nothing(
    hostile: Path, command: tuple[str, ...], what: str, monkeypatch: pytest.MonkeyPatch, one_try: None
) -> None:
    monkeypatch.setenv("KODOCTL_TOKEN", "secret")
    name, *options = command
    ran = kodoctl(name, what, *options, "--against", "origin/main")
    assert not hostile.exists()
    assert ran.code == 64
    assert "K024" in ran.err
    assert kodoctl(name, what, *options, "--against", "HEAD").code == (0 if name == "lint" else 1)
    assert not hostile.exists()


@pytest.mark.parametrize("guard", ["safe.bareRepository", "GIT_ALLOW_PROTOCOL", ""])
def test_each_guard_is_enough_by_itself(hostile: Path, guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`_top` alone, and each setting alone where git is run in the folder itself; whatever the folder or the shell allows."""
    with Path("topologies/config").open("a", encoding="utf-8") as config:
        config.write('[protocol "file"]\n\tallow = always\n')
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file:ext")
    for name in ("_SETTINGS", "_ENVIRONMENT"):
        monkeypatch.setattr(module, name, {k: v for k, v in getattr(module, name).items() if k == guard})
    if guard:
        monkeypatch.setattr(module, "_top", lambda folder: folder)
    with pytest.raises(UsageError, match="K024"):
        Revision("origin/main", Path("topologies"))
    assert not hostile.exists()


def test_an_object_that_a_partial_clone_lacks_is_not_fetched_and_not_taken_for_absent() -> None:
    write("topologies/trade.yaml")
    first = commit()
    git("config", "remote.origin.url", ".")
    git("config", "extensions.partialClone", "origin")
    git("config", "remote.origin.uploadpack", "touch canary; false")
    (blob,) = (line.split()[2] for line in git("ls-tree", "-r", first).splitlines())
    Path(".git/objects", blob[:2], blob[2:]).unlink()
    with pytest.raises(UsageError, match="partial clone"):
        Revision(first, Path("topologies")).read(Path("topologies/trade.yaml"))
    assert not Path("canary").exists()


@pytest.mark.parametrize("lacking", ["blob:none", "tree:0"])
def test_a_payload_schema_that_broke_is_not_let_through_by_a_partial_clone(lacking: str) -> None:
    """The check of a schema against the one before is not left out because the one before cannot be read."""
    schema = b'{"type": "record", "name": "O", "fields": [{"name": "a", "type": "%s"}]}'
    write("origin/topologies/trade.yaml", TOPOLOGY.replace(b"{}", b"{payload: {type: avro, schema: o.avsc}}"))
    write("origin/topologies/o.avsc", schema % b"string")
    os.chdir("origin")
    commit()
    git("config", "uploadpack.allowFilter", "true")
    write("topologies/o.avsc", schema % b"long")
    commit()
    assert kodoctl("lint", "--against", "HEAD~1").code == 1
    git("clone", "-q", f"--filter={lacking}", Path.cwd().as_uri(), "../partial")
    os.chdir("../partial")
    ran = kodoctl("lint", "--against", "HEAD~1")
    assert (ran.code, "partial clone" in ran.err) == (64, True)
    assert kodoctl("plan", "--admin-url", "http://127.0.0.1:9", "--against", "HEAD~1").code == 64


def test_without_a_repository_the_error_says_where_it_looked(tmp_path: Path) -> None:
    write("topologies/trade.yaml")
    ran = kodoctl("lint", "--against", "HEAD")
    assert ran.code == 64
    assert "not a git repository" in ran.err
    assert (head_of(Path("topologies")), source_of_topology(Path("topologies/trade.yaml")).path) == (None, None)


def test_files_and_folders_as_they_were() -> None:
    write("topologies/trade.yaml", b"one")
    write("topologies/deep/ünï code.yaml", b"two")
    write("topologies/notes.txt", b"three")
    write("topologies/kodoctl-rules.yaml", b"five")
    write("top.yaml", b"four")
    first = commit()
    shutil.rmtree("topologies")
    write("topologies/trade.yaml", b"other")
    commit()
    revision = Revision(first, Path("topologies"))
    found = revision.below(Path("topologies"))
    assert found == [Path("topologies/deep/ünï code.yaml"), Path("topologies/trade.yaml")]
    assert [revision.read(file) for file in found] == [b"two", b"one"]
    assert revision.below(Path()) == [Path("top.yaml"), *found]
    assert revision.read(Path("topologies/none.yaml")) is None
    assert revision.read(Path("topologies")) is None
    assert revision.read(Path("../outside.yaml")) is None
    assert revision.below(Path("..")) == []
    os.chdir("topologies")
    assert revision.read(Path("trade.yaml")) == b"one"
    assert set(Revision(first, Path()).below(Path())) == {Path("deep/ünï code.yaml"), Path("trade.yaml")}


def test_a_linked_working_tree_has_its_repository() -> None:
    write("main/topologies/trade.yaml")
    os.chdir("main")
    first = commit()
    git("worktree", "add", "-q", "../linked")
    os.chdir("../linked")
    assert Revision("HEAD", Path("topologies")).commit == first == head_of(Path("topologies"))
    assert source_of_topology(Path("topologies/trade.yaml")).path == "topologies/trade.yaml"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/Owner/Name.git", "git@github.com:Owner/Name.git", "ssh://git@github.com/owner/name",
        "https://user:secret@github.com/Owner/Name/",
    ],
)  # fmt: skip
def test_a_repository_has_one_name_however_it_was_cloned(url: str) -> None:
    assert module.repository(url) == "github.com/owner/name"


def test_a_git_that_gives_no_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    write("topologies/trade.yaml")
    commit()
    write("bin/git", b"#!/bin/sh\nexec sleep 60\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path('bin').absolute()}:{os.environ['PATH']}")
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    ran = kodoctl("lint", "--against", "HEAD")
    assert (ran.code, "no answer within" in ran.err) == (64, True)


def test_a_git_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    write("topologies/trade.yaml")
    commit()
    write("bin/git", b"\x7fELF of another machine").chmod(0o755)
    monkeypatch.setenv("PATH", str(Path("bin").absolute()))
    assert (head_of(Path("topologies")), source_of_topology(Path("topologies/trade.yaml"))) == (None, Source())
    ran = kodoctl("lint", "--against", "HEAD")
    assert (ran.code, "[K025]" in ran.err, "Exec format error" in " ".join(ran.err.split())) == (64, True, True)


def test_a_schema_file_is_read_as_it_was_where_its_folder_is_gone() -> None:
    write("topologies/trade.yaml", TOPOLOGY.replace(b"{}", b"{payload: {type: avro, schema: ../schemas/o.avsc}}"))
    write("schemas/o.avsc", b'"string"')
    commit()
    git("mv", "schemas", "payloads")
    _, (then,) = expansions_at(["topologies"], "HEAD", None)
    assert then.topology.payloads["orders"].definition == "string"


def test_an_earlier_file_that_names_a_schema_outside_of_the_repository_does_not_end_the_command() -> None:
    write("repository/trade.yaml", TOPOLOGY.replace(b"{}", b"{payload: {type: avro, schema: ../o.avsc}}"))
    write("o.avsc", b'"string"')
    os.chdir("repository")
    commit()
    _, (then,) = expansions_at(["."], "HEAD", None)
    assert then.topology.payloads["orders"].definition is None


def _elements(node: ast.AST) -> list[ast.expr]:
    """Of a list or a tuple its elements, of a call its arguments: any of these may begin with a program."""
    return node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []


def test_git_is_run_in_one_place_only() -> None:
    found = [
        file.relative_to(ROOT).as_posix()
        for file in SOURCES
        if "git" in (text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        for first in _elements(node)[:1]
        if getattr(first, "value", None) == "git"
    ]
    assert found == ["kodoctl/cli/common/git.py"]

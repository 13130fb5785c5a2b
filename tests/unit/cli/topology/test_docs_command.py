"""docs at the command line: the folder of pages, whose it is, and what the command says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kodoctl.cli.topology.docs_folder import check_folder
from tests.services.programs import system_program
from tests.unit.cli.running import Ran, kodoctl

TRADE = """\
version: 1
name: trade
description: Orders
tenant: kodo
namespace: trade
topics:
  orders: {producers: [checkout], subscriptions: {billing: {produces: [shipments, kodo/depot/parcels]}}}
  shipments: {}
environments: {prod: {}}
"""
DEPOT = """\
version: 1
name: depot
tenant: kodo
namespace: depot
topics: {parcels: {}}
environments: {prod: {}}
"""
PAGES = ["catalogue/index.html", "catalogue/topologies/depot.html", "catalogue/topologies/trade.html"]


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    system_program("graphviz", "dot")
    Path("topologies").mkdir()
    Path("topologies/trade.yaml").write_text(TRADE)
    Path("topologies/depot.yaml").write_text(DEPOT)


def made(*options: str) -> Ran:
    ran = kodoctl("docs", "--env", "prod", *options)
    assert (ran.code, ran.err) == (0, ""), ran.err
    return ran


def found(folder: str = "catalogue") -> list[str]:
    return sorted(str(path) for path in Path(folder).rglob("*.html"))


def git(*words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


def test_a_folder_of_pages() -> None:
    ran = made()
    assert ran.out == "catalogue/index.html written: 2 topologies, 3 ground topics, 3 pages.\n"
    assert found() == PAGES
    text = Path(PAGES[2]).read_text()
    assert 'role="group" aria-label="Flow of trade"' in text
    assert '<a href="trade.html#topic-orders~billing">' in text
    assert '<a href="depot.html#topic-parcels">' in text
    assert 'aria-label="Lanes of orders"' in text
    assert '<a href="topologies/depot.html">' in Path(PAGES[0]).read_text()


def test_pages_of_a_file_that_lint_refuses_come_with_its_errors_as_warnings() -> None:
    Path("topologies/trade.yaml").write_text(TRADE.replace("prod: {}", "prod: {production: true}"))
    assert kodoctl("lint").code == 1
    ran = kodoctl("docs", "--env", "prod")
    assert (ran.code, found()) == (0, PAGES)
    assert ran.err.startswith("Warning: durability below what is promised [K205]\n  at topologies/trade.yaml:6:1\n")
    assert ran.err.endswith("The pages show files that `kodoctl lint` and `kodoctl plan` refuse.\n")
    allowed = TRADE.replace("prod: {}", "prod: {production: true}").replace(
        "topics:", "# kodoctl: allow K205 because it is a test\ntopics:"
    )
    Path("topologies/trade.yaml").write_text(allowed)
    made()


def test_the_same_files_give_the_same_pages() -> None:
    made()
    first = {path: Path(path).read_bytes() for path in PAGES}
    made()
    assert {path: Path(path).read_bytes() for path in PAGES} == first


def test_pages_of_topologies_that_are_gone_are_removed_and_other_files_stay() -> None:
    made()
    Path("catalogue/CNAME").write_text("docs.example.com")
    Path("topologies/depot.yaml").unlink()
    made()
    assert found() == [PAGES[0], PAGES[2]]
    assert Path("catalogue/CNAME").read_text() == "docs.example.com"


def test_several_paths_and_a_folder_that_is_named() -> None:
    made("topologies/trade.yaml", "topologies/depot.yaml", "--out", "a/b")
    assert found("a/b") == [page.replace("catalogue", "a/b") for page in PAGES]


@pytest.mark.parametrize("out", ["topologies", "topologies/trade.yaml", "."])
def test_a_folder_of_somebody_else_is_refused(out: str) -> None:
    ran = kodoctl("docs", "--env", "prod", "--out", out)
    assert (ran.code, ran.out) == (64, "")
    assert "[K033]" in ran.err
    assert found(".") == []


def test_a_folder_that_may_not_be_listed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("catalogue").mkdir()

    def deny(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", deny)
    ran = kodoctl("docs", "--env", "prod")
    assert (ran.code, ran.out) == (64, "")
    assert "catalogue cannot be listed (Permission denied)" in ran.err
    assert "[K033]" in ran.err


def test_a_page_of_somebody_else_is_not_replaced() -> None:
    Path("topologies/depot.yaml").rename("depot.yaml")
    made()
    Path(PAGES[1]).write_text("mine")
    Path("depot.yaml").rename("topologies/depot.yaml")
    ran = kodoctl("docs", "--env", "prod")
    assert (ran.code, ran.out) == (64, "")
    assert "kodoctl did not write topologies/depot.html in catalogue" in ran.err
    assert Path(PAGES[1]).read_text() == "mine"


@pytest.mark.parametrize(
    "mark",
    ["no JSON", "[]", "[" * 100_000, '{"format": "x", "pages": []}', '{"format": "kodoctl docs 1"}'],
    ids=["text", "list", "deep", "format", "no pages"],
)
def test_a_mark_of_somebody_else_is_no_mark(mark: str) -> None:
    Path("catalogue").mkdir()
    Path("catalogue/kodoctl-docs.json").write_text(mark)
    assert "[K033]" in kodoctl("docs", "--env", "prod").err


def test_a_mark_with_names_that_no_file_has_is_read_without_them() -> None:
    made()
    pages = [page.removeprefix("catalogue/") for page in PAGES]
    mark = {"format": "kodoctl docs 1", "pages": [*pages, "a\0.html", "\ud800.html"]}
    Path("catalogue/kodoctl-docs.json").write_text(json.dumps(mark))
    assert check_folder(Path("catalogue")) == pages
    made()


def test_a_folder_of_another_place_has_the_repository_that_it_is_in() -> None:
    git("init", "-q")
    git("remote", "add", "origin", "https://git.example/wrong/one.git")
    git("init", "-q", "topologies")
    git("-C", "topologies", "remote", "add", "origin", "https://git.example/shop/trade.git")
    made("topologies")
    index = Path(PAGES[0]).read_text()
    assert "repository git.example/shop/trade" in index


def test_a_mark_that_was_changed_removes_nothing_but_pages() -> None:
    made()
    Path("catalogue/deep/er").mkdir(parents=True)
    kept = ["x.html", "catalogue/notes.txt", "catalogue/deep/er/x.html"]
    for name in kept:
        Path(name).write_text("mine")
    names = ["../x.html", "notes.txt", "deep/er/x.html", "/x.html", "..html", 3, "./../x.html"]
    names += [page.removeprefix("catalogue/") for page in PAGES]
    Path("catalogue/kodoctl-docs.json").write_text(json.dumps({"format": "kodoctl docs 1", "pages": names}))
    made()
    assert [Path(name).read_text() for name in kept] == ["mine"] * len(kept)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    made()
    outside = tmp_path / "outside"
    Path("catalogue/topologies").rename(outside)
    Path("catalogue/topologies").symlink_to(outside)
    before = {file: file.read_bytes() for file in outside.iterdir()}
    Path("topologies/depot.yaml").unlink()
    assert "topologies is a link" in kodoctl("docs", "--env", "prod").err
    assert {file: file.read_bytes() for file in outside.iterdir()} == before


def test_a_folder_that_cannot_be_written_says_why() -> None:
    Path("file").write_text("")
    ran = kodoctl("docs", "--env", "prod", "--out", "file/site")
    assert ran.code == 64
    assert "[K020]" in ran.err


def test_differences_to_a_revision() -> None:
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    Path("topologies/depot.yaml").unlink()
    Path("topologies/trade.yaml").write_text(TRADE.replace("Orders", "Sales"))
    made("--against", "HEAD")
    index = Path(PAGES[0]).read_text()
    assert '<a href="topologies/trade.html#changes">trade</a> 1 change</p>' in index
    assert "<p>depot removed, was in <code>topologies/depot.yaml</code></p>" in index
    assert "Orders → Sales" in Path(PAGES[2]).read_text()
    assert "[K024]" in kodoctl("docs", "--env", "prod", "--against", "nowhere").err


def test_without_graphviz_the_flow_is_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = kodoctl("docs", "--env", "prod")
    assert (ran.code, ran.out.count("3 pages")) == (0, 1)
    assert ran.err.startswith("Warning: Graphviz is missing [K027]\n  pages have lists in place of drawings\n")
    assert "Mermaid" not in ran.err
    assert "checkout → orders → billing → shipments, kodo/depot/parcels" in Path(PAGES[2]).read_text()


def test_options_of_a_cluster_need_live() -> None:
    ran = kodoctl("docs", "--context", "dev")
    assert (ran.code, "[K034]" in ran.err) == (64, True)


def test_a_cluster_is_compared_with_an_environment() -> None:
    ran = kodoctl("docs", "--live", "--admin-url", "http://127.0.0.1:1")
    assert (ran.code, ran.out) == (64, "")
    assert "name one with --env: prod, base" in ran.err


def test_files_with_errors_make_no_page() -> None:
    Path("topologies/depot.yaml").write_text(DEPOT.replace("topics", "topic"))
    ran = kodoctl("docs", "--env", "prod")
    assert (ran.code, ran.out) == (1, "")
    assert not Path("catalogue").exists()


def test_what_a_team_rule_refuses_is_a_warning() -> None:
    rule = "because: Somebody is paged., of: topics, require: {owners: {present: true}}"
    Path("kodoctl-rules.yaml").write_text(f"version: 1\nrules: {{owners: {{{rule}}}}}\n")
    ran = kodoctl("docs", "--env", "prod")
    assert ran.code == 0
    assert "trade/orders: owners has no value" in " ".join(ran.err.split())
    assert "`kodoctl lint` and `kodoctl plan` refuse" in ran.err

"""lint, fmt, init and schema at the command line."""

import io
import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kodoctl.topology.json_schema.file_schema import schema_text
from tests.brokers.workspace import run_main
from tests.unit.cli.running import kodoctl

HEAD = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\n"
GOOD = HEAD + "topics:\n  orders: {}\n"
WARNED = HEAD + "topics:\n  orders: {partitions: 5000}\n"
WRONG = HEAD + "topics:\n  orders: {levls: double}\n"
MESSY = "name: trade\n# format\nversion: 1\ntenant: kodo\nnamespace: trade\ntopics: {}\n"
NEAT = "# format\nversion: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics: {}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "topologies/trade.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


# --- lint


def test_lint_reads_the_folder_topologies_by_itself() -> None:
    write(GOOD)
    ran = kodoctl("lint")
    assert (ran.code, ran.out) == (0, "1 file, 1 ground topic: no findings.\n")


def test_lint_prints_one_line_a_finding_and_fails_on_errors() -> None:
    write(WRONG)
    ran = kodoctl("lint", "topologies/trade.yaml")
    assert ran.code == 1
    assert (
        ran.out
        == "topologies/trade.yaml:6:12 K003 error unknown key: topics.orders.levls: did you mean 'levels'?\n1 file, 0 ground topics: 1 error.\n"
    )


def test_lint_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(text: str, *arguments: str) -> Any:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return run_main("lint", *arguments)

    assert typed(WRONG, "-").out.startswith("-:6:12 K003 error unknown key: ")
    write(GOOD.replace("trade", "other"))
    assert typed(GOOD, "-", "topologies").out == "2 files, 2 ground topics: no findings.\n"
    refused = typed(GOOD, "-", "--against", "main")
    assert (refused.code, "standard input has no revisions" in refused.err) == (64, True)
    assert "only `lint` reads standard input" in run_main("expand", "-").err
    assert "file too large" in typed("#" * (9 << 20), "-").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "  orders: {levls: double}\n" in typed(WRONG, "-").out


@pytest.mark.parametrize(("variable", "coloured"), [("1", True), ("0", False), ("", False)])
def test_lint_shows_excerpts_in_colour_where_a_pipe_is_for_people(
    variable: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(WRONG)
    monkeypatch.setenv("FORCE_COLOR", variable)
    out = run_main("lint").out
    assert ("\x1b[1;31merror K003: unknown key\x1b[0m\n" in out) == coloured
    assert ("     6 |   orders: {levls: double}\n" in out) == coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run_main("lint").out


def test_warnings_fail_only_when_asked_to() -> None:
    write(WARNED)
    assert kodoctl("lint").code == 0
    assert kodoctl("lint", "--strict").code == 1


def test_lint_for_machines() -> None:
    write(WARNED)
    found = json.loads(kodoctl("lint", "--format", "json").out)
    assert (found["format_version"], found["failed"], found["findings"][0]["code"]) == (1, False, "K207")
    sarif = json.loads(kodoctl("lint", "--format", "sarif").out)
    assert sarif["runs"][0]["results"][0]["ruleId"] == "K207"
    assert "::warning file=topologies/trade.yaml,line=6,col=24,title=K207" in kodoctl("lint", "--format", "github").out


def test_a_folder_without_files_says_what_to_do() -> None:
    Path("topologies").mkdir()
    ran = kodoctl("lint")
    assert (ran.code, ran.out) == (64, "")
    assert "`kodoctl init` writes an example" in ran.err


def test_a_name_cannot_forge_a_second_finding() -> None:
    write(HEAD + 'topics: {orders: {}}\n"x\\n::error file=a::forged": 1\n')
    ran = kodoctl("lint")
    assert all(line.startswith(("topologies/", "1 file")) for line in ran.out.splitlines())


# --- lint --against


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def commit(schema: object, topology: str) -> None:
    write(topology)
    write(json.dumps(schema), "schemas/order.json")
    git("add", ".")
    git("commit", "-qm", "x", "--allow-empty")


PAYLOAD = HEAD + "topics: {orders: {payload: {type: json, schema: ../schemas/order.json}}}\n"


def test_payload_schemas_are_compared_with_a_revision() -> None:
    git("init", "-q")
    commit({"type": "number"}, PAYLOAD)
    assert kodoctl("lint", "--against", "HEAD").code == 0
    write('{"type": "integer"}', "schemas/order.json")
    assert kodoctl("lint").code == 0
    ran = kodoctl("lint", "--against", "HEAD")
    assert ran.code == 1
    assert "topologies/trade.yaml:5:49 K304 error" in ran.out
    assert (
        "schemas/order.json: not FULL compatible: the new schema cannot read what the old one wrote: type number: only integer is accepted"
        in ran.out
    )


def test_a_schema_that_moved_is_compared_with_the_file_it_was_in() -> None:
    git("init", "-q")
    commit({"type": "number"}, PAYLOAD)
    write(PAYLOAD.replace("order.json", "order.v2.json"))
    write('{"type": "integer"}', "schemas/order.v2.json")
    assert "schemas/order.v2.json: not FULL compatible" in kodoctl("lint", "--against", "HEAD").out


def test_what_is_new_has_nothing_to_be_compared_with() -> None:
    git("init", "-q")
    commit({"type": "number"}, GOOD)
    write(PAYLOAD)
    write(
        PAYLOAD.replace("name: trade\n", "name: other\n").replace("namespace: trade", "namespace: other"),
        "topologies/other.yaml",
    )
    write('{"type": "integer"}', "schemas/order.json")
    assert kodoctl("lint", "--against", "HEAD").code == 0


def test_a_schema_whose_folder_is_gone_has_nothing_to_be_compared_with() -> None:
    git("init", "-q")
    write(PAYLOAD.replace("../schemas", "../gone"))
    write('{"type": "number"}', "gone/order.json")
    commit({"type": "number"}, PAYLOAD.replace("../schemas", "../gone"))
    Path("gone/order.json").rename("order.json")
    Path("gone").rmdir()
    assert "No such file" in kodoctl("lint", "--against", "HEAD").out


@pytest.mark.parametrize(
    ("ref", "repository", "says"),
    [
        ("nowhere", True, "git knows no commit 'nowhere' there"),
        ("--output=x", True, "git knows no commit '--output=x' there"),
        ("HEAD", False, "not a git repository"),
    ],
)
def test_a_revision_that_git_does_not_know_is_a_usage_error(
    ref: str, repository: bool, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(Path.cwd().parent))
    if repository:
        git("init", "-q")
        commit({}, GOOD)
    write(GOOD)
    ran = kodoctl("lint", f"--against={ref}")
    assert ran.code == 64
    assert says in ran.err
    assert ("Fetch it first (in CI: a checkout with its history)." in ran.err) is repository


def test_without_git_the_option_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    write(GOOD)
    monkeypatch.setenv("PATH", "")
    ran = kodoctl("lint", "--against", "HEAD")
    assert ran.code == 64
    assert "reads earlier files with git: install it" in ran.err


# --- fmt


def test_fmt_rewrites_files_and_says_which() -> None:
    messy, neat = write(MESSY), write(NEAT.replace("trade", "other"), "topologies/other.yaml")
    before = neat.stat().st_mtime_ns
    ran = kodoctl("fmt")
    assert (ran.code, ran.out, ran.err) == (
        0,
        "topologies/trade.yaml formatted\n",
        "2 files: 1 formatted, 0 left alone.\n",
    )
    assert messy.read_text() == NEAT
    assert neat.stat().st_mtime_ns == before, "a file in order is not touched"
    assert kodoctl("fmt").out == ""


def test_fmt_check_changes_nothing_and_fails() -> None:
    path = write(MESSY)
    ran = kodoctl("fmt", "--check")
    assert (ran.code, ran.out, ran.err) == (
        1,
        "topologies/trade.yaml would change\n",
        "1 file: 1 would change, 0 left alone.\n",
    )
    assert path.read_text() == MESSY
    write(NEAT)
    assert kodoctl("fmt", "--check").code == 0


def test_fmt_diff_shows_what_would_change_and_changes_nothing() -> None:
    path = write(MESSY)
    ran = kodoctl("fmt", "--diff")
    assert ran.code == 0
    assert ran.out.splitlines()[:5] == [
        "--- topologies/trade.yaml",
        "+++ topologies/trade.yaml (formatted)",
        "@@ -1,6 +1,6 @@",
        "-name: trade",
        " # format",
    ]
    assert path.read_text() == MESSY
    assert kodoctl("fmt", "--diff", "--check").code == 1


def test_fmt_leaves_files_with_errors_alone_and_says_why() -> None:
    path = write(WRONG)
    write(MESSY.replace("trade", "other"), "topologies/other.yaml")
    ran = kodoctl("fmt")
    assert ran.code == 1
    assert "unknown key [K003]" in ran.err
    assert path.read_text() == WRONG
    assert ran.out == "topologies/other.yaml formatted\n"


def test_fmt_leaves_alone_what_an_environment_makes_wrong() -> None:
    path = write(MESSY + "environments: {prod: {defaults: {partitons: 3}}}\n")
    assert kodoctl("fmt").code == 1
    assert path.read_text().startswith(MESSY)


def test_fmt_refuses_what_it_cannot_lay_out_safely() -> None:
    path = write("? version\n: 1\n" + GOOD.removeprefix("version: 1\n"))
    ran = kodoctl("fmt")
    assert ran.code == 1
    assert "line 1 holds more than a key and its value: the file stays as it is" in ran.err
    assert path.read_text().startswith("? version")


def test_fmt_keeps_mode_links_and_line_ends() -> None:
    path = write(MESSY.replace("\n", "\r\n"), "real/trade.yaml")
    path.chmod(0o640)
    Path("link.yaml").symlink_to(path)
    assert kodoctl("fmt", "link.yaml").code == 0
    assert Path("link.yaml").is_symlink()
    assert path.read_bytes().decode() == NEAT.replace("\n", "\r\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [one.name for one in Path("real").iterdir()] == ["trade.yaml"], "nothing is left beside it"


def test_a_file_that_cannot_be_replaced_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(MESSY)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    ran = kodoctl("fmt")
    assert (ran.code, path.read_text()) == (64, MESSY)
    assert "No space left on device" in ran.err
    assert [one.name for one in path.parent.iterdir()] == ["trade.yaml"]


# --- init


@pytest.mark.parametrize("shape", ["simplest", "simple", "single", "backup", "double"])
def test_init_writes_an_example_that_is_right(shape: str) -> None:
    ran = kodoctl("init", "--shape", shape, "--name", f"my-{shape}")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == f"topologies/my-{shape}.yaml written. Next:"
    for command in ran.out.splitlines()[1:]:
        assert kodoctl(*command.split()[1:]).code == 0
    assert kodoctl("lint", "--strict").code == 0
    assert kodoctl("fmt", "--check").code == 0


def _schema_line(file: str) -> str | None:
    """What an editor takes for the place of the schema."""
    found = re.search(r"^# yaml-language-server: \$schema=(.*)$", Path(file).read_text(), re.MULTILINE)
    return found[1] if found else None


@pytest.mark.parametrize("file", ["topologies/example.yaml", "here.yaml", "a/b/c.yaml"])
def test_init_writes_the_schema_that_its_file_names(file: str) -> None:
    ran = kodoctl("init", file)
    assert _schema_line(file) == "topology.v1.json"
    named = Path(file).parent / "topology.v1.json"
    assert named.read_text() == schema_text() + "\n"
    assert f"{named} written" in ran.err
    assert kodoctl("lint", file).code == 0


def test_init_names_the_schema_that_is_there_already_and_writes_no_second_one() -> None:
    Path("repo/.git").mkdir(parents=True)
    Path("repo/schemas").mkdir()
    assert kodoctl("schema", "--output", "repo/schemas/topology.v1.json").code == 0
    assert kodoctl("init", "repo/topologies/teams/shop.yaml").code == 0
    assert _schema_line("repo/topologies/teams/shop.yaml") == "../../schemas/topology.v1.json"
    assert [str(path) for path in Path("repo").rglob("*.json")] == ["repo/schemas/topology.v1.json"]
    assert kodoctl("init", "elsewhere/one.yaml").code == kodoctl("init", "elsewhere/two.yaml").code == 0
    assert _schema_line("elsewhere/two.yaml") == "topology.v1.json"


@pytest.mark.parametrize("content", ["{}", "[1]", "no JSON", '{"$id": "of somebody else"}'])
def test_init_leaves_somebody_elses_file_of_that_name_alone_and_names_no_schema(content: str) -> None:
    other = write(content, "topologies/topology.v1.json")
    assert kodoctl("init").code == 0
    assert (other.read_text(), _schema_line("topologies/example.yaml")) == (content, None)


def test_init_writes_its_file_also_where_no_schema_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path.open

    def refuse(path: Path, *arguments: Any, **more: Any) -> Any:
        if path.name == "topology.v1.json":
            raise PermissionError(13, "Permission denied")
        return own(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", refuse)
    assert kodoctl("init").code == 0
    assert Path("topologies/example.yaml").exists()


def test_init_without_more_writes_the_single_shape() -> None:
    assert kodoctl("init").code == 0
    assert "name: example" in Path("topologies/example.yaml").read_text()


def test_init_takes_the_name_from_the_file() -> None:
    assert kodoctl("init", "deep/down/shop.yaml").code == 0
    assert "name: shop" in Path("deep/down/shop.yaml").read_text()


def test_init_never_overwrites() -> None:
    path = write(GOOD, "topologies/example.yaml")
    ran = kodoctl("init")
    assert ran.code == 64
    assert "topologies/example.yaml is there already and stays as it is" in ran.err
    assert path.read_text() == GOOD


def test_init_refuses_names_that_pulsar_would() -> None:
    ran = kodoctl("init", "my shop.yaml")
    assert ran.code == 64
    assert "'my shop' is no name: it holds ' '" in ran.err
    assert not Path("my shop.yaml").exists()


def test_init_says_why_it_cannot_write() -> None:
    write("", "topologies")
    ran = kodoctl("init")
    assert ran.code == 64
    assert "topologies/example.yaml: " in ran.err


# --- schema


def test_schema_prints_the_schema_or_writes_it() -> None:
    assert kodoctl("schema").out == schema_text() + "\n"
    assert kodoctl("schema", "--output", "s.json").out == ""
    assert Path("s.json").read_text() == schema_text() + "\n"


def test_schema_says_why_it_cannot_write() -> None:
    ran = kodoctl("schema", "--output", "no/where.json")
    assert ran.code == 64
    assert "no/where.json: No such file or directory" in ran.err


# --- help


@pytest.mark.parametrize("command", ["lint", "fmt", "init", "schema", "expand", "graph"])
def test_every_command_explains_itself_with_an_example_within_80_columns(command: str) -> None:
    ran = kodoctl(command, "--help")
    assert ran.code == 0
    assert f"Example: kodoctl {command}" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_process_answers_usage_errors_with_64() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kodoctl", "lint", "--format", "xml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 64
    assert "'xml' is not one of" in done.stderr

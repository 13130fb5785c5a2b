"""Reading files: folders, what cannot be read, environments asked for, and places of values."""

import os
from pathlib import Path

import pytest

from kodoctl.errors import ExitCode, InvalidFileError, UsageError
from kodoctl.topology import load
from kodoctl.topology.load import choose_environment, environments_of, load_set, load_topology, read_files, source_of
from tests.unit.topology.topology_files import FILE, HEAD, found_in, loaded

GOOD = HEAD + "topics: {orders: {}}\n"


def write(path: Path, text: str = GOOD) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_folder_means_every_topology_file_below_it_once_and_in_order(tmp_path: Path) -> None:
    for name in ("b.yaml", "a/c.yaml", "a/d.yml", "a/E.YML"):
        write(tmp_path / name)
    write(tmp_path / "a/notes.txt")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "b.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "again").symlink_to(tmp_path / "a")
    found = read_files([str(tmp_path / "b.yaml"), str(tmp_path), str(tmp_path / "a")])
    assert [file.name.removeprefix(f"{tmp_path}/") for file in found] == ["b.yaml", "a/E.YML", "a/c.yaml", "a/d.yml"]


@pytest.mark.parametrize("name", ["broken.yml", "broken.yaml", "deep/er/broken.YML"])
def test_a_broken_file_below_a_folder_is_judged_however_it_is_spelled(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.yaml")
    write(tmp_path / name, "topics: [\n")
    assert load_set(read_files([str(tmp_path)]), None).findings


def test_a_link_in_a_folder_that_leads_nowhere_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "gone.yml").symlink_to(tmp_path / "nowhere.yml")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    found = read_files([str(tmp_path)])
    assert [(finding.code, finding.detail) for file in found for finding in file.findings] == [
        ("K016", f"it is a link to {tmp_path}/{name}, which does not exist") for name in ("nowhere.yml", "loop.yaml")
    ]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        ("", "it does not exist; `kodoctl init` writes an example"),
        ("d/", "no *.yaml and no *.yml below this folder; `kodoctl init` writes an example"),
    ],
)
def test_paths_without_files_say_what_to_do(tmp_path: Path, make: str, says: str) -> None:
    if make:
        (tmp_path / "d").mkdir()
    with pytest.raises(UsageError) as problem:
        read_files([str(tmp_path / "d")])
    (finding,) = problem.value.diagnostics
    assert (finding.code, finding.detail) == ("K016", says)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("shp.yaml", "it does not exist; did you mean shop.yaml?"),
        ("topologys", "it does not exist; did you mean topologies?"),
        ("quite-else.yaml", "it does not exist; `kodoctl init` writes an example"),
        ("gone/shop.yaml", "it does not exist, because there is no folder gone"),
        ("-", "only `lint` reads standard input: name a file or a folder"),
    ],
)
def test_a_path_that_names_nothing_says_which_one_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "shop.yaml")
    (tmp_path / "topologies").mkdir()
    with pytest.raises(UsageError) as problem:
        read_files([given])
    (finding,) = problem.value.diagnostics
    assert (finding.code, finding.detail) == ("K016", says)


def test_a_folder_that_cannot_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "set/a.yaml")
    (tmp_path / "set/closed").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "set/linked").symlink_to(tmp_path / "elsewhere")
    real = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError) as problem:
        read_files([str(tmp_path / "set")])
    told = {str(finding.where).rpartition("/")[2]: finding.detail for finding in problem.value.diagnostics}
    assert told == {
        "closed": "Permission denied",
        "linked": f"it is a link to {tmp_path}/elsewhere, and links are not followed: name that folder",
    }


def test_a_file_below_a_folder_that_may_not_be_entered_is_named_with_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path.parent.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **options)

    (tmp_path / "linked.yaml").symlink_to("gone.yaml")
    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as problem:
        read_files(["closed/a.yaml", "linked.yaml"])
    assert [(str(finding.where), finding.detail) for finding in problem.value.diagnostics] == [
        ("closed/a.yaml", "Permission denied"),
        ("linked.yaml", "it is a link to gone.yaml, which does not exist"),
    ]


def test_a_folder_that_may_not_be_listed_is_not_called_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> object:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError) as problem:
        read_files([str(tmp_path)])
    assert [finding.summary for finding in problem.value.diagnostics] == ["cannot read folder"]


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (file,) = read_files([str(tmp_path / "pipe.yaml")])
    assert [(finding.code, finding.detail) for finding in file.findings] == [("K016", "it is not a regular file")]


def test_a_file_that_the_system_does_not_let_us_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.yaml")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    (file,) = read_files([path])
    assert [(finding.code, finding.detail) for finding in file.findings] == [("K016", "Permission denied")]


def test_a_link_that_leaves_the_repository_is_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside.yaml")
    (tmp_path / "repository/.git").mkdir(parents=True)
    (tmp_path / "repository/a.yaml").symlink_to(outside)
    (file,) = read_files([str(tmp_path / "repository")])
    assert [(finding.code, finding.detail[:38]) for finding in file.findings] == [
        ("K016", "it lies outside of the repository " + str(tmp_path)[:4])
    ]
    assert file.root is None


def test_a_file_over_eight_mebibytes_is_not_read_further(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 << 20)
    (file,) = read_files([str(path)])
    assert [(finding.code, finding.detail[:9]) for finding in file.findings] == [("K009", "100.0 MiB")]


def test_one_file_in_one_environment(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", GOOD + "environments: {prod: {namespace: live}}\n")
    assert load_topology(path).spec.namespace == "trade"
    assert load_topology(path, "prod").spec.namespace == "live"


def test_one_file_that_is_wrong_raises_with_every_finding(tmp_path: Path) -> None:
    with pytest.raises(InvalidFileError) as problem:
        load_topology(write(tmp_path / "a.yaml", HEAD + "topic: {}\n"))
    assert sorted(finding.code for finding in problem.value.diagnostics) == ["K003", "K006"]


def test_a_folder_is_loaded_as_one_topology_if_it_has_one_file(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml")
    assert load_topology(str(tmp_path)).source.name == str(tmp_path / "a.yaml")
    write(tmp_path / "b.yaml", GOOD.replace("name: t", "name: u"))
    with pytest.raises(UsageError, match=r"K701.*holds 2: name one of them"):
        load_topology(str(tmp_path))


def test_a_file_with_findings_in_its_text_is_no_topology() -> None:
    result = load_set([source_of((GOOD + "name: again\n").encode(), FILE)], None)
    assert (result.topologies, [finding.code for finding in result.findings]) == ((), ["K002"])


def test_a_plan_file_in_the_place_of_a_topology_is_told_as_that_and_not_key_by_key() -> None:
    plan = b'{"format_version": 1, "changes": [], "owners": [], "seal": "x"}'
    (finding,) = load_set([source_of(plan, "plan.json")], None).findings
    assert (finding.code, finding.detail) == (
        "K004", "this is a plan file, not a topology; to carry it out: kodoctl apply plan.json"
    )  # fmt: skip


FILES = [
    source_of((GOOD + "environments: {prod: {}, staging: {}}\n").encode(), FILE),
    source_of(GOOD.encode(), "b.yaml"),
]


def test_environments_are_listed_in_the_order_of_their_first_mention() -> None:
    assert environments_of(FILES) == ("prod", "staging")
    assert environments_of([source_of(b"- a", FILE), source_of(b"environments: 5", FILE), source_of(b"{", FILE)]) == ()


def test_an_environment_must_be_named_where_there_are_any() -> None:
    assert choose_environment(FILES, "prod") == "prod"
    assert choose_environment(FILES, "base") is None
    assert choose_environment(FILES[1:], None) is None
    for files, asked, says in [
        (FILES, None, "name one with --env: prod, staging, base"),
        (FILES, "qa", "'qa': these files have: prod, staging, base"),
        (FILES[1:], "qa", "'qa': these files have no `environments`: leave --env out"),
    ]:
        with pytest.raises(UsageError) as problem:
            choose_environment(files, asked)
        assert problem.value.exit_code == ExitCode.USAGE
        assert problem.value.diagnostics[0].detail == says


@pytest.mark.parametrize("asked", [None, "qa", "prod"])
@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("version: 1\nname: [a\n", "3:1 K001"),
        ("- a\n", "1:1 K004"),
        (GOOD + "environments: [prod]\n", "6:15 K004"),
    ],
)
def test_a_broken_file_is_named_before_an_environment_that_it_may_have(
    text: str, finding: str, asked: str | None
) -> None:
    """A file that cannot be read has no environments: whoever asks for one is told of the fault, with its line."""
    broken = source_of(text.encode(), "broken.yaml")
    for files in ([broken], [FILES[0], broken]):
        with pytest.raises(InvalidFileError) as problem:
            raise InvalidFileError(*load_set(files, choose_environment(files, asked)).findings)
        assert [f"{f.where.line}:{f.where.column} {f.code}" for f in problem.value.diagnostics if f.where] == [finding]


def test_places_of_values_keys_and_what_is_not_there() -> None:
    one = loaded("topics:\n  orders:\n    partitions: 4\n    levels: [L1]\n")
    path = ("topics", "orders")
    assert [str(where).removeprefix(FILE) for where in (one.where(*path, "partitions"), one.where_key(*path, "partitions"), one.where(*path, "levels"), one.where(*path, "levels", 0), one.where(*path, "nothing"), one.where(*path, "levels", 7))] == [
        ":7:17", ":7:5", ":8:5", ":8:14", ":6:3", ":8:5",
    ]  # fmt: skip
    assert one.says(*path, "partitions")
    assert not one.says(*path, "nothing")


def test_a_file_that_stands_for_more_topics_than_a_cluster_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "MAX_TOPICS", 4)
    (finding,) = found_in("topics: {orders: {subscriptions: {s: {}}}}")
    assert (finding.code, finding.detail) == (
        "K008",
        "the file stands for 5 topics, at most 4: split it into files with names of their own",
    )


@pytest.mark.parametrize(
    ("written", "names"), [("formerly: old\n", ("old",)), ("formerly: [older, old]\n", ("older", "old")), ("", ())]
)
def test_earlier_names_are_one_or_many(written: str, names: tuple[str, ...]) -> None:
    assert loaded(written + "topics: {}\n").spec.formerly == names


def test_a_folder_that_may_not_be_listed_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> object:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UsageError) as problem:
        read_files([str(tmp_path / "gone.yaml")])
    assert [finding.detail for finding in problem.value.diagnostics] == [
        "it does not exist; `kodoctl init` writes an example"
    ]

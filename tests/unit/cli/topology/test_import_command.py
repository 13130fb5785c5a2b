"""import at the command line: which namespaces it takes, and which files it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.cli.topology.import_command import _importable, _write, _write_all
from kodoctl.errors import UsageError
from kodoctl.plan.importing.import_planner import Import
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import NamespaceResource, TopicResource
from tests.samples.inventories import HERE, live


def test_a_namespace_whose_name_has_the_old_form_is_named_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert _importable("t", ["t/b", "t/cluster/old", "t/kodoctl", "t/a"]) == [
        NamespaceName("t", "a"), NamespaceName("t", "b"),
    ]  # fmt: skip
    assert capsys.readouterr().err == "t/cluster/old: not of the form TENANT/NAMESPACE; no file\n"


def test_a_tenant_without_namespaces_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert _importable("t", ["t/kodoctl"]) == []
    assert capsys.readouterr().err == "t: no namespaces to import; no file\n"


def test_a_file_that_somebody_wrote_while_the_cluster_was_read_stays(tmp_path: Path) -> None:
    file = tmp_path / "trade.yaml"
    file.write_text("mine")
    with pytest.raises(UsageError, match=r"K020.*File exists"):
        _write(file, Import("version: 1\n", (), 0, 1))
    assert [one.name for one in tmp_path.iterdir()] == ["trade.yaml"]
    assert file.read_text() == "mine"


def test_the_next_step_names_folders_that_have_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = NamespaceName("bare", "ns")
    topic = TopicResource(TopicName(HERE, "orders"), 0, {"schema_validation": False})
    found = live([LiveObject(NamespaceResource(HERE, {})), LiveObject(topic)], {})
    _write_all(found, {HERE: tmp_path / "here" / "trade.yaml", bare: tmp_path / "bare" / "ns.yaml"})
    assert (tmp_path / "here" / "trade.yaml").exists()
    assert capsys.readouterr().err.splitlines()[-1] == f"Next: kodoctl plan {tmp_path / 'here'}"

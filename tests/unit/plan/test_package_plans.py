"""Packages in a plan: uploaded before the functions that use them, never overwritten, kept unless they are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kodoctl.plan import serialization
from kodoctl.plan.changes import Create, Delete, FieldChange
from kodoctl.plan.history import Applied
from kodoctl.plan.inventory import Desired
from kodoctl.plan.plan_file import to_json
from kodoctl.plan.resume import _ForeignError, _unset
from kodoctl.plan.schedule import schedule
from kodoctl.plan.undo import _revertible, backwards
from kodoctl.pulsar.values.live_objects import FunctionFacts, Live, LiveObject
from kodoctl.render.plan_text import plan_lines
from kodoctl.topology.function_settings import HIDDEN
from kodoctl.topology.lint.linter import lint
from kodoctl.topology.load import source_of
from kodoctl.topology.names import InvalidNameError
from kodoctl.topology.resources import ClusterResource, PackageResource, namespace_of_address
from tests.samples.inventories import applied, changed, difference, empty, planned, planned_part, said, topology, wanted

URL = "function://acme/ns/enrich@1"
FUNCTION = f"functions: {{enrich: {{package: '{URL}', class: a.B, inputs: [orders]}}}}\n"
ADDRESS = f"package.{URL}"


@pytest.fixture
def declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Desired]:
    """Makes a file with the package, and a function that uses it; `content`: of its jar."""

    monkeypatch.chdir(tmp_path)  # outside of a repository any file may be named

    def make(content: str) -> Desired:
        jar = tmp_path / f"{content}x.jar"
        jar.write_text(content)
        return wanted(topology("{orders: {}}", f"packages: {{'{URL}': {{file: {jar}}}}}\n{FUNCTION}"))

    return make


def there(side: Live, digest: str | None = None) -> Live:
    """The live side as the reader shows it; `digest`: another one of the package."""
    package = side.objects[ADDRESS].resource
    assert isinstance(package, PackageResource)
    function = LiveObject(side.objects["function.acme/ns/enrich"].resource, "trade", FunctionFacts(0, 0))
    return changed(
        side,
        LiveObject(replace(package, file="", digest=package.digest if digest is None else digest), "trade"),
        function,
    )


def test_a_package_is_uploaded_before_the_functions_that_use_it(declared: Callable[[str], Desired]) -> None:
    plan = planned(declared("a"), empty())
    (create,) = (one for one in plan.changes if one.address == ADDRESS)
    assert isinstance(create, Create)
    again = serialization.change_from_json(dict(serialization.change_to_json(create)))
    assert isinstance(again, Create)
    assert isinstance(again.after, PackageResource)
    assert isinstance(create.after, PackageResource)
    assert (again.after, again.after.file) == (create.after, create.after.file)
    assert f"x.jar, SHA-256 {create.after.digest[:12]}" in " ".join(line.text for line in plan_lines(to_json(plan), ""))
    place = {step.change.address: at for at, level in enumerate(schedule(plan.changes).building) for step in level}
    assert place[ADDRESS] < place["function.acme/ns/enrich"]
    side = there(applied(declared("a")))
    assert planned(declared("a"), side).empty


def test_another_content_of_a_version_is_refused(declared: Callable[[str], Desired]) -> None:
    side = there(applied(declared("a")))
    (finding,) = planned(declared("b"), side).findings
    assert finding.code == "K458"
    assert "other content under this version" in finding.detail
    (finding,) = planned(declared("a"), there(side, digest="")).findings
    assert "no apply uploaded it whole" in finding.detail


def test_an_earlier_version_stays_ours_until_it_is_named(declared: Callable[[str], Desired]) -> None:
    side = there(applied(declared("a")))
    nothing = wanted(topology("{orders: {}}"))
    assert ADDRESS not in {one.address for one in planned(nothing, side).changes}
    named = planned(nothing, side, destroy=[ADDRESS])
    (delete,) = (one for one in named.changes if one.address == ADDRESS)
    assert isinstance(delete, Delete)
    assert "other namespaces may use it" in delete.about.dangers[0].detail
    deleting = [{step.change.address for step in level} for level in schedule(named.changes).deleting]
    assert deleting == [{"function.acme/ns/enrich"}, {ADDRESS}]
    forgotten = difference(nothing, side, forget=[ADDRESS])
    assert ("forget", ADDRESS) in said(forgotten.changes)


def test_a_package_in_use_is_not_deleted_and_a_deleted_one_is_not_made_again(
    declared: Callable[[str], Desired],
) -> None:
    side = there(applied(declared("a")))
    only = wanted(topology("{orders: {}}", FUNCTION))
    plan = planned(only, side, destroy=[ADDRESS])
    assert plan.refused
    (delete,) = (one for one in plan.changes if one.address == ADDRESS)
    assert delete.about.dangers[0].detail.startswith(f"{ADDRESS}: function.acme/ns/enrich would not start")
    one = Applied("aa11", "apply", "anna", 1, None, "d", {}, ended=2, complete=True, total=1, done=(delete,))
    found, findings = backwards(one, changed(side, without=[ADDRESS]))
    assert (found, "its content went with it" in findings[0].detail) == ((), True)


def test_a_package_that_cannot_be_read_is_left_alone(declared: Callable[[str], Desired]) -> None:
    plan = planned(declared("a"), replace(empty(), unread_functions={ADDRESS: "no right"}))
    assert ADDRESS not in {one.address for one in plan.changes}
    (finding,) = (one for one in plan.findings if one.code == "K451")
    assert f"{ADDRESS}: no right; how it is, is unknown, and it is left alone" in finding.detail


def test_a_package_that_a_topology_gave_up_is_adopted_as_it_is(declared: Callable[[str], Desired]) -> None:
    package = declared("a").objects[ADDRESS].resource
    side = changed(empty(), LiveObject(package, "bank"))
    assert ("adopt", ADDRESS) in said(planned(declared("a"), side).changes)


def test_a_target_comes_with_its_package_and_that_with_its_namespace(declared: Callable[[str], Desired]) -> None:
    plan = planned_part(declared("a"), empty(), "function.acme/ns/enrich")
    addresses = {change.address for change in plan.changes}
    assert {ADDRESS, "namespace.acme/ns", "function.acme/ns/enrich"} <= addresses
    assert {change.address for change in planned_part(declared("a"), empty(), ADDRESS).changes} == {
        ADDRESS, "namespace.acme/ns",
    }  # fmt: skip


def test_a_resumed_upload_takes_no_other_content_for_its_own(declared: Callable[[str], Desired]) -> None:
    package = declared("a").objects[ADDRESS].resource
    assert isinstance(package, PackageResource)
    assert not list(_unset(package, package))
    with pytest.raises(_ForeignError, match="is not known to be the planned one"):
        list(_unset(package, replace(package, digest="")))


def test_an_address_of_a_package_has_its_namespace() -> None:
    assert str(namespace_of_address(ADDRESS)) == "acme/ns"
    for text in ("package.function://a%/b/c@1", "package.x.jar"):
        with pytest.raises(InvalidNameError, match="is no address of a package"):
            namespace_of_address(text)


def test_no_undo_writes_settings_of_which_a_value_is_hidden() -> None:
    cluster = ClusterResource("east")
    assert _revertible(cluster, FieldChange("settings", {"a": 1}, {}))
    assert not _revertible(cluster, FieldChange("settings", {"a": HIDDEN}, {}))


def test_a_package_is_a_regular_file_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = tmp_path / "here"
    (here / ".git").mkdir(parents=True)
    (tmp_path / "out.jar").write_text("")
    (here / "x.jar").write_text("")

    def problems(file: str) -> list[str]:
        body = f"version: 1\nname: trade\ntenant: acme\nnamespace: ns\npackages: {{'{URL}': {{file: {file}}}}}\ntopics: {{}}\n"
        found = lint([source_of(body.encode(), str(here / "f.yaml"))]).findings
        return [one.detail for one in found if one.code == "K112"]

    assert problems("x.jar") == []
    assert "it is not a regular file" in problems(".git")[0]
    assert "outside" in problems("../out.jar")[0]

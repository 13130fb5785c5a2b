"""`import` of whole grown tenants: every object and setting is in a file or in the list with its reason, and apply keeps it all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.estates.bridged_streams import BRIDGED_STREAMS
from tests.broker.estates.device_fleet import DEVICE_FLEET
from tests.broker.estates.estate_builder import Estate, EstateBuilder
from tests.broker.estates.live_settings import LiveReader
from tests.broker.estates.platform_team import PLATFORM_TEAM
from tests.broker.estates.transit_pipeline import TRANSIT_PIPELINE
from tests.broker.estates.web_shop import WEB_SHOP
from tests.brokers.workspace import Workspace, run_main

ESTATES = {
    "bridged-streams": BRIDGED_STREAMS,
    "device-fleet": DEVICE_FLEET,
    "platform-team": PLATFORM_TEAM,
    "transit-pipeline": TRANSIT_PIPELINE,
    "web-shop": WEB_SHOP,
}
_GROUP = re.compile(r"\d+ of (\S+)…: (.*)")
_LONG = {"device-fleet", "bridged-streams", "web-shop"}


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.full] * (name in _LONG)) for name in ESTATES])
def estate(request: pytest.FixtureRequest) -> Estate:
    """Each grown tenant."""
    return ESTATES[request.param]


@pytest.fixture
def reader(workspace: Workspace, estate: Estate) -> Iterator[LiveReader]:
    """A reader of the tenant, in which everything of the estate is."""
    found = LiveReader(workspace)
    builder = EstateBuilder(workspace)
    estate.build(builder)
    builder.close()
    yield found
    found.close()


def test_an_import_of_a_grown_tenant_loses_nothing_and_its_apply_changes_nothing(
    workspace: Workspace, estate: Estate, reader: LiveReader
) -> None:
    before = reader.read()
    files = workspace.folder / "topologies"
    said = workspace.run("import", workspace.tenant, "--out", str(files)).err
    assert run_main("lint", "--strict", str(files)).code == 0

    left_out, declared = _left_out(files, said), _declared(files)
    named = [f"namespace.{workspace.tenant}/{file.stem}" for file in files.glob("*.yaml")]
    named += [f"namespace.{space}" for space in re.findall(r"(\S+): nothing to adopt", said)]
    assert [one for one in before if one not in named and not _is_accounted(one, left_out, declared)] == []
    short = {_short(name, workspace.tenant): reason for name, reason in left_out.items()}
    wrong = {name: reason for name, reason in short.items() if not reason.startswith(estate.left_out.get(name, "\0"))}
    assert (wrong, estate.left_out.keys() - short.keys()) == ({}, set())

    actions: dict[str, set[str]] = {"adopt": set(), "create": set()}
    for change in workspace.plan_json()["changes"]:
        actions[change["action"]].add(change["address"])
    assert all(address.endswith("-DLQ/kodo-hold") for address in actions["create"])
    assert (len(actions["adopt"]), len(actions["create"])) == (estate.adopted, estate.created)
    assert actions["adopt"].isdisjoint(left_out)

    workspace.apply()
    workspace.assert_settled()
    after = reader.read()
    assert {name: value for name, value in after.items() if name not in actions["create"]} == before


@pytest.mark.full
def test_the_imported_files_alone_make_the_same_objects_with_the_same_settings(
    workspace: Workspace, estate: Estate, reader: LiveReader
) -> None:
    """What an adoption cannot show: the values in the files are those of the cluster, and none of them is only compared."""
    before = reader.read()
    old, new = workspace.tenant, f"{workspace.tenant}-2"
    files = workspace.folder / "topologies"
    workspace.run("import", old, "--out", str(files))
    declared = _declared(files)
    for file in files.glob("*.yaml"):
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    workspace.broker.tenant(new)
    workspace.apply()
    again = LiveReader(replace(workspace, tenant=new))
    after = json.loads(json.dumps(again.read()).replace(new, old))
    again.close()
    wanted = {name: _effect(value) for name, value in before.items() if _is_declared(name, declared)}
    found = {name: _effect(after.get(name)) for name in wanted}
    assert found == wanted


def _effect(value: Any) -> Any:
    """A value without what has none: empty texts, the time of a quota by size, and messages, which no file can make."""
    if not isinstance(value, dict):
        return value
    kept = {name: member for name, member in value.items() if member != ""}
    if size := kept.get("destination_storage"):
        kept["destination_storage"] = {**size, "limitTime": None}
    return dict.fromkeys(kept, 0) if all(name.startswith("persistent://") for name in kept) else kept


def _is_declared(name: str, declared: Mapping[str, Mapping[str, object]]) -> bool:
    owner, _, setting = name.partition(" ")
    return name in declared or setting in declared.get(owner, {})


def _left_out(files: Path, screen: str) -> dict[str, str]:
    """What the files and the screen list: printed name -> reason."""
    texts = [
        file.read_text(encoding="utf-8").partition("# Left out, and never touched:\n")[2]
        for file in files.glob("*.yaml")
    ]
    lists = [line[4:] for text in texts for line in text.splitlines()]
    lists += [line[2:] for line in screen.splitlines() if line.startswith("  ")]
    return dict(_entries(lists))


def _entries(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    place = reason = ""
    for line in lines:
        if group := _GROUP.fullmatch(line):
            place, reason = group.groups()
        elif line.startswith("  "):
            yield from ((f"{place}{name}", reason) for name in line.split())
        else:
            name, _, why = line.partition(": ")
            yield name, why


def _declared(files: Path) -> Mapping[str, Mapping[str, object]]:
    """Address -> policies, of each object of the files."""
    resources = json.loads(run_main("expand", str(files), "--format", "json").out)["resources"]
    return {address: one.get("policies") or {} for address, one in resources.items()}


def _is_accounted(name: str, left_out: Mapping[str, str], declared: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether the files declare an object or setting, or the list has it, or the topic whose setting it is."""
    is_listed = any(one == name or one.startswith(f"{name} (") for one in left_out)
    return is_listed or name.partition(" ")[0] in left_out or _is_declared(name, declared)


def _short(name: str, tenant: str) -> str:
    return name.replace(f"persistent://{tenant}/", "").replace(f"{tenant}/", "")

"""`import` of whole grown tenants: every object and setting is in a file or in the list with its reason, and apply keeps it all."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.broker.estates.bridged_streams import BRIDGED_STREAMS
from tests.broker.estates.device_fleet import DEVICE_FLEET
from tests.broker.estates.estate_builder import Estate, EstateBuilder
from tests.broker.estates.live_settings import LiveReader, Settings
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


def _listed(text: str) -> Iterator[tuple[str, str]]:
    """(name, reason) of each entry of a list of what an import left out."""
    place = reason = ""
    for line in (line.strip("# ") for line in text.splitlines() if re.match(r"#  ? ?\S|  \S|#     ", line)):
        if group := _GROUP.fullmatch(line):
            place, reason = group.groups()
        elif ": " not in line:
            yield from ((f"{place}{name}", reason) for name in line.split())
        else:
            name, _, why = line.partition(": ")
            yield name, why


def _left_out(files: Path, screen: str) -> dict[str, str]:
    """What the files and the screen list, by printed name."""
    ends = [file.read_text(encoding="utf-8").partition("# Left out, and never touched:\n")[2] for file in files.glob("*.yaml")]
    return dict(entry for text in (*ends, screen) for entry in _listed(text))


def _declared(files: Path) -> Mapping[str, Mapping[str, object]]:
    """Address -> policies, of each object of the files."""
    resources = json.loads(run_main("expand", str(files), "--format", "json").out)["resources"]
    return {address: one.get("policies") or {} for address, one in resources.items()}


@pytest.mark.parametrize("name", ESTATES)
def test_an_import_of_a_grown_tenant_loses_nothing_and_its_apply_changes_nothing(workspace: Workspace, name: str) -> None:
    estate: Estate = ESTATES[name]
    builder, reader = EstateBuilder(workspace), LiveReader(workspace)
    estate.build(builder)
    import time; t0=time.time(); before = reader.read(); print("READ", time.time()-t0)
    files = workspace.folder / "topologies"
    said = workspace.run("import", workspace.tenant, "--out", str(files)).err
    assert run_main("lint", "--strict", str(files)).code == 0
    left_out, declared = _left_out(files, said), _declared(files)
    Path("/tmp/est-" + name + ".txt").write_text(said + "\n\n" + "\n".join(f.read_text() for f in files.glob("*.yaml")) + "\n\n" + json.dumps(before, indent=1, ensure_ascii=False))
    spoken_of = [f"namespace.{workspace.tenant}/{file.stem}" for file in files.glob("*.yaml")]
    spoken_of += [f"namespace.{space}" for space in re.findall(r"(\S+): nothing to adopt", said)]
    lost = [name for name in before if name not in spoken_of and not _is_accounted(name, left_out, declared)]
    print("\n".join(["LOST:", *lost]))
    plan = workspace.plan_json()
    adopted = {change["address"] for change in plan["changes"] if change["action"] == "adopt"}
    print(Counter(change["action"] for change in plan["changes"]))
    print([c for c in plan["changes"] if c["action"] not in ("adopt",)])
    created = {change["address"] for change in plan["changes"] if change["action"] == "create"}
    print("both", sorted(adopted & left_out.keys()))
    print("T", time.time()-t0); workspace.apply(); print("T", time.time()-t0)
    workspace.assert_settled()
    after = reader.read()
    print("CHANGED", {k: (before.get(k), after.get(k)) for k in before.keys() | after.keys() if before.get(k) != after.get(k)})
    print("REASONS", "\n".join(f"{k}: {v}" for k, v in sorted(left_out.items())))
    builder.close()
    reader.close()
    print("COUNT", len(adopted), len(created)); Path("/tmp/lo-" + name + ".json").write_text(json.dumps(left_out, indent=1, sort_keys=True).replace(workspace.tenant, "$t"))
    assert not lost
    assert {name: value for name, value in after.items() if name not in created} == before


def _is_accounted(name: str, left_out: Mapping[str, str], declared: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether the files declare an object or setting, or the list has it, or the topic whose setting it is."""
    if name in declared or any(one == name or one.startswith(f"{name} (") for one in left_out):
        return True
    owner, _, setting = name.partition(" ")
    return owner in left_out or setting in declared.get(owner, {})

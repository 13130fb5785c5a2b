"""Catalogues as pages: the topologies of a shop, and one in which everything that somebody else can choose is hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kodoctl.topology.catalogue import catalogue_document
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_set, source_of
from tests.samples.reports import EVIL

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
DEPOT = """\
version: 1
name: depot
description: |
  Parcels on their way.
  Ask the team Hull.
tenant: kodo
namespace: depot
topics:
  parcels:
    description: one message for each scan
    producers: [scanner]
    subscriptions:
      customs:
        workers: [customs]
        states: [retrying]
        produces: [kodo/trade/orders, acme/customs/declarations]
        limits: [{kind: concurrency, limit: 4, scope: worker, in: {states: [retrying]}}]
sources:
  depot-db: {description: scans, database: DEPOT_URL, tables: {public.scans: {topic: parcels, deletes: ignore}}}
"""
NOW = 1_767_268_500_000  # ms since the epoch


def expansions_of(*texts: str, folder: Path = ROOT / "topologies") -> list[Expansion]:
    """Topologies of files, expanded; the first is named `trade.yaml`, others by their numbers."""
    names = ["trade.yaml", *(f"other{number}.yaml" for number in range(1, len(texts)))]
    sources = [source_of(text.encode(), str(folder / name)) for text, name in zip(texts, names, strict=True)]
    loaded = load_set(sources, None)
    assert not loaded.findings, loaded.findings
    return [expand(one) for one in loaded.topologies]


def shop() -> list[Expansion]:
    """The topology of the repository, and one that sends to it."""
    return expansions_of((ROOT / "topologies/trade.yaml").read_text(), DEPOT)


def evil_text() -> str:
    """A file in which every text is hostile; lint would refuse most of them."""
    evil = json.dumps(EVIL.replace("\x1b", ""))  # which no file may have
    return f"""\
version: 1
name: {evil}
formerly: {evil}
description: {evil}
tenant: {evil}
namespace: {evil}
namespace_grants: {{{evil}: [consume]}}
topics:
  {evil}:
    description: {evil}
    producers: [{evil}]
    fair_by: {evil}
    message_properties: {{{evil}: required}}
    payload: {{type: json, schema: {evil}}}
    subscriptions:
      {evil}:
        workers: [{evil}]
        recall: [{evil}]
        produces: [{evil}, "a/b/{evil[1:]}]
        tenant_weights: {{{evil}: 2}}
        limits: [{{kind: rate, by: {evil}, limit: 1/s, overrides: {{{evil}: 2/s}}}}]
        routes: [{{when: {{property: {evil}, equals: {evil}}}, to: L1}}]
sources:
  {evil}: {{description: {evil}, database: DB, tables: {{{evil}: {{topic: {evil}, properties: {{{evil}: {evil}}}}}}}}}
"""


def evil() -> tuple[Json, list[Expansion]]:
    """A document with a hostile topology, hostile changes and hostile answers of a cluster."""
    expansions = expansions_of(evil_text())
    document = catalogue_document(expansions, EVIL)
    document["against"] = {"ref": EVIL, "commit": EVIL, "removed": [{"name": EVIL, "file": EVIL}]}
    document["repository"] = document["commit"] = EVIL
    document["live"] = {"target": EVIL, "at": NOW, "broker": {"ttl": EVIL}}
    entry = document["topologies"][0]
    entry["changes"] = [[EVIL, EVIL, [{EVIL: EVIL}]], [EVIL, None, EVIL]]
    entry["live"] = {
        "lanes": [],
        "unread": [{"ground": EVIL, "topic": EVIL, "reason": EVIL}],
        "applied": {"id": EVIL, "verb": EVIL, "who": EVIL, "began": NOW, "state": EVIL, "commit": EVIL},
        "unknown": "",
        "policies": {"retention": EVIL},
    }
    entry["topics"][0]["payload"] |= {
        "problem": None,
        "definition": {EVIL: EVIL},
        "fields": [{"name": EVIL, "type": EVIL, "required": True, "description": EVIL}],
    }
    return document, expansions

"""Topology files for tests of the consumer."""

from __future__ import annotations

from pathlib import Path

HEAD = "version: 1\nname: t\ntenant: p\nnamespace: n\ntopics:\n"


def write(folder: Path, topics: str, more: str = "") -> str:
    """A topology file with these topics (indented by two); answers its path."""
    file = folder / "t.yaml"
    file.write_text(HEAD + topics + more, encoding="utf-8")
    return str(file)


DOUBLE = """
  orders:
    levels: double
    backup: true
    fair_by: uid
    message_properties: {uid: required, size: optional}
    subscriptions:
      billing:
        retrying: {attempts: 3}
        produces: [shipments]
        limits:
          - {kind: rate, by: uid, limit: 10/s, burst: 10}
        routes:
          - {when: {property: size, greater_than: 100000}, to: B1}
      audit-log: {states: [retrying], in_place: []}
  shipments:
    subscriptions:
      tracking: {states: [], dead_letter: false}
"""

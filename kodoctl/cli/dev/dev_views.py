"""Text about instances of `kodoctl dev`, made of their JSON (`kodoctl dev … --format json`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kodoctl.dev.typed_command import dev_command

_TITLES = ("NAME", "STATE", "PULSAR", "AUTH", "ADMIN", "BROKER")


def startup_text(document: Mapping[str, Any]) -> str:
    """Text that `dev up` prints at its end: addresses, context, data folder and tokens of the instance, and the command
    that stops it.
    """
    name = document["name"]
    head = "runs already" if document["already"] else f"is ready after {document['seconds']:.0f} s"
    rows = [
        ("", "admin", document["admin_url"]),
        ("", "broker", document["broker_url"]),
        (
            "",
            "context",
            f"{name}, the current one" if document["current"] else f"{name}, as in kodoctl plan --context {name}",
        ),
        ("", "data", document["folder"]),
    ]
    lines = [f"`{name}` {head}: Pulsar {document['version']} on {document['engine'].capitalize()}.", *_table(rows)]
    for token in document["tokens"]:
        lines += [f"  {token['role']}: {token['may']}", f"    {token['token']}"]
    return "\n".join([*lines, f"Stop it with {dev_command('down', name)}; data is kept."])


def instance_table(documents: Sequence[Mapping[str, Any]]) -> str:
    """Table of instances, followed by the nodes of clusters and the problems of instances that cannot be used."""
    rows = [
        (
            one["name"],
            one["state"],
            one["version"],
            one["auth"],
            *_addresses(one),
        )
        for one in documents
    ]
    notes = [note for one in documents if (note := _note(one))]
    return "\n".join([*_table([_TITLES, *rows]), *_node_lines(documents), *notes])


def _node_lines(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of the nodes of clusters, one a node, below the table of instances."""
    lines: list[str] = []
    for one in documents:
        rows = [
            (f"  {node['name']}", node["state"], str(node["port"]), f"pid {node['pid']}" if node["pid"] else "")
            for node in one.get("nodes", ())
        ]
        if rows:
            lines += [f"Nodes of {one['name']}:", *_table(rows)]
    return lines


def _addresses(one: Mapping[str, Any]) -> tuple[str, str]:
    """The first admin and the first broker address, each with the number of further ones: all would not fit on a
    screen.
    """
    return _first(one["admin_url"]), _first(one["broker_url"])


def _first(urls: str) -> str:
    first, *more = urls.split(",")
    return f"{first} (+{len(more)})" if more else first


def _note(one: Mapping[str, Any]) -> str | None:
    name = one["name"]
    match one["state"]:
        case "died":
            return (
                f"`{name}` was killed or crashed; why: {dev_command('logs', name)}, again: {dev_command('up', name)}."
            )
        case "not ready" if away := [
            f"{n['name']} ({n['state']})" for n in one.get("nodes", ()) if n["state"] != "running"
        ]:
            return f"`{name}` runs without {', '.join(away)}; to start what is missing: {dev_command('up', name)}."
        case "not ready":
            return f"`{name}` runs, but cannot be used ({one['problem']}); see {dev_command('logs', name)}."
        case "unknown":
            return f"`{name}` may run or not: {one['problem']}."
    return None


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

"""Pages of a catalogue of topologies, which load nothing: an index with search, and a page for each topology."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kodoctl import __version__
from kodoctl.render.catalogue_words import (
    applied_text,
    backlog_text,
    change_text,
    lane_figures,
    limit_text,
    object_facts,
    route_text,
    setting_value_text,
    topic_facts,
)
from kodoctl.render.expansion import label_words, origin, policy_facts, responsibility_facts
from kodoctl.render.html_page import page
from kodoctl.render.inline_svg import inline_svg
from kodoctl.text.escaping import printable
from kodoctl.text.formatting import lane_text, many, time_text
from kodoctl.topology.flow_graph import FlowKind
from kodoctl.topology.load import BASE
from kodoctl.topology.yaml.schema_hints import in_yaml

if TYPE_CHECKING:
    from kodoctl.topology.flow_graph import FlowNode

Json = dict[str, Any]
INDEX: Final = "index.html"
FOLDER: Final = "topologies"  # of the pages of topologies
_LONGEST: Final = 80  # characters of a file's name
_ORIGIN_KINDS: Final = {"namespace default": "namespace", "broker default": "broker", "derived:": "derived"}
"""Start of an origin's text -> its kind."""


@dataclass(frozen=True, slots=True)
class CatalogueDrawings:
    """SVG documents of Graphviz. `flows`: file of a topology -> its flow; `lanes`: (file, ground topic) -> its lanes;
    `between`: flow between topologies, "" for none. All are empty without Graphviz.
    """

    flows: Mapping[str, str] = field(default_factory=dict)
    lanes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    between: str = ""


class CatalogueLinks:
    """Addresses of pages and of their sections. They contain only letters, digits, `.`, `_` and `-`, and no two pages
    differ in upper and lower case alone.
    """

    def __init__(self, document: Json) -> None:
        self._pages: dict[str, str] = {}  # file of a topology -> name of its page
        used: set[str] = set()
        for entry in document["topologies"]:
            name = _slug(entry["name"])[:_LONGEST].lstrip(".") or "topology"
            chosen, number = name, 1
            while chosen.lower() in used:
                number += 1
                chosen = f"{name}-{number}"
            used.add(chosen.lower())
            self._pages[entry["file"]] = f"{chosen}.html"

    def page(self, file: str) -> str:
        """Address of a topology's page from another one; "" for a file without page."""
        return self._pages.get(file, "")

    def from_index(self, file: str) -> str:
        """Address of a topology's page from the index."""
        return f"{FOLDER}/{self._pages[file]}"

    def node(self, node: FlowNode) -> str:
        """Address of the section about a node of the flow, from a topology's page; "" if there is none."""
        match node.kind:
            case FlowKind.ELSEWHERE:
                return ""
            case FlowKind.TOPIC:
                section = anchor(node.name)
            case FlowKind.CONSUMER:
                section = anchor(node.ground, node.name)
            case FlowKind.TABLE:
                section = "sources"
            case _:
                section = "roles"
        return f"{self._pages[node.file]}#{section}"


def anchor(ground: str, subscription: str = "") -> str:
    """Name of the section about a ground topic, or about one of its subscriptions."""
    return f"topic-{_slug(ground)}" + (f"~{_slug(subscription)}" if subscription else "")


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", lambda found: f"_{ord(found[0]):x}_", name)


def catalogue_pages(document: Json, drawings: CatalogueDrawings) -> dict[str, str]:
    """Returns the HTML of each page of a catalogue by its path in the folder, the index included. `document`: as
    `catalogue_document` makes it; it may have `repository` and `commit`, the differences of `with_changes`, and figures
    of a cluster: `live`, and `live` of each topology. `drawings`: SVG of Graphviz.
    """
    links = CatalogueLinks(document)
    files = [entry["file"] for entry in document["topologies"]]
    shown = _harmless(document)
    for entry, file in zip(shown["topologies"], files, strict=True):
        entry["url"] = links.from_index(file)
    common = {"version": __version__, "head": _head(shown)}
    between = inline_svg(drawings.between, "Flow between topologies") if drawings.between else ""
    pages = {INDEX: _page("catalogue_index.html.j2", index=_index(shown), between=between, **common)}
    for entry, file in zip(shown["topologies"], files, strict=True):
        pictures = {
            "": drawings.flows.get(file, ""),
            **{ground: svg for (of, ground), svg in drawings.lanes.items() if of == file},
        }
        values = _topology(entry, pictures, shown.get("live"))
        pages[entry["url"]] = _page("catalogue_topology.html.j2", topology=values, **common)
    return pages


def _page(template: str, **values: Any) -> str:
    return page(template, "catalogue.css", "catalogue.js", **values)


def _harmless(value: Any) -> Any:
    """The JSON value with its texts as `printable` makes them, except for line breaks, which stay."""
    match value:
        case str():
            return "\n".join(map(printable, value.split("\n")))
        case dict():
            return {_harmless(key): _harmless(member) for key, member in value.items()}
        case list() | tuple():
            return [*map(_harmless, value)]
        case _:
            return value


def _head(document: Json) -> list[str]:
    """Lines about the whole catalogue: environment, repository, commit, revision to compare with, cluster."""
    parts = ["without environment" if document["environment"] == BASE else f"environment {document['environment']}"]
    if document.get("repository"):
        parts.append(f"repository {document['repository']}")
    if document.get("commit"):
        parts.append(f"commit {document['commit'][:12]}")
    lines = [", ".join(parts)]
    if against := document.get("against"):
        lines.append(f"compared with {against['ref']}, commit {against['commit'][:12]}")
    if live := document.get("live"):
        lines.append(f"read from {live['target']} at {time_text(live['at'])}")
    return lines


def _index(document: Json) -> Json:
    topologies, live = document["topologies"], document.get("live")
    topics = [topic for entry in topologies for topic in entry["topics"]]
    lanes = [lane for topic in topics for lane in _all_lanes(topic)]
    figures = [
        (len(topologies), "topologies"),
        (len(topics), "ground topics"),
        (sum(len(topic["subscriptions"]) for topic in topics), "subscriptions"),
        (len(lanes), "topics on Pulsar"),
        (sum(lane["partitions"] or 1 for lane in lanes), "partitions"),
    ]
    return {
        "figures": [(f"{number:,}", noun) for number, noun in figures],
        "rows": [_row(entry, live) for entry in topologies],
        "is_live": live is not None,
        "entries": [found for entry in topologies for found in _entries(entry)],
        "against": document.get("against"),
    }


def _row(entry: Json, live: Json | None) -> Json:
    return {
        **{name: entry[name] for name in ("name", "url", "description", "owners", "namespace", "production")},
        "topics": len(entry["topics"]),
        "subscriptions": sum(len(topic["subscriptions"]) for topic in entry["topics"]),
        "badge": _badge(entry.get("changes", [])),
        "backlog": backlog_text(entry["live"], live["at"]) if live else "",
        "applied": applied_text(entry["live"], live["at"], whole=False) if live else "",
    }


def _badge(changes: list[Any] | None) -> str:
    """Text of the mark on a topology that differs from the other revision; "" without a difference."""
    return "new" if changes is None else many(len(changes), "change") if changes else ""


def _entries(entry: Json) -> list[list[str]]:
    """Entries of the search: [kind, name, topology, address, description, other words to be found by]."""
    found = [
        [
            "topology", entry["name"], "", entry["url"], entry["description"],
            " ".join([entry["namespace"], entry["file"], *_responsibility_words(entry)]),
        ]
    ]  # fmt: skip
    for topic in entry["topics"]:
        lanes = [lane["topic"] for lane in _all_lanes(topic)]
        words = [*lanes, *topic["producers"], *topic["message_properties"], *_responsibility_words(topic)]
        about = [topic["name"], entry["name"], f"{entry['url']}#{anchor(topic['name'])}"]
        found.append(["topic", *about, topic["description"], " ".join(words)])
        for reader in topic["subscriptions"]:
            address = f"{entry['url']}#{anchor(topic['name'], reader['name'])}"
            roles = " ".join([*reader["workers"], *reader["recall"]])
            found.append(["subscription", reader["name"], entry["name"], address, f"reads {topic['name']}", roles])
    for name, source in entry["sources"].items():
        tables = " ".join([*source["tables"], source["slot"]])
        found.append(["source", name, entry["name"], f"{entry['url']}#sources", source["description"], tables])
    for one in entry["objects"]:
        address, facts = f"{entry['url']}#objects", " ".join(text for _, text in object_facts(one))
        found.append([one["kind"].replace("_", " "), one["name"], entry["name"], address, "", facts])
    return found


def _responsibility_words(entry: Json) -> list[str]:
    return [*entry["owners"], *label_words(entry["labels"])]


def _topology(entry: Json, pictures: Mapping[str, str], live: Json | None) -> Json:
    """Values of a topology's page. `pictures`: ground topic -> drawing of its lanes, "" -> the flow."""
    changes = entry.get("changes", [])
    return {
        **entry,
        "flow": inline_svg(pictures[""], f"Flow of {entry['name']}") if pictures[""] else "",
        "lines": [] if pictures[""] else [*_flow_lines(entry)],
        "facts": [*responsibility_facts(entry)],
        "badge": _badge(changes),
        "changes": [(path, change_text(path, before, after)) for path, before, after in changes or []],
        "policies": [_origin_row(*fact) for fact in policy_facts(entry["namespace_policies"])]
        if entry["namespace_policies"]
        else [],
        "roles": _roles(entry),
        "sources": {name: _source_values(source) for name, source in entry["sources"].items()},
        "objects": [{**one, "where": origin(one["where"]), "facts": [*object_facts(one)]} for one in entry["objects"]],
        "topics": [_topic(topic, entry, pictures.get(topic["name"], ""), live) for topic in entry["topics"]],
        "backlog": backlog_text(entry["live"], live["at"]) if live else "",
        "applied": applied_text(entry["live"], live["at"], whole=True) if live else "",
        "unread": entry["live"]["unread"] if live else [],
        "is_live": live is not None,
    }


def _flow_lines(entry: Json) -> Iterator[str]:
    """Lines of text with the flow, where no drawing shows it."""
    for topic in entry["topics"]:
        before = f"{', '.join(topic['producers'])} → " if topic["producers"] else ""
        if not topic["subscriptions"]:
            yield f"{before}{topic['name']}"
        for reader in topic["subscriptions"]:
            after = f" → {', '.join(reader['produces'])}" if reader["produces"] else ""
            yield f"{before}{topic['name']} → {reader['name']}{after}"


def _source_values(source: Json) -> Json:
    tables = [
        (
            name,
            "the topic that each row names" if "outbox" in table else table.get("topic"),
            in_yaml({key: value for key, value in table.items() if key != "topic"}) if len(table) > 1 else "",
        )
        for name, table in source["tables"].items()
    ]
    return {**source, "where": origin(source["where"]), "tables": tables}


def _roles(entry: Json) -> list[tuple[str, str, str]]:
    """(role, right, object) of each role of the file, sorted by role."""
    found = [
        (grant["role"], f"may {', '.join(grant['actions'])}", f"namespace {entry['namespace']}")
        for grant in entry["grants"]
    ]
    for topic in entry["topics"]:
        found += [(role, "sends to", topic["name"]) for role in topic["producers"]]
        for reader in topic["subscriptions"]:
            place = f"{topic['name']} / {reader['name']}"
            found += [(role, "works on", place) for role in reader["workers"]]
            found += [(role, "recalls dead letters of", place) for role in reader["recall"]]
    return sorted(found)


def _topic(topic: Json, entry: Json, picture: str, live: Json | None) -> Json:
    return {
        **topic,
        "anchor": anchor(topic["name"]),
        "where": origin(topic["where"]),
        "facts": [*topic_facts(topic)],
        "picture": inline_svg(picture, f"Lanes of {topic['name']}") if picture else "",
        "groups": [_group(group, entry.get("live"), live) for group in topic["groups"]],
        "subscriptions": [_reader(reader, topic, entry, live) for reader in topic["subscriptions"]],
        "payload": _payload(topic["payload"]) if topic["payload"] else None,
    }


def _group(group: Json, found: Json | None, live: Json | None) -> Json:
    """Values of topics with the same policies. A policy that no file sets has the value of the namespace or the broker,
    as far as the cluster was read.
    """
    lanes = group["lanes"]
    above = [(name, value, f"namespace default, {at}") for name, value, at in policy_facts(group["inherited"])]
    own = [
        ("partitions", str(group["partitions"] or "none"), origin(group["explain"]["partitions"])),
        *policy_facts({**group, "explain": _without_partitions(group["explain"])}),
    ]
    namespace, broker = (found["policies"], live["broker"]) if found and live else (None, None)
    as_read = {}
    if namespace is not None:
        of_namespace = {name: (value, "namespace default, as read") for name, value in namespace.items()}
        of_broker = {name: (value, "broker default, as read") for name, value in (broker or {}).items()}
        as_read = {name: at for name, at in (of_broker | of_namespace).items() if name in group["unset"]}
    return {
        "title": ", ".join(dict.fromkeys(_lane_kind(lane) for lane in lanes)),
        "names": [lane["topic"] for lane in lanes],
        "rows": [
            *(_origin_row(*fact) for fact in (*own, *above)),
            *(_origin_row(name, in_yaml(value), at) for name, (value, at) in as_read.items()),
        ],
        "ignore": group["ignore"],
        "unset": [name for name in group["unset"] if name not in as_read],
        "is_namespace_known": group["is_namespace_declared"] or namespace is not None,
    }


def _without_partitions(explain: Json) -> Json:
    return {path: at for path, at in explain.items() if path != "partitions"}


def _lane_kind(lane: Json) -> str:
    state = "dead letters" if lane["state"] == "dead" else lane["state"]
    return f"{state} of {lane['subscription']}" if lane["subscription"] else state


def _origin_row(name: str, value: str, at: str) -> tuple[str, str, str, str]:
    """(name, value, kind of origin, origin) of a value: the kind is `file`, `namespace`, `broker` or `derived`."""
    kind = next((kind for start, kind in _ORIGIN_KINDS.items() if at.startswith(start)), "file")
    return name, value, kind, at


def _reader(reader: Json, topic: Json, entry: Json, live: Json | None) -> Json:
    """Values of a subscription."""
    settings = [(one["name"], setting_value_text(one), one["where"]) for one in reader["settings"]]
    return {
        **reader,
        "anchor": anchor(topic["name"], reader["name"]),
        "where": origin(reader["where"]),
        "lanes": [*_lanes(topic, reader["name"], entry.get("live"), live)],
        "settings": [(name, value, origin(at)) for name, value, at in settings if at],
        "defaults": [(name, value) for name, value, at in settings if not at],
        "limits": [(limit_text(limit), origin(limit["where"])) for limit in reader["limits"]],
        "routes": [(route_text(route), origin(route["where"])) for route in reader["routes"]],
    }


def _lanes(topic: Json, reader: str, found: Json | None, live: Json | None) -> Iterator[Json]:
    """Values of the lanes of a subscription, with their live figures if there are any."""
    status = {(lane["subscription"], lane["topic"]): lane for lane in (found["lanes"] if found else ())}
    for lane in _all_lanes(topic):
        if lane["subscription"] in (None, reader):
            name = lane_text(lane["level"], lane["state"])
            figures = () if live is None else lane_figures(lane, status.get((reader, lane["topic"])), live["at"])
            yield {**lane, "lane": name, "figures": figures}


def _all_lanes(topic: Json) -> Iterator[Json]:
    """Lanes of a ground topic, of all its subscriptions."""
    return (lane for group in topic["groups"] for lane in group["lanes"])


def _payload(payload: Json) -> Json:
    text = json.dumps(payload["definition"], indent=2, ensure_ascii=False)
    return {**payload, "where": origin(payload["where"]), "text": text if payload["problem"] is None else ""}

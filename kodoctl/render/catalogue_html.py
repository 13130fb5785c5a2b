"""Pages of a catalogue of topologies, which load nothing: an index with search, and a page for each topology."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
from kodoctl.render.shared_drawings import Drawing
from kodoctl.text.escaping import printable
from kodoctl.text.formatting import lane_text, many, time_text
from kodoctl.topology.flow_graph import FlowKind
from kodoctl.topology.load import BASE
from kodoctl.topology.yaml.schema_hints import in_yaml

if TYPE_CHECKING:
    from kodoctl.topology.flow_graph import FlowNode

Json = dict[str, Any]
_T = TypeVar("_T")
INDEX: Final = "index.html"
FOLDER: Final = "topologies"  # of the pages of topologies
TOPICS_A_PAGE: Final = 200  # ground topics; a topology with more has pages of topics beside its own
_LONGEST: Final = 80  # characters of a file's name
_MOST_ROWS: Final = 500  # of a table or list; more are counted
_MOST_NAMES: Final = 5  # in a row that stands for many
_ORIGIN_KINDS: Final = {"namespace default": "namespace", "broker default": "broker", "derived:": "derived"}
"""Start of an origin's text -> its kind."""


@dataclass(frozen=True, slots=True)
class CatalogueDrawings:
    """Drawings of Graphviz. `flows`: file of a topology -> SVG document of its flow; `lanes`: (file, ground topic) ->
    drawing of its lanes; `between`: SVG document of the flow between topologies. A document that was not made, for
    example without Graphviz, is "" or absent.
    """

    flows: Mapping[str, str] = field(default_factory=dict)
    lanes: Mapping[tuple[str, str], Drawing] = field(default_factory=dict)
    between: str = ""


class CatalogueLinks:
    """Addresses of pages and of their sections. Names of pages contain only letters, digits, `.`, `_` and `-`, those of
    sections also `~` before a subscription. No two pages differ in upper and lower case alone.
    """

    def __init__(self, document: Json) -> None:
        self._pages: dict[str, str] = {}  # file of a topology -> name of its page
        self._topics: dict[tuple[str, str], str] = {}  # file and ground topic -> name of a page of topics
        used: set[str] = set()
        for entry in document["topologies"]:
            name = _slug(entry["name"])[:_LONGEST].lstrip(".") or "topology"
            self._pages[entry["file"]] = f"{_unused(name, used)}.html"
        for entry in document["topologies"]:
            for number, topics in enumerate(topic_pages(entry["topics"]), 1):
                stem = self._pages[entry["file"]].removesuffix(".html")
                page = f"{_unused(f'{stem}-topics-{number}', used)}.html"
                self._topics |= {(entry["file"], topic["name"]): page for topic in topics}

    def page(self, file: str) -> str:
        """Address of a topology's page, from the page of any topology; "" for a file without a page."""
        return self._pages.get(file, "")

    def topic(self, file: str, ground: str) -> str:
        """Address of the page that has the section about a ground topic, without the section's name (`anchor`), from
        the page of any topology; "" for a file without a page.
        """
        return self._topics.get((file, ground), self.page(file))

    def from_index(self, file: str) -> str:
        """Address of a topology's page, from the index. Raises KeyError for a file without a page."""
        return f"{FOLDER}/{self._pages[file]}"

    def node(self, node: FlowNode) -> str:
        """Address of the section about a node of the flow, from the page of any topology: of a table the section of all
        sources, of a role the section of all roles; "" for a topic that no file declares. A file that declares the node
        must have a page.
        """
        match node.kind:
            case FlowKind.ELSEWHERE:
                return ""
            case FlowKind.TOPIC:
                return f"{self.topic(node.file, node.name)}#{anchor(node.name)}"
            case FlowKind.CONSUMER:
                return f"{self.topic(node.file, node.ground)}#{anchor(node.ground, node.name)}"
            case FlowKind.TABLE:
                section = "sources"
            case _:
                section = "roles"
        return f"{self._pages[node.file]}#{section}"


def topic_pages(topics: Sequence[_T]) -> list[Sequence[_T]]:
    """The ground topics of a topology by page of topics; [] for a topology that has all of them (at most TOPICS_A_PAGE)
    on its own page.
    """
    if len(topics) <= TOPICS_A_PAGE:
        return []
    return [topics[first : first + TOPICS_A_PAGE] for first in range(0, len(topics), TOPICS_A_PAGE)]


def _unused(name: str, used: set[str]) -> str:
    """The name, with a number if another page has it in upper or lower case; it is in use from then on."""
    chosen, number = name, 1
    while chosen.lower() in used:
        number += 1
        chosen = f"{name}-{number}"
    used.add(chosen.lower())
    return chosen


class CataloguePages(Mapping[str, str]):
    """Path in the folder -> text of each page of a catalogue. A text is made anew at each access, because the texts of
    a large catalogue together need much memory.
    """

    def __init__(self, makers: Mapping[str, Callable[[], str]]) -> None:
        self._makers = makers

    def __getitem__(self, path: str) -> str:
        return self._makers[path]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def anchor(ground: str, subscription: str = "") -> str:
    """Name of the section about a ground topic, or about one of its subscriptions."""
    return f"topic-{_slug(ground)}" + (f"~{_slug(subscription)}" if subscription else "")


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", lambda found: f"_{ord(found[0]):x}_", name)


def catalogue_pages(document: Json, drawings: CatalogueDrawings) -> CataloguePages:
    """Returns the pages of a catalogue, the index included. `document`: as `catalogue_document` makes it; it may have
    `repository` and `commit`, the differences of `with_changes`, and figures of a cluster: `live`, and `live` of each
    topology. `drawings`: SVG of Graphviz.
    """
    links = CatalogueLinks(document)
    shown = _harmless(document)
    common = {"version": __version__, "head": _head(shown)}
    makers: dict[str, Callable[[], str]] = {}
    for entry, declared in zip(shown["topologies"], document["topologies"], strict=True):
        file = declared["file"]
        entry["url"], pictures = links.from_index(file), []
        if "live" in entry:
            entry["live"]["by_lane"] = {(lane["subscription"], lane["topic"]): lane for lane in entry["live"]["lanes"]}
        for topic, its in zip(entry["topics"], declared["topics"], strict=True):
            topic["page"] = links.topic(file, its["name"])
            pictures.append((topic, drawings.lanes.get((file, its["name"]))))
        flow, live, parts = drawings.flows.get(file, ""), shown.get("live"), topic_pages(pictures)
        values = partial(_topology, entry, flow, pictures, parts, live)
        makers[entry["url"]] = partial(_topology_page, values, common)
        for number, part in enumerate(parts):
            values = partial(_part, entry, number, parts, live)
            makers[f"{FOLDER}/{part[0][0]['page']}"] = partial(_topology_page, values, common)
    between = inline_svg(drawings.between, "Flow between topologies") if drawings.between else ""
    index = partial(_page, "catalogue_index.html.j2", index=_index(shown), between=between, **common)
    return CataloguePages({INDEX: index, **makers})


def _topology_page(values: Callable[[], Json], common: Json) -> str:
    return _page("catalogue_topology.html.j2", topology=values(), **common)


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
        about = [topic["name"], entry["name"], f"{FOLDER}/{topic['page']}#{anchor(topic['name'])}"]
        found.append(["topic", *about, topic["description"], " ".join(words)])
        for reader in topic["subscriptions"]:
            address = f"{FOLDER}/{topic['page']}#{anchor(topic['name'], reader['name'])}"
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


_Pictured = tuple[Json, Drawing | None]  # a ground topic with the drawing of its lanes


def _topology(
    entry: Json, flow: str, topics: Sequence[_Pictured], parts: Sequence[Sequence[_Pictured]], live: Json | None
) -> Json:
    """Values of a topology's own page. `flow`: its drawing, "" for none; `parts`: its pages of topics, if it has some."""
    changes = entry.get("changes", [])
    return {
        **entry,
        "part": None,
        "parts": [_part_words(part) for part in parts],
        "flow": inline_svg(flow, f"Flow of {entry['name']}") if flow else "",
        "lines": [] if flow else [*_counted(list(_flow_lines(entry)))],
        "facts": [*responsibility_facts(entry)],
        "badge": _badge(changes),
        "changes": [(path, change_text(path, before, after)) for path, before, after in changes or []],
        "policies": [_origin_row(*fact) for fact in policy_facts(entry["namespace_policies"])]
        if entry["namespace_policies"]
        else [],
        "roles": _roles(entry),
        "sources": {name: _source_values(source) for name, source in entry["sources"].items()},
        "objects": [{**one, "where": origin(one["where"]), "facts": [*object_facts(one)]} for one in entry["objects"]],
        "topics": [] if parts else [_topic(topic, entry, picture, live) for topic, picture in topics],
        "backlog": backlog_text(entry["live"], live["at"]) if live else "",
        "applied": applied_text(entry["live"], live["at"], whole=True) if live else "",
        "unread": entry["live"]["unread"] if live else [],
        "is_live": live is not None,
    }


def _part(entry: Json, number: int, parts: Sequence[Sequence[_Pictured]], live: Json | None) -> Json:
    """Values of a page of topics: part `number` of `parts`."""
    around = {name: parts[at] for name, at in (("before", number - 1), ("after", number + 1)) if 0 <= at < len(parts)}
    return {
        **{name: entry[name] for name in ("name", "production")},
        "part": {
            "of": entry["url"].removeprefix(f"{FOLDER}/"),
            "title": f"topics {number + 1:,} of {len(parts):,}",
            **{name: _part_words(around[name]) if name in around else None for name in ("before", "after")},
        },
        **{name: [] for name in ("parts", "changes", "objects", "policies", "roles")},
        "sources": {},
        "badge": _badge(entry.get("changes", [])),
        "topics": [_topic(topic, entry, picture, live) for topic, picture in parts[number]],
        "is_live": live is not None,
    }


def _part_words(part: Sequence[_Pictured]) -> tuple[str, str]:
    """(address, text) of a page of topics."""
    first, last = part[0][0], part[-1][0]
    return first["page"], f"{first['name']} to {last['name']}"


def _counted(lines: list[str]) -> Iterator[str]:
    """The first _MOST_ROWS lines, and the number of the others."""
    yield from lines[:_MOST_ROWS]
    if len(lines) > _MOST_ROWS:
        yield f"and {len(lines) - _MOST_ROWS:,} more"


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
    if len(found) <= _MOST_ROWS:
        return sorted(found)
    places: dict[tuple[str, str], list[str]] = {}
    for role, right, place in found:
        places.setdefault((role, right), []).append(place)
    return sorted((*who, _some(names)) for who, names in places.items())


def _some(names: list[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _topic(topic: Json, entry: Json, picture: Drawing | None, live: Json | None) -> Json:
    return {
        **topic,
        "anchor": anchor(topic["name"]),
        "where": origin(topic["where"]),
        "facts": [*topic_facts(topic)],
        "picture": inline_svg(picture.document, f"Lanes of {topic['name']}", picture.texts) if picture else "",
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
    status = found["by_lane"] if found else {}
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

"""Expansion of a topology file, as a tree and as a table. Both are rendered from the JSON form alone."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from kodoctl.render.plan_words import count_of_kind, platform_settings
from kodoctl.text.formatting import many, value_text
from kodoctl.topology.resources import FUNCTION_KINDS, kind_label
from kodoctl.topology.yaml.schema_hints import in_yaml

Json = dict[str, Any]
_OF_CLUSTER: Final = ("cluster", "resource_group", "failure_domain", "isolation_policy")
_KINDS: Final = (
    "tenant", *_OF_CLUSTER, "namespace", "topic", "subscription", "grant", "schema", "publication", "slot", "package", *FUNCTION_KINDS,
)  # fmt: skip
WIDTH: Final = 80  # where lines are folded when nobody says otherwise


@dataclass(frozen=True)
class _Topic:
    """A topic with its objects: subscriptions, roles by action, payload schema."""

    entry: Json
    subscriptions: tuple[str, ...]
    grants: tuple[tuple[str, tuple[str, ...]], ...]
    schema: str

    @property
    def alike(self) -> str:
        """Topics with the same text differ in their level alone and are shown together."""
        keys = ("state", "subscription", "partitions", "policies", "ignore", "draining", "explain")
        shown = {key: self.entry.get(key) for key in keys}
        return json.dumps([shown, self.subscriptions, self.grants, self.schema])


def as_json(document: Json, width: int = WIDTH) -> str:
    """The document as JSON text; `width` has no effect."""
    del width  # a machine reads lines of any length
    return json.dumps(document, indent=2, ensure_ascii=False)


def tree(document: Json, width: int = WIDTH) -> str:
    """Text of the topologies as trees, then the totals. A tree has first a head, then tenants and other objects of the
    whole cluster, namespace and roles, then sources, packages, functions and connectors, then each topic family with
    its topics, and below them partitions, policies, schema, subscriptions and roles. `document`: JSON of `kodoctl
    expand`; `width`: columns at which facts are folded where a fold is possible; names of topics are not folded.
    """
    lines: list[str] = []
    for topology in document["topologies"]:
        lines += [*_head(document, topology), *_branches(_families(document, topology, width)), ""]
    return "\n".join([*lines, totals(document)])


def totals(document: Json) -> str:
    """Text with the number of objects of each kind that occurs, and of the topics' partitions, on one line."""
    entries = list(document["resources"].values())
    parts = []
    for kind in _KINDS:
        found = [entry for entry in entries if entry["kind"] == kind]
        if found:
            inside = f" with {many(sum(one['partitions'] for one in found), 'partition')}" if kind == "topic" else ""
            parts.append(f"{count_of_kind(len(found), kind)}{inside}")
    return f"{', '.join(parts)}." if parts else "Nothing."


def label_words(labels: Mapping[str, str]) -> list[str]:
    """Labels as texts `key=value`, in their order."""
    return [f"{name}={value}" for name, value in labels.items()]


def responsibility_facts(entry: Json) -> Iterator[tuple[str, str]]:
    """Yields at most two pairs for a topology or a ground topic: (`owners`, all owners in one text) and (`labels`, all
    labels in one text), each only if there are some.
    """
    if entry["owners"]:
        yield "owners", ", ".join(entry["owners"])
    if entry["labels"]:
        yield "labels", ", ".join(label_words(entry["labels"]))


def _head(document: Json, topology: Json) -> Iterator[str]:
    place = f"{topology['file']}, {_environment(document['environment'])}"
    yield f"{topology['name']}: {topology['namespace']} ({place}{', production' if topology['production'] else ''})"
    if topology["description"]:
        yield f"│  {topology['description']}"
    for name, value in responsibility_facts(topology):
        yield f"│  {name}: {value}"


def _environment(name: str) -> str:
    return name if name == "base" else f"environment {name}"


Branch = tuple[str, list[str]]  # a heading and the lines below it


def _branches(branches: Iterable[tuple[str, list[Branch]]]) -> Iterator[str]:
    """Lines of a tree of two levels of headings with lines below them."""
    outer = list(branches)
    for number, (heading, inner) in enumerate(outer, 1):
        last = number == len(outer)
        yield f"{'└─' if last else '├─'} {heading}"
        rail = "   " if last else "│  "
        for count, (title, lines) in enumerate(inner, 1):
            end = count == len(inner)
            yield f"{rail}{'└─' if end else '├─'} {title}"
            yield from (f"{rail}{'   ' if end else '│  '}{line}".rstrip() for line in lines)


def _families(document: Json, topology: Json, width: int) -> Iterator[tuple[str, list[Branch]]]:
    mine = [entry for entry in document["resources"].values() if entry["topology"] == topology["name"]]
    frame = list(_frame(mine, topology, width))
    if frame:
        yield "around the topics", frame
    for name, source in topology["sources"].items():
        yield (
            f"source {name}{': ' + source['description'] if source['description'] else ''}",
            [_source_branch(source, width)],
        )
    if packages := [entry for entry in mine if entry["kind"] == "package"]:
        yield "packages", [_package_branch(entry, width) for entry in packages]
    for entry in mine:
        if entry["kind"] in FUNCTION_KINDS:
            yield f"{kind_label(entry['kind'])} {entry['name']}", [_function_branch(entry, width)]
    topics = list(_topics(document, mine))
    for ground, description in topology["topics"].items():
        family = [topic for topic in topics if topic.entry["ground"] == ground]
        groups = [list(group) for _, group in groupby(family, key=lambda topic: topic.alike)]
        yield f"{ground}{': ' + description if description else ''}", [_group(group, width - 6) for group in groups]


def _frame(mine: list[Json], topology: Json, width: int) -> Iterator[Branch]:
    """Tenants, other objects of the whole cluster, namespace, and roles on anything but the topics of this file."""
    own = {entry["name"] for entry in mine if entry["kind"] == "topic"}
    for entry in mine:
        if entry["kind"] == "tenant":
            facts = [
                ("clusters", ", ".join(entry["clusters"]), ""),
                ("admin roles", ", ".join(entry["admin_roles"]), ""),
            ]
            yield f"tenant {entry['name']}", _facts(facts, width - 6)
        if entry["kind"] in _OF_CLUSTER:
            settings = [(name, value_text(value), "") for name, value in platform_settings(entry)]
            yield f"{kind_label(entry['kind'])} {entry['name']}", _facts(settings, width - 6)
        if entry["kind"] == "namespace":
            yield f"namespace {entry['name']}", _facts(policy_facts(entry), width - 6)
    elsewhere = [entry for entry in mine if entry["kind"] == "grant" and entry["target"] not in own]
    for target, grants in groupby(elsewhere, key=lambda entry: str(entry["target"])):
        what = "namespace" if target == topology["namespace"] else "topic"
        yield f"roles on {what} {target}", _facts(_role_facts(_by_action(grants)), width - 6)


def _source_branch(source: Json, width: int) -> Branch:
    """The slot of a source, and where the rows of its tables go."""
    facts: list[Fact] = [
        ("database", f"in the variable {source['database']}", ""),
        ("publication", source["publication"], ""),
        ("publishes", ", ".join(source["publishes"]), ""),
        ("snapshot", in_yaml(source["snapshot"]), ""),
    ]
    for name, table in source["tables"].items():
        facts.append((name, "outbox: each row names its topic" if "outbox" in table else f"→ {table.get('topic')}", ""))
    return f"slot {source['slot']}", _facts(facts, width - 6)


def _package_branch(package: Json, width: int) -> Branch:
    """The file of a package and its digest."""
    url = f"{package['type']}://{package['namespace']}/{package['name']}@{package['version']}"
    return url, _facts([("file", package["file"], ""), ("SHA-256", package["digest"], "")], width - 6)


def _function_branch(function: Json, width: int) -> Branch:
    """The package of a function, and the topics that it reads and writes."""
    facts: list[Fact] = [
        ("class", function["class_name"], ""),
        ("inputs", ", ".join(function["inputs"]), ""),
        ("output", function["output"], ""),
        ("subscription", function["subscription"] and f"{function['subscription']}, from {function['start']}", ""),
        ("retries", _retries(function), ""),
        ("guarantees", function["guarantees"], ""),
        ("parallelism", str(function["parallelism"]), ""),
    ]
    return f"package {function['package']}", _facts([fact for fact in facts if fact[1]], width - 6)


def _retries(sink: Json) -> str:
    """Text of the deliveries after the first, and of the topic for messages after them; "" for none."""
    if sink["retries"] is None:
        return ""
    dead = sink["dead_letter_topic"]
    return f"{sink['retries']}{f', then to {dead}' if dead else ''}"


def _topics(document: Json, mine: list[Json]) -> Iterator[_Topic]:
    below: dict[str, list[Json]] = {}
    for entry in document["resources"].values():
        if entry["kind"] in ("subscription", "grant", "schema"):
            below.setdefault(entry["target" if entry["kind"] == "grant" else "topic"], []).append(entry)
    for entry in mine:
        if entry["kind"] == "topic":
            here = below.get(entry["name"], [])
            subscriptions = tuple(f"{e['name']} from {e['start']}" for e in here if e["kind"] == "subscription")
            grants = _by_action(e for e in here if e["kind"] == "grant")
            schema = next((e["type"] for e in here if e["kind"] == "schema"), "")
            yield _Topic(entry, subscriptions, grants, schema)


def _by_action(grants: Iterable[Json]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    roles: dict[str, list[str]] = {}
    for grant in grants:
        for action in grant["actions"]:
            roles.setdefault(action, []).append(grant["role"])
    return tuple((action, tuple(sorted(roles[action]))) for action in sorted(roles))


def _group(topics: list[_Topic], width: int) -> Branch:
    """Topics that differ in their level alone, and the facts that all of them share."""
    first = topics[0]
    entry = first.entry
    title = f"{entry['state']} of {entry['subscription']}" if entry["subscription"] else "ready"
    longest = max(len(topic.entry["topic"]) for topic in topics)
    names = [f"{topic.entry['topic']:<{longest}}  {topic.entry['level'] or ''}".rstrip() for topic in topics]
    explain = entry.get("explain", {})
    facts: list[Fact] = [
        ("partitions", _partitions(entry), _source(explain.get("partitions"))),
        *policy_facts(entry),
        ("ignored", ", ".join(entry["ignore"]), ""),
        ("schema", first.schema, ""),
        ("subscriptions", ", ".join(first.subscriptions), ""),
        *_role_facts(first.grants),
    ]
    draining = " (draining: read, no longer written)" if entry["draining"] else ""
    return f"{title}{draining}", [*names, *(f"  {line}" for line in _facts(facts, width - 2))]


Fact = tuple[str, str, str]  # name, value, where it comes from ("" if nobody asked); one without a value is not shown


def _partitions(entry: Json) -> str:
    return str(entry["partitions"] or "none")


def _role_facts(grants: Iterable[tuple[str, tuple[str, ...]]]) -> list[Fact]:
    return [(f"may {action}", ", ".join(roles), "") for action, roles in grants]


def policy_facts(entry: Json) -> list[Fact]:
    """(name, value, origin) of the policies of a resource. If the entry has `explain`, the members of a policy with
    members are rows of their own, as `policy.member`; else each policy is one row, and its origin is "".
    """
    explain = entry.get("explain")
    if explain is None:
        return [(name, in_yaml(value), "") for name, value in entry["policies"].items()]
    facts = []
    for path, source in explain.items():
        if path != "partitions":
            name, _, member = path.partition(".")
            value = entry["policies"][name]
            facts.append((path, in_yaml(value[member] if member else value), _source(source)))
    return facts


def _source(source: Json | None) -> str:
    return "" if source is None else origin(source)


def origin(source: Json) -> str:
    """Text of the source of a value: `file:line`, or `derived: ` and the reason if no file has the value."""
    return f"derived: {source['derived']}" if "derived" in source else f"{source['file']}:{source['line']}"


def _facts(facts: list[Fact], width: int) -> list[str]:
    """Names, values and sources in columns, the last one folded at `width`."""
    shown = [fact for fact in facts if fact[1]]
    longest = max((len(name) for name, _, _ in shown), default=0)
    middle = max((len(value) for _, value, source in shown if source), default=0)
    lines: list[str] = []
    for name, value, source in shown:
        begin = f"{name:<{longest}}  " + (f"{value:<{middle}}  " if source else "")
        room = max(20, width - len(begin))
        folded = textwrap.wrap(source or value, room, break_long_words=False, break_on_hyphens=False)
        lines += [(begin if n == 0 else " " * len(begin)) + line for n, line in enumerate(folded)]
    return lines


def table(document: Json, width: int = WIDTH) -> str:
    """Text of an expansion as a table, then the totals. The table has a row for each topic; if topics of the document
    have explanations, it has instead a row for each value of a topic or namespace, with its origin. `width` has no
    effect.
    """
    topics = [entry for entry in document["resources"].values() if entry["kind"] == "topic"]
    several = len({entry["namespace"] for entry in topics}) > 1
    rows = [_policy_rows(document), _topic_rows(document, several=several)][
        not any("explain" in entry for entry in topics)
    ]
    del width  # cells are never cut: a cut name is no name
    return "\n".join([*_columns(rows), "", totals(document)])


def _topic_rows(document: Json, *, several: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("TOPIC", "LEVEL", "STATE", "PARTITIONS", "SUBSCRIPTIONS")]
    resources = list(document["resources"].values())
    for topic in _topics(document, resources):
        entry = topic.entry
        name = entry["name"].removeprefix("persistent://") if several else entry["topic"]
        names = ", ".join(text.partition(" ")[0] for text in topic.subscriptions)
        rows.append((name, entry["level"] or "-", entry["state"], _partitions(entry), names or "-"))
    return rows


def _policy_rows(document: Json) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("RESOURCE", "POLICY", "VALUE", "FROM")]
    for entry in document["resources"].values():
        for path, source in entry.get("explain", {}).items():
            name, _, member = path.partition(".")
            value = entry["partitions"] if path == "partitions" else entry["policies"][name]
            shown = in_yaml(value[member] if member else value)
            rows.append((entry.get("topic", entry["name"]), path, shown, origin(source)))
    return rows


def _columns(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


RENDERERS: Final[dict[str, Callable[[Json, int], str]]] = {"tree": tree, "table": table, "json": as_json}

"""Texts that all views of a plan have in common, made from the plan's JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from kodoctl.documents.plan_actions import POLICY_PREFIX, Action
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many, partitions_text, size_text, value_text
from kodoctl.topology.function_settings import HIDDEN, MASKED_KEYS, without_secrets
from kodoctl.topology.names import WAITING_STATES
from kodoctl.topology.resources import is_function, kind_label

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow, EffectiveValue, FieldRow, FindingRow, RemedyRow
    from kodoctl.plan.plan_document import PlanDocument

Json = dict[str, Any]
LEGEND: Final = "(what is there now → what the plan writes)"
VERBS = {
    "create": "will be created",
    "update": "will be updated",
    "delete": "will be deleted",
    "adopt": "will be adopted",
    "forget": "will be forgotten",
}
DONE = {"create": "created", "update": "updated", "delete": "deleted", "adopt": "adopted", "forget": "forgot"}
_REMEDIES = {  # flag -> the sentence above it, and how people write it with its value
    "--allow-destroy": (
        "If their loss is meant, say so for each (or in the file's `allow_destroy`):",
        "{} {}",
    ),
    "--allow-share": ("If so large a share is meant to go:", "{}={}"),
}
_ABOUT: Final = ("kind", "name", "home", "topology", "where")  # members of an object that are no settings
_WRITING: Final = ("create", "update", "delete")
_WAITING_SUFFIXES: Final = tuple(state.suffix for state in WAITING_STATES)
_DEDUPLICATES: Final = (
    "Waiting lanes get deduplication: what `kodoctl waiting` and `kodoctl recall` send there arrives once. Stored messages"
    " stay as they are, and workers go on. To leave it to the broker: `state_policies: {deduplication: inherit}`."
)
_OPERATIONS: Final = ("insert", "update", "delete", "truncate")
_ONE_WAY_OF_SEVERAL = frozenset({"--adopt", "--take-over"})  # within the sentence of the finding, with the other ways


def symbol(change: ChangeRow) -> str:
    """Symbol of the change's action: `+` create, `~` update, `-` delete, `○` adopt, `.` forget."""
    return Action(change["action"]).symbol


def fields_of(change: ChangeRow) -> list[FieldRow]:
    """The changed fields of an update; [] for any other change."""
    return change["fields"] if change["action"] == "update" else []


def with_dangers(change: ChangeRow, dangers: list[FindingRow]) -> ChangeRow:
    """The change with these dangers instead of its own."""
    return cast("ChangeRow", {**change, "dangers": dangers})


def name_of(change: ChangeRow, topics: int = 1) -> str:
    """Text that names the object of a change: its address; for `topics` topics with the same change, their number, as
    in `240 topics` or `subscription billing of 240 topics`.
    """
    if topics == 1:
        return one_line(change["address"])
    kind, _, name = change["address"].partition(".")
    rest = name.removeprefix(topic_of(change["address"])).removeprefix("/")
    return many(topics, "topic") if kind == "topic" else one_line(f"{kind} {rest}".strip() + f" of {topics:,} topics")


def reason_of(change: ChangeRow, topics: int = 1) -> str:
    """Reason of a change. If more than one topic has the same change (`topics`), the full name of the change's topic in
    the reason is replaced by `this topic`.
    """
    return change["reason"] if topics == 1 else of_any_topic(change["reason"], change["address"])


def cluster_line(document: PlanDocument, target: str) -> str:
    """Text with address, name and identity of the cluster, for the head of every plan and apply."""
    uuids = sorted({uuid for uuid in document["cluster"]["uuids"].values() if uuid})
    none = ", first apply" if document["complete"] else ""
    identity = f", {', '.join(uuid[:8] for uuid in uuids)}" if uuids else none
    environment = f", environment {document['environment']}" if document["environment"] else ""
    return one_line(f"{target} (cluster {document['cluster']['name']}{identity}){environment}")


def summary_line(document: PlanDocument) -> str:
    """Counts on one line: `Plan: 3 to create, 1 to update, 0 to delete, 2 to adopt, 212 unchanged.`"""
    counts = document["summary"]
    numbers = (counts["create"], counts["update"], counts["delete"], counts["adopt"])
    words = [
        f"{number} to {verb}" for number, verb in zip(numbers, ("create", "update", "delete", "adopt"), strict=True)
    ]
    if counts["forget"]:
        words.append(f"{counts['forget']} to forget")
    left = f", {left_out(document)} left out" if document["part"] else ""
    return f"Plan: {', '.join(words)}, {counts['unchanged']} unchanged{left}."


def left_out(document: PlanDocument) -> int:
    """Number of objects that a part of a plan leaves out; 0 for a whole plan."""
    return sum(document["part"]["left_out"].values()) if document["part"] else 0


def count_of_kind(count: int, kind: str) -> str:
    """A number of objects of one kind: `2 isolation policies`."""
    words = kind_label(kind)
    return many(count, words, f"{words[:-1]}ies" if words.endswith("y") else "")


def part_line(document: PlanDocument) -> str:
    """Flags that chose a part of the plan, for its head; "" for a whole plan."""
    part = document["part"]
    if part is None:
        return ""
    flags = [("--target", name) for name in part["targets"]] + [("--exclude", name) for name in part["excludes"]]
    return f"Only a part of the plan: {' '.join(f'{flag} {one_line(name)}' for flag, name in flags)}"


def part_lists(document: PlanDocument) -> list[tuple[str, list[str]]]:
    """(title, texts) of two lists: objects that no flag names and that were taken along, and objects that were held
    back because they need one that is left out. Empty lists are left out; [] for a whole plan.
    """
    part = document["part"]
    if part is None:
        return []
    along = [f"{one_line(one['address'])}, for {one_line(one['needed_by'])}" for one in part["taken_along"]]
    held_back = [f"{one_line(one['address'])}, needs {one_line(one['needs'])}" for one in part["held_back"]]
    found = (
        ("Taken along, because what is named needs them:", along),
        ("Held back, because of what is left out:", held_back),
    )
    return [(title, rows) for title, rows in found if rows]


def not_compared(document: PlanDocument) -> str:
    """Text about the objects that a part of a plan does not compare; "" for a whole plan."""
    if document["part"] is None:
        return ""
    kinds = ", ".join(count_of_kind(count, kind) for kind, count in document["part"]["left_out"].items())
    if not kinds:
        return "Nothing is left out: these flags name all there is."
    return f"Left out, not compared: {kinds}; nor what only consumers read of their topologies."


def by_origin(document: PlanDocument) -> list[tuple[str, list[ChangeRow]]]:
    """(heading, changes) of edited changes and of drift, if the plan was compared with a revision; else all changes
    under the heading "". Empty groups are left out.
    """
    changes, against = document["changes"], document["against"]
    if against is None:
        return [("", changes)] if changes else []
    since = f"since {one_line(against['ref'])} ({against['commit'][:8]})"
    drifted = [change for change in changes if change["origin"] == "drift"]
    edited = [change for change in changes if change["origin"] != "drift"]
    groups = ((f"Edited {since}:", edited), (f"Not edited {since}, drift [K407]:", drifted))
    return [(title, group) for title, group in groups if group]


def drift_mark(change: ChangeRow, field: FieldRow) -> str:
    """The mark `(drift)`, after two spaces, for a field that the edits do not explain in a change that also has edited
    fields; else "".
    """
    return "  (drift)" if change["origin"] == "both" and field["name"] in change["drifted"] else ""


def field_name(name: str) -> str:
    """Name of a field for people: `ttl` for `policies.ttl`, words for fields that are no policies."""
    words = {
        "missing_on": "missing on partitions",
        "missing_partitions": "missing partitions",
        "definition": "schema",
        "delayed_delivery": "delayed delivery (topic level)",
    }
    return words.get(name, name.removeprefix(POLICY_PREFIX))


def field_text(field: FieldRow) -> str:
    """Text of both values of a field, such as `7d → 3d`; a schema is only `a version` or `none`. If both values are
    maps, the text has only the keys that differ. Values of a function's settings whose names say that they are secret
    are hidden. After an unset policy comes the level that applies and, if it is known, the value of that level.
    """
    if field["name"] in MASKED_KEYS:
        return _settings_text(field["before"], field["after"])
    if field["name"] == "secrets":  # None: it is there, and is no reference
        there = {name: HIDDEN if reference is None else reference for name, reference in field["before"].items()}
        return _map_text(there, field["after"])
    if _both_maps(field["before"], field["after"]):
        return _map_text(field["before"], field["after"])
    before = _side(field["name"], field["before"], field.get("effective_before"))
    return f"{before} → {_side(field['name'], field['after'], field.get('effective_after'))}"


def setting_text(before: Any, after: Any) -> str:
    """Both values of a consumer's setting: `1m → 5m`, where None is `default`; of maps only the keys that differ; of
    lists of maps only the members that are added (+) and removed (-).
    """
    if _both_maps(before, after):
        return _map_text(before, after)
    if _maps(before) and _maps(after):
        gone = [f"- {value_text(_in_order_of(member, after))}" for member in before if member not in after]
        come = [f"+ {value_text(member)}" for member in after if member not in before]
        return "  ".join([*gone, *come]) or "in another order"
    return " → ".join("default" if side is None else value_text(side) for side in (before, after))


def _both_maps(before: Any, after: Any) -> bool:
    return all(isinstance(side, dict) and set(side) != {"foreign"} for side in (before, after))


def _map_text(before: Json, after: Json) -> str:
    """Text of the keys with different values: `time 7d → 3d, size unset → 1GiB`; an inner map's key as `outer.key`."""
    return ", ".join(f"{key} {value_text(old)} → {value_text(new)}" for key, old, new in _differing(before, after))


def _settings_text(before: Json, after: Json) -> str:
    """Text of the settings of a function with different values, as of `_map_text`: secrets are named, and not shown."""
    return ", ".join(
        f"{key} {value_text(without_secrets(old, key))} → {value_text(without_secrets(new, key))}"
        for key, old, new in _differing(before, after)
    )


def _differing(before: Json, after: Json, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differing(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new


def _maps(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(member, dict) for member in value)


def _in_order_of(member: Json, others: list[Json]) -> Json:
    """A map with its keys in the order of the file, because the ledger does not keep it."""
    order = [key for other in others for key in other]
    return dict(sorted(member.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _side(name: str, value: Any, effective: EffectiveValue | None) -> str:
    if name == "definition":
        return "a version" if value else "none"
    if value == "":
        return "unknown" if name == "package" else "none"
    if name in ("memory", "disk") and isinstance(value, int):
        return size_text(value)
    text = value_text(value)
    if value is not None or effective is None:
        return text
    if effective["value"] is None:
        return f"{text} ({effective['from']})"
    return f"{text} ({effective['from']}: {value_text(effective['value'])})"


def of_any_topic(text: str, address: str) -> str:
    """Returns the text with the full name of the topic of `address` replaced by `this topic`. Other forms of the name
    stay. The text is unchanged if the object belongs to no topic.
    """
    topic = topic_of(address)
    return text.replace(topic, "this topic") if topic else text


def topic_of(address: str) -> str:
    """The full name of the topic to which an address belongs; "" for objects of no topic, such as a namespace."""
    name = address.partition(".")[2]
    return "/".join(name.split("/")[:5]) if name.startswith("persistent://") else ""


def short_address(change: ChangeRow) -> str:
    """Text of an object that belongs to a topic, without the name of the topic: `subscription billing: from earliest`."""
    kind, _, name = change["address"].partition(".")
    rest = name.removeprefix(topic_of(change["address"])).removeprefix("/")
    text = created_text(change["after"])
    return one_line(f"{kind} {rest}".strip() + (f": {text}" if text else ""))


def created_text(resource: Json | None) -> str:
    """Settings of a new object, on one line; "" for None."""
    if resource is None:
        return ""
    match resource["kind"]:
        case "topic":
            parts = [partitions_text(resource["partitions"])]
            return "; ".join([*parts, *_policies(resource)])
        case "namespace":
            return "; ".join(_policies(resource)) or "without policies of its own"
        case "subscription":
            return f"from {resource['start']}"
        case "grant":
            return ", ".join(resource["actions"])
        case "publication":
            operations = [one for one in _OPERATIONS if one in resource["operations"]]
            return f"{', '.join(operations)} of {', '.join(resource['tables'])}"
        case "function" | "sink" | "io_source":
            return _function_text(resource)
        case "package":
            return f"{resource['file']}, SHA-256 {resource['digest'][:12]}"
        case "tenant":
            roles = f"; admin roles {', '.join(resource['admin_roles'])}" if resource["admin_roles"] else ""
            return f"clusters {', '.join(resource['clusters'])}{roles}"
        case "cluster" | "resource_group" | "failure_domain" | "isolation_policy":
            return "; ".join(f"{name} {value_text(value)}" for name, value in platform_settings(resource))
        case _:
            return str(resource.get("type", ""))


def platform_settings(resource: Json) -> Iterator[tuple[str, Any]]:
    """Yields (name, value) of the settings of an object of the whole cluster, without empty ones."""
    settings = ((name, value) for name, value in resource.items() if name not in _ABOUT)
    yield from ((name, value) for name, value in settings if value not in ("", [], {}, None))


def _function_text(function: Json) -> str:
    """The package of a function or connector, its inputs and output, and the number of its instances, on one line."""
    own = f"persistent://{function['namespace']}/"
    *inputs, output = (name.removeprefix(own) for name in (*function["inputs"], function["output"]))
    way = " → ".join(part for part in (", ".join(inputs), output) if part)
    return f"{function['package'] or 'package unknown'}; {way}; {many(function['parallelism'], 'instance')}"


def _policies(resource: Json) -> list[str]:
    return [f"{name} {value_text(value)}" for name, value in resource["policies"].items()]


def elsewhere_line(document: PlanDocument) -> str:
    """Other topologies in these namespaces, in one line; "" if the namespaces have no other topologies."""
    others = document["elsewhere"]
    if not others:
        return ""
    named = ", ".join(f"{one_line(name)} ({many(count, 'object')})" for name, count in sorted(others.items()))
    return (
        f"Not in these files, left alone: topologies {named}. If the file of one is gone for good:"
        " `kodoctl forget` gives its objects up, `kodoctl destroy` deletes them;"
        " both with --name NAME --namespace TENANT/NAMESPACE."
    )


def rollout_notes(document: PlanDocument) -> list[str]:
    """Sentences about the effects of a plan on clients: the order of deployments and apply, so that none reads a topic
    that does not exist; restarts of functions; unloads by isolation policies; deduplication of waiting lanes, which no
    file has to name. [] for none.
    """
    topics = {change["action"] for change in document["changes"] if change["address"].startswith("topic.")}
    notes = []
    if "delete" in topics and not document["destroying"]:
        notes.append("Deleted topics: first deploy consumers and producers that no longer use them, then apply.")
    if "create" in topics and not document["destroying"]:
        notes.append("New topics: first apply, then deploy consumers and producers that use them.")
    if any(map(_restarts, document["changes"])):
        notes.append("Functions and connectors that are updated, or get another owner: their instances restart.")
    if any(one["address"].startswith("isolation_policy.") and one["action"] in _WRITING for one in document["changes"]):
        notes.append("Isolation policies: the brokers unload the namespaces that they match, and clients reconnect.")
    if any(map(_begins_to_deduplicate, document["changes"])):
        notes.append(_DEDUPLICATES)
    return notes


def _restarts(change: ChangeRow) -> bool:
    """True for a function or connector that an apply updates, if only with a new marker."""
    if not is_function(change["address"]):
        return False
    return change["action"] == "update" or (change["action"] == "adopt" and change["taken_from"] is not None)


def _begins_to_deduplicate(change: ChangeRow) -> bool:
    """True for a topic of a waiting state that is there and gets deduplication."""
    begins = any((field["name"], field["after"]) == ("policies.deduplication", True) for field in fields_of(change))
    return begins and change["address"].endswith(_WAITING_SUFFIXES)


def remedies(document: PlanDocument) -> list[tuple[str, list[str]]]:
    """Remedies for a refused plan: (sentence, flags) for each kind of obstacle that a flag can allow; the flags have
    their values, ready to be pasted. Flags that a finding's own text names (`--adopt`, `--take-over`) are left out.
    """
    refused = [danger for change in document["changes"] for danger in change["dangers"]] + document["findings"]
    found: dict[str, list[str]] = {}
    for finding in refused:
        if remedy := _own_remedy(finding):
            flag, value = one_line(remedy["flag"]), one_line(remedy["value"] or "")
            lead, form = _REMEDIES.get(flag, ("If that is meant:", "{} {}"))
            found.setdefault(lead, []).append(form.format(flag, value).rstrip())
    return [(lead, list(dict.fromkeys(flags))) for lead, flags in found.items()]


def refusing_codes(document: PlanDocument) -> str:
    """Codes of the errors that refuse a plan, for one line: `K413, K402 (3 times)`."""
    found = Counter(
        finding["code"]
        for findings in (document["findings"], *(change["dangers"] for change in document["changes"]))
        for finding in findings
        if finding["severity"] == "error"
    )
    return ", ".join(one_line(code) + (f" ({count:,} times)" if count > 1 else "") for code, count in found.items())


def stake_lines(danger: FindingRow, address: str) -> list[str]:
    """Lines of a danger's detail without its address at the beginning. The remedy of an error is left out, because the
    plan lists it once at its end; the detail of any other danger is one line.
    """
    lines = detail_lines(danger) if danger["severity"] == "error" else [danger["detail"]]
    return [one_line(line.removeprefix(f"{address}: "), 2000) for line in lines]


def detail_lines(finding: FindingRow) -> list[str]:
    """The lines of a finding's detail, without the last one if that is the remedy; renderers show the remedy elsewhere."""
    lines: list[str] = finding["detail"].split("\n")
    return lines[:-1] if _own_remedy(finding) else lines


def has_remedy_line(finding: FindingRow) -> bool:
    """True if the remedy of a finding has a line of its own, which views print at their end."""
    return _own_remedy(finding) is not None


def _own_remedy(finding: FindingRow) -> RemedyRow | None:
    """The remedy that has a line of its own in the detail; None if there is none, or if the sentence itself names it."""
    remedy = finding.get("remedy")
    return remedy if remedy and remedy["flag"] not in _ONE_WAY_OF_SEVERAL else None

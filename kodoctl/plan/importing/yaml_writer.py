"""The text of an imported file: families as a document, and comments about values that Pulsar does not store or
the format cannot express.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from kodoctl.plan.field_diff import ALWAYS_SET, is_equal
from kodoctl.text.escaping import printable
from kodoctl.topology.expand import derived_state
from kodoctl.topology.model.policies import TOPIC_POLICY_NAMES, Policies, to_json
from kodoctl.topology.names import WAITING_STATES, Level, state_name
from kodoctl.topology.policy_layers import DERIVED_AUDIT, DERIVED_DEAD_LETTER, Layer, merge_layers, of_every_topic

if TYPE_CHECKING:
    from kodoctl.plan.importing.families import ImportedFamily, ImportedSubscription, UnownedObjects
    from kodoctl.topology.resources import TopicResource

Json = dict[str, Any]
_SHORT = 100  # characters that still read well on one line
_MANY = 20  # objects that are listed with their whole names and the reason
_WIDE = 116  # characters of a line with several names
_HEAD = """\
# Imported from the live cluster. Review it, then `kodoctl plan` shows what will be adopted.
# Pulsar stores neither subscription types nor delays, attempts, weights, limits and routes: these are at their defaults.
"""


def document(name: str, seen: UnownedObjects, families: Mapping[str, ImportedFamily]) -> Json:
    """The topology file as plain data, with the keys in the order of the format, and without values that are no more
    than defaults.
    """
    found: Json = {"version": 1, "name": name, "tenant": seen.namespace.tenant, "namespace": seen.namespace.namespace}
    if policies := _namespace(seen):
        found["namespace_policies"] = policies
    if seen.grants:
        found["namespace_grants"] = {role: list(actions) for role, actions in sorted(seen.grants.items())}
    found["topics"] = {ground: _ground(ground, family) for ground, family in families.items()}
    return found


def _namespace(seen: UnownedObjects) -> Json:
    """The policies that are set on a namespace, without values that every namespace has."""
    kept = {
        n: v
        for n, v in seen.policies.items()
        if ALWAYS_SET.get(n, object()) != v and not (n == "replication" and v == (seen.cluster,))
    }
    return {name: to_json(value) for name, value in sorted(kept.items())}


def _ground(ground: str, family: ImportedFamily) -> Json:
    found: Json = {}
    found |= _partitions(family.topic)
    found |= _levels(family.levels)
    policies = {name: value for name, value in family.topic.policies.items() if not is_equal(name, value, None)}
    if policies:
        found["policies"] = {name: to_json(policies[name]) for name in sorted(policies)}
    states = {
        local: family.members[local]
        for name, reader in family.readers.items()
        for level in family.levels
        if not level.is_backup
        for state in reader.states
        for local in [state_name(ground, level, name, state)]
    }
    if on_states := _state_policies(policies, list(states.values())):
        found["state_policies"] = on_states
    if family.producers:
        found["producers"] = list(family.producers)
    if family.readers:
        found["subscriptions"] = {name: _reader(reader, policies) for name, reader in family.readers.items()}
    return found


def _partitions(topic: TopicResource) -> Json:
    """`partitions` or `partitioned` as people write them; neither for one partition."""
    if not topic.partitions:
        return {"partitioned": False}
    return {"partitions": topic.partitions} if topic.partitions != 1 else {}


def _levels(levels: Iterable[Level]) -> Json:
    """`levels` and `backup` as people write them."""
    named = sorted(
        (level for level in levels if level is not Level.B1), key=lambda level: (level is not Level.L1, level.rank)
    )
    found: Json = {}
    if named == [Level.L1, Level.L2]:
        found["levels"] = "double"
    elif named != [Level.L1]:
        found["levels"] = [level.value for level in named]
    if Level.B1 in set(levels):
        found["backup"] = True
    return found


def _state_policies(ground: Policies, members: list[TopicResource]) -> Json:
    """The `state_policies` that give most state topics their live value; a topic with another value is left out of the
    file later.
    """
    found: Json = {}
    for name in TOPIC_POLICY_NAMES:
        live = [
            (
                topic.policies.get(name),
                merge_layers([of_every_topic(Layer((), dict(ground))), derived_state(0, 0)]).get(name),
            )
            for topic in members
        ]
        if all(is_equal(name, value, base) for value, base in live):
            continue
        values = [value for value, _ in live]
        usual = max(values, key=values.count)
        found[name] = "inherit" if usual is None else to_json(usual)
    return found


def _reader(reader: ImportedSubscription, ground: Policies) -> Json:
    found: Json = {}
    if reader.states != WAITING_STATES:
        found["states"] = [state.value for state in reader.states]
    if reader.dead_letter is None:
        found["dead_letter"] = False
    else:
        own = _own(reader.dead_letter, ground, DERIVED_DEAD_LETTER)
        own = {**_partitions(reader.dead_letter), **own}
        if own:
            found["dead_letter"] = own
    if reader.audit is not None:
        found["audit"] = _own(reader.audit, ground, DERIVED_AUDIT) or True
    return found


def _own(topic: TopicResource, ground: Policies, derived: Layer) -> Json:
    """Content of the map of a dead letter or audit topic: its live value if merging gives another one, `inherit` if it
    is unset.
    """
    base = merge_layers([of_every_topic(Layer((), dict(ground))), derived])
    found: Json = {}
    for name in TOPIC_POLICY_NAMES:
        live = topic.policies.get(name)
        if not is_equal(name, live, base.get(name)):
            found[name] = "inherit" if live is None else to_json(live)
    return found


def render(data: Json, left_out: Mapping[str, str], findings: Mapping[int, set[str]] | None = None) -> str:
    """The YAML text of a topology file. `left_out`: printed name of an object or setting -> reason, written as comments
    at the end; `findings`: line of the text without this argument -> codes that a comment above the line allows.
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 200
    stream = io.StringIO()
    yaml.dump(_flowing(data), stream)
    lines = (_HEAD + stream.getvalue()).splitlines()
    for number, codes in sorted((findings or {}).items(), reverse=True):
        indent = len(lines[number - 1]) - len(lines[number - 1].lstrip())
        lines.insert(number - 1, f"{' ' * indent}# kodoctl: allow {', '.join(sorted(codes))} because found by import")
    if left_out:
        lines += ["", "# Left out, and never touched:", *(f"#   {line}" for line in listed(left_out))]
    return "\n".join(lines) + "\n"


def listed(left_out: Mapping[str, str]) -> Iterator[str]:
    """Yields the lines of a list of objects and reasons. More than 20 objects that have one reason, and printed names
    alike up to the last `/` (topics of one namespace, subscriptions of one topic), follow a heading with their number,
    several on a line. Names and reasons are escaped, so that none breaks a line.
    """
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, reason in sorted(left_out.items()):
        place, slash, local = name.rpartition("/")
        groups[f"{place}{slash}", reason].append(local)
    for (place, reason), names in groups.items():
        if len(names) <= _MANY:
            yield from (printable(f"{place}{name}: {reason}") for name in names)
            continue
        yield printable(f"{len(names)} of {place}…: {reason}")
        shown = " ".join(map(printable, names))
        yield from wrap(
            shown, _WIDE, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
        )


def _flowing(value: Any, depth: int = 0) -> Any:
    """Maps and lists without maps inside on one line, as people write policies."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(value, dict):
        found = CommentedMap({key: _flowing(child, depth + 1) for key, child in value.items()})
        if (
            depth > 1
            and value
            and not any(isinstance(child, dict) for child in value.values())
            and len(str(value)) < _SHORT
        ):
            found.fa.set_flow_style()
        return found
    if isinstance(value, list):
        items = CommentedSeq(value)
        items.fa.set_flow_style()
        return items
    return value

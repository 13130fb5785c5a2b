"""Random topologies that load, and random ways to write them down."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
DURATIONS = st.sampled_from(["1m", "10m", "1h", "12h", "7d", "30d"])
SIZES = st.sampled_from(["1MiB", "64MiB", "1GiB", "20GiB"])
LEVELS = st.sampled_from(["S1", "L2", "L3", "B1", "B2", "D1"])
STATES = ("retrying", "pending", "blocking")
Drawer = Callable[[st.SearchStrategy[Any]], Any]


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A map with any of these keys, in any order."""
    chosen = st.fixed_dictionaries({}, optional=fields)
    return chosen.flatmap(
        lambda found: st.permutations(list(found)).map(lambda keys: {key: found[key] for key in keys})
    )


POLICIES = some(
    retention=st.fixed_dictionaries({"time": DURATIONS | st.just("unlimited"), "size": SIZES | st.just("unlimited")})
    | st.just("inherit"),
    backlog_quota=some(
        size=SIZES, time=DURATIONS, when_full=st.sampled_from(["hold_producers", "fail_producers", "evict"])
    ),
    ttl=DURATIONS | st.sampled_from(["unlimited", "inherit"]),
    inactive_topic=some(delete=st.sampled_from(["never", "caught_up", "no_subscriptions"]), after=DURATIONS),
    persistence=some(ensemble=st.integers(1, 4), write_quorum=st.integers(1, 4), ack_quorum=st.integers(1, 4)),
    max_producers=st.integers(1, 100) | st.just("unlimited"),
    max_message_size=st.sampled_from(["1MiB", "64MiB", "1GiB"]) | st.just("inherit"),
    schema_compatibility=st.sampled_from(["FULL", "BACKWARD", "ALWAYS_COMPATIBLE"]),
    max_unacked_per_consumer=st.integers(1, 10**6),
)
WAITS = some(delays=st.lists(DURATIONS, min_size=1, max_size=3), attempts=st.integers(1, 20))
SUBSCRIPTIONS = some(
    type=st.sampled_from(["shared", "key_shared", "failover", "exclusive"]),
    start=st.sampled_from(["earliest", "latest"]),
    states=st.lists(st.sampled_from(STATES), unique=True),
    draining=st.lists(st.sampled_from(STATES), max_size=2, unique=True),
    dead_letter=st.booleans() | POLICIES | st.fixed_dictionaries({"partitions": st.integers(1, 4)}),
    audit=st.booleans() | st.just("best_effort") | POLICIES,
    workers=st.lists(NAMES, max_size=2),
    recall=st.lists(NAMES, max_size=2),
    produces=st.lists(NAMES, max_size=2),
    expected_workers=st.integers(1, 8),
    on_failure=st.sampled_from(["park", "block", "leave"]),
    lookahead=some(messages=st.integers(1, 10**6), size=SIZES),
    weights=some(ready=st.integers(0, 200), retrying=st.integers(0, 200)),
    retrying=WAITS,
    backup=WAITS,
    isolate=st.just("off") | some(share=st.just("25%"), to=st.sampled_from(["B1", "pending"])),
    limits=st.lists(
        st.fixed_dictionaries(
            {"limit": st.just("10/s"), "kind": st.sampled_from(["rate", "quota"])}, optional={"by": NAMES}
        )
        | st.fixed_dictionaries({"kind": st.just("concurrency"), "limit": st.integers(1, 9)}),
        max_size=2,
    ),
    routes=st.lists(
        st.fixed_dictionaries(
            {"to": LEVELS, "when": st.fixed_dictionaries({"property": NAMES, "at_least": st.integers(0, 9)})}
        ),
        max_size=2,
    ),
)
GROUNDS = some(
    description=st.sampled_from(["", "one message for each order", "a # in a text", "yes"]),
    partitions=st.integers(1, 8),
    levels=st.sampled_from(["single", "double"])
    | st.lists(LEVELS, max_size=2, unique=True).map(lambda found: ["L1", *found]),
    backup=st.booleans(),
    draining=st.lists(LEVELS, max_size=2, unique=True),
    message_properties=st.dictionaries(NAMES, st.sampled_from(["required", "optional"]), max_size=2),
    fair_by=NAMES,
    policies=POLICIES,
    state_policies=POLICIES,
    ignore=st.lists(st.sampled_from(["ttl", "publish_rate"]), max_size=1),
    producers=st.lists(NAMES, max_size=2),
    subscriptions=st.dictionaries(NAMES, SUBSCRIPTIONS, max_size=2),
)


@st.composite
def topologies(draw: st.DrawFn) -> dict[str, Any]:
    """A document that the models accept; lint may have much to say about it."""
    needed = {
        "version": 1,
        "name": draw(NAMES),
        "tenant": draw(NAMES),
        "namespace": draw(NAMES),
        "topics": draw(st.dictionaries(NAMES, GROUNDS, max_size=3)),
    }
    more = draw(
        some(
            description=st.sampled_from(["Orders", "x: y", "# no comment"]),
            defaults=some(partitions=st.integers(1, 8), policies=POLICIES, state_policies=POLICIES),
            namespace_policies=POLICIES.map(
                lambda found: {key: value for key, value in found.items() if key != "max_message_size"}
            ),
            environments=st.dictionaries(
                NAMES, some(production=st.booleans(), defaults=some(partitions=st.integers(1, 9))), max_size=2
            ),
        )
    )
    document = {**needed, **more}
    return {key: document[key] for key in draw(st.permutations(list(document)))}


def written(document: Any, draw: Drawer) -> str:
    """The document as YAML: block or flow, indented somehow, with comments and blank lines anywhere."""
    indent = draw(st.integers(1, 4))
    return "\n".join(_lines(document, draw, indent, 0)) + "\n"


def _lines(value: Any, draw: Drawer, indent: int, column: int) -> list[str]:
    lines: list[str] = []
    pad = " " * column
    entries = value.items() if isinstance(value, dict) else [("-", item) for item in value]
    for key, item in entries:
        lines += draw(st.sampled_from([[], [], [], [""], [f"{pad}# about {key}"], ["", f"{pad}# one", f"{pad}# two"]]))
        head = f"{pad}{key}:" if key != "-" else f"{pad}-"
        tail = draw(st.sampled_from(["", "", "  # why"]))
        if isinstance(item, dict | list) and item and draw(st.booleans()):
            below = _lines(item, draw, indent, column + indent + 1)
            if key == "-" and isinstance(item, dict) and below[0].strip() and not below[0].lstrip().startswith("#"):
                lines += [f"{pad}-{below[0][len(pad) + 1 :]}", *below[1:]]
            else:
                lines += [f"{head}{tail}", *below]
            lines += draw(st.sampled_from([[], [], [f"{pad}{' ' * (indent + 1)}# the end of {key}"]]))
        else:
            lines.append(f"{head} {_flow(item)}{tail}")
    return lines


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value)

"""Texts of a catalogue of topologies: limits, routes and settings, live figures, and differences to a revision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kodoctl.render.expansion import responsibility_facts
from kodoctl.render.plan_words import setting_text
from kodoctl.text.formatting import age_text, duration_text, many, value_text
from kodoctl.topology.expansion_json import AUDIT
from kodoctl.topology.function_settings import MASKED_KEYS, without_secrets
from kodoctl.topology.resources import FUNCTION_KINDS
from kodoctl.topology.yaml.schema_hints import in_yaml

Json = dict[str, Any]
_MASKED: Final = re.compile(
    rf"(?:{'|'.join(FUNCTION_KINDS.values())})\..+?\.(?:{'|'.join(sorted(MASKED_KEYS))})(?:\.(?P<name>.*))?", re.DOTALL
)
"""Path of the `config` or the `settings` of a function or connector, or of a setting `name` in these."""


def change_text(path: str, before: Any, after: Any) -> str:
    """Text about the key at `path`, whose value differs: both values; of maps only the keys that differ; of lists of
    maps only the members that come (+) or go (-), on lines of their own. `before` None: the key is new; `after` None:
    the key was removed; the text then has the other value alone. Values in `config` and `settings` of a function or
    connector whose names say that they are secret are not shown.
    """
    before, after = (_without_secrets(path, side) for side in (before, after))
    if before is None or after is None:
        return f"new: {value_text(after)}" if before is None else f"removed: {value_text(before)}"
    return setting_text(before, after).replace("  ", "\n")


def _without_secrets(path: str, value: Any) -> Any:
    """The value at `path` without the secret values in `config` and `settings`. Names of functions may have dots."""
    if inside := _MASKED.fullmatch(path):
        return without_secrets(value, inside["name"] or "")
    if isinstance(value, dict) and path.partition(".")[0] in FUNCTION_KINDS.values():
        return {name: _without_secrets(f"{path}.{name}", member) for name, member in value.items()}
    return value


def topic_facts(topic: Json) -> Iterator[tuple[str, str]]:
    """Yields (name, value) of facts about a ground topic, as texts. `topic`: as `catalogue_document` makes it."""
    yield from responsibility_facts(topic)
    yield "levels", ", ".join(topic["levels"])
    for level, names in topic["exclusive_levels"].items():
        yield f"only in {level}", ", ".join(names)
    yield "producers", ", ".join(topic["producers"]) or "no role named"
    yield "fair by", topic["fair_by"] or "nothing: all messages are of one tenant"
    if topic["message_properties"]:
        named = (f"{name} ({need})" for name, need in topic["message_properties"].items())
        yield "message properties", ", ".join(named)
    if topic["compression"] != "none":
        yield "compression", topic["compression"]
    if topic["payloads"]:
        yield "payloads that land", in_yaml(topic["payloads"])


def setting_value_text(setting: Json) -> str:
    """Value of a setting of a subscription as text. The text about waits has their delays, the number of attempts, and
    the longest wait in all. For the value None, which only waits have, it says that there are no lanes for them.
    """
    value = setting["value"]
    if value is None:
        return "no effect: there are no such lanes"
    if not isinstance(value, dict) or "delays" not in value:
        return in_yaml(value)
    *first, last = value["delays"]
    waits = ", ".join([*first, f"then {last} each" if first else f"{last} each"])
    by_code = f"; by code {in_yaml(value['by_code'])}" if value["by_code"] else ""
    return f"{waits}; {value['attempts']} attempts, {duration_text(value['total'])} in all{by_code}"


def object_facts(one: Json) -> Iterator[tuple[str, str]]:
    """Yields (name, value) of facts about a function, a connector or an object of the whole cluster, as texts, without
    empty ones. Values in `config` and `settings` whose names say that they are secret are not shown.
    """
    for name, value in one.items():
        if name not in ("kind", "name", "where") and value not in (None, "", [], {}):
            shown = without_secrets(value) if name in MASKED_KEYS else value
            yield name, shown if isinstance(shown, str) else in_yaml(shown)


_OVER: Final = {
    "rate": "over it, messages wait in pending",
    "quota": "over it, messages wait in blocking",
    "concurrency": "at it, the tenant is passed over",
}


def limit_text(limit: Json) -> str:
    """A limit as a sentence: its amount, the messages that it is about, and what happens to messages over it."""
    what = f"{limit['limit']} handlers at once" if limit["kind"] == "concurrency" else limit["limit"]
    parts = [f"{limit['kind']} {what}"]
    parts += [f"for each value of {limit['by']}"] if limit["by"] else []
    parts += [f"burst {limit['burst']}"] if limit.get("burst") else []
    parts += ["of each worker"] if limit["scope"] == "worker" else []
    parts += [f"in {in_yaml({k: v for k, v in limit['in'].items() if v})}"] if limit["in"] else []
    parts += [f"other limits {in_yaml(limit['overrides'])}"] if limit["overrides"] else []
    return f"{', '.join(parts)}; {_OVER[limit['kind']]}"


def route_text(route: Json) -> str:
    """A route as a sentence: its condition, its level, when it is evaluated, and its share if that is not 100%."""
    share = "" if route["share"] == "100%" else f", {route['share']} of them"
    at = "as they are sent" if route["at"] == ["dispatch"] else f"at {', '.join(route['at'])}"
    return f"{route['when']} → {route['to']}, {at}{share}"


def lane_figures(lane: Json, status: Json | None, now: int) -> tuple[str, str, str]:
    """(backlog in entries, age of the oldest unacknowledged message, consumers) of a lane, as texts: "unknown" for each
    if the lane was not read (`status` is None), "missing" and two empty texts if it does not exist, three empty texts
    for the audit lane. The age is "-" without a backlog, and "unknown" if it is unknown. For dead letters the consumers
    are "held for recalls". `status`: the lane in the JSON of `kodoctl status`; `now`: ms since the epoch.
    """
    if lane["state"] == AUDIT:
        return "", "", ""
    if status is None:
        return "unknown", "unknown", "unknown"
    if not status["there"]:
        return "missing", "", ""
    oldest = age_text(now - status["oldest"]) if status["oldest"] else "unknown" if status["entries"] else "-"
    consumers = "held for recalls" if lane["state"] == "dead" else f"{status['consumers']:,}"
    return f"{status['entries']:,}", oldest, consumers


def backlog_text(found: Json, now: int) -> str:
    """Text about the backlog of a topology: entries that wait, in ready lanes too, and age of the oldest; entries of
    dead letters; numbers of missing lanes and of topics that were not read. Zeros after the first are left out. `now`:
    ms since the epoch.
    """
    lanes = [lane for lane in found["lanes"] if lane["there"]]
    waiting = sum(lane["entries"] for lane in lanes if lane["state"] != "dead")
    dead = sum(lane["entries"] for lane in lanes if lane["state"] == "dead")
    ages = [lane["oldest"] for lane in lanes if lane["oldest"] and lane["state"] != "dead"]
    parts = [f"{waiting:,} waiting" + (f", oldest {age_text(now - min(ages))}" if ages else "")] if lanes else []
    parts += [f"{dead:,} dead"] if dead else []
    missing = len(found["lanes"]) - len(lanes)
    parts += [f"{many(missing, 'lane')} missing"] if missing else []
    parts += [f"{many(len(found['unread']), 'topic')} unknown"] if found["unread"] else []
    return "; ".join(parts) or "no lanes"


def applied_text(found: Json, now: int, *, whole: bool) -> str:
    """Text about the last apply in the namespace of a topology: verb, state and age; `never` if there was none;
    `unknown: ` and the reason if that is unknown. `now`: ms since the epoch; `whole`: with its id and the user.
    """
    if found["unknown"]:
        return f"unknown: {found['unknown']}"
    if (last := found["applied"]) is None:
        return "never"
    more = f", {last['id']} by {last['who']}" if whole else ""
    return f"{last['verb']} {last['state']}, {age_text(max(0, now - last['began']))} ago{more}"

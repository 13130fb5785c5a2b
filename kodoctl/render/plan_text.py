"""A plan for people: as Terraform users read it, dangerous changes first, unchanged objects only counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kodoctl.render import plan_words as words
from kodoctl.render.safe import one_line

Json = dict[str, Any]
_STYLES = {"create": "green", "update": "yellow", "delete": "red", "adopt": "cyan", "forget": "magenta"}
MAX_UNMANAGED = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text; the style is used on terminals only."""

    text: str = ""
    style: str = ""


def plan_lines(document: Json, target: str) -> Iterator[Line]:
    """The whole plan, from its JSON form; `target` says how the cluster was reached."""
    yield Line(words.cluster_line(document, target), "bold")
    yield Line()
    for change in document["changes"]:
        yield from _change(change)
    if document["changes"]:
        yield Line()
    yield from _consumers(document)
    yield from _unmanaged(document)
    if elsewhere := words.elsewhere_line(document):
        yield Line(elsewhere, "dim")
    yield from _findings(document)
    if document["changes"]:
        yield Line(words.summary_line(document), "bold")
    else:
        yield Line(f"No changes. {document['summary']['unchanged']} objects are as the files say.", "bold green")


def _change(change: Json) -> Iterator[Line]:
    style = _STYLES[change["action"]]
    where = f"  ({change['where'][0]}:{change['where'][1]})" if change["where"] and change["where"][1] else ""
    address = one_line(change["address"])
    match change["action"]:
        case "create":
            yield Line(f"  + {address}", style)
            if text := words.created_text(change["after"]):
                yield Line(f"      {text}")
        case "update":
            yield Line(f"  ~ {address}{where}", style)
            width = max(len(words.field_name(field["name"])) for field in change["fields"])
            for field in change["fields"]:
                yield Line(f"      {words.field_name(field['name']):<{width}}  {words.field_text(field)}")
            if change["unload"]:
                yield Line("      the topic is unloaded once: its consumers reconnect")
        case _:
            yield Line(f"  {words.symbol(change)} {address}{where}", style)
            if change["reason"]:
                yield Line(f"      {one_line(change['reason'])}")
    for danger in change["dangers"]:
        yield Line(f"      ! {danger['code']} {danger['severity']}: {one_line(danger['summary'])}", "bold red")
        yield Line(f"        {one_line(danger['detail'], 2000)}", "red")


def _consumers(document: Json) -> Iterator[Line]:
    if not document["consumer_changes"]:
        return
    yield Line("Only consumers read these; deploy them (nothing is written to topics):", "bold")
    for change in document["consumer_changes"]:
        for name, before, after in change["settings"]:
            shown = f"{_default(before)} → {_default(after)}"
            yield Line(f"    {one_line(change['subscription'])}  {name}  {shown}")
    yield Line()


def _default(value: Any) -> str:
    return "default" if value is None else words.value_text(value)


def _unmanaged(document: Json) -> Iterator[Line]:
    names = document["unmanaged"]
    if not names:
        return
    yield Line("Unmanaged (no file declares them, kodoctl never touches them):", "dim")
    for name in names[:MAX_UNMANAGED]:
        yield Line(f"    {one_line(name)}", "dim")
    if len(names) > MAX_UNMANAGED:
        yield Line(f"    … and {len(names) - MAX_UNMANAGED} more (--format json lists all)", "dim")
    yield Line()


def _findings(document: Json) -> Iterator[Line]:
    for finding in document["findings"]:
        style = {"error": "bold red", "warning": "yellow"}.get(finding["severity"], "dim")
        place = f" at {finding['where'][0]}:{finding['where'][1]}" if finding["where"] else ""
        yield Line(
            f"{finding['severity'].capitalize()}: {one_line(finding['summary'])} [{finding['code']}]{place}", style
        )
        yield Line(f"  {one_line(finding['detail'], 2000)}")
    if document["refused"]:
        yield Line()
        yield Line("This plan is refused: nothing can be applied until the errors above are settled.", "bold red")

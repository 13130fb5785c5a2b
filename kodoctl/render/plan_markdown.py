"""A plan for a pull request: fits one comment (65,536 characters), destructive items first and never cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from kodoctl.render import plan_words as words
from kodoctl.render.safe import code, markdown

Json = dict[str, Any]
LIMIT: Final = 65_536
_ROOM: Final = 400  # for the sentence that says what was cut


def plan_markdown(document: Json, target: str, *, limit: int = LIMIT) -> str:
    """Sections are added while they fit; what does not is counted and points to the artifact."""
    head = "\n".join(_head(document, target))
    parts, cut = [head], 0
    used = len(head)
    for title, rows in _sections(document):
        block = "\n".join(["", "<details>", f"<summary>{title}</summary>", "", *rows, "", "</details>"])
        if used + len(block) + _ROOM > limit:
            cut += len(rows)
            continue
        parts.append(block)
        used += len(block)
    if cut:
        parts.append(f"\n{cut} lines did not fit: the plan file (artifact) has all of them.")
    return "\n".join(parts)


def _head(document: Json, target: str) -> Iterator[str]:
    verdict = "⛔ refused" if document["refused"] else "no changes" if not document["changes"] else "changes"
    yield f"### kodoctl plan: {verdict}"
    yield ""
    yield markdown(words.cluster_line(document, target))
    yield ""
    yield f"**{words.summary_line(document)}**"
    dangerous = [change for change in document["changes"] if change["action"] == "delete" or change["dangers"]]
    if dangerous:
        yield ""
        yield "**Destructive**"
        yield ""
        for change in dangerous:
            yield f"- {words.symbol(change)} {code(change['address'])} {words.VERBS[change['action']]}"
            for danger in change["dangers"]:
                yield f"  - {danger['code']} {danger['severity']}: {markdown(danger['detail'])}"
    for finding in document["findings"]:
        yield ""
        yield f"- **{finding['severity']}** {finding['code']} {markdown(finding['summary'])}: {markdown(finding['detail'])}"


def _sections(document: Json) -> Iterator[tuple[str, list[str]]]:
    by_namespace: dict[str, list[Json]] = defaultdict(list)
    for change in document["changes"]:
        by_namespace[_namespace(change["address"])].append(change)
    for namespace, changes in sorted(by_namespace.items()):
        rows = ["```diff", *(line for change in changes for line in _diff(change)), "```"]
        yield f"{markdown(namespace)}: {len(changes)} changes", rows
    if document["consumer_changes"]:
        rows = [
            f"- {code(change['subscription'])} {markdown(name)}: {code(words.value_text(before))} → {code(words.value_text(after))}"
            for change in document["consumer_changes"]
            for name, before, after in change["settings"]
        ]
        yield "Only consumers read these: deploy them", rows
    if document["unmanaged"]:
        yield f"{len(document['unmanaged'])} unmanaged objects", [f"- {code(name)}" for name in document["unmanaged"]]


def _namespace(address: str) -> str:
    name = address.partition(".")[2].removeprefix("persistent://")
    return "/".join(name.split("/")[:2])


def _diff(change: Json) -> Iterator[str]:
    mark = {"create": "+", "delete": "-", "update": "!", "adopt": "#", "forget": "#"}[change["action"]]
    yield f"{mark} {_fenced(change['address'])} {words.VERBS[change['action']]}"
    match change["action"]:
        case "create":
            if text := words.created_text(change["after"]):
                yield f"{mark}     {_fenced(text)}"
        case "update":
            for field in change["fields"]:
                yield f"{mark}     {words.field_name(field['name'])}: {_fenced(words.field_text(field))}"
        case _:
            pass


def _fenced(text: str) -> str:
    """Nothing inside may end the fence."""
    return text.replace("```", "'''")

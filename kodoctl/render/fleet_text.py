"""A plan over several clusters: changes that some clusters share are shown once, and differences object by
object.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kodoctl.documents.plan_actions import Action
from kodoctl.render import plan_words as words
from kodoctl.render.annotations import code_quality
from kodoctl.render.html_page import page
from kodoctl.render.plan_annotations import finding_annotation, plan_annotations, plan_github, report_path
from kodoctl.render.plan_html import page_finding, plan_parts
from kodoctl.render.plan_markdown import LIMIT, plan_markdown
from kodoctl.render.plan_text import body_lines, finding_lines
from kodoctl.text.escaping import code, markdown, one_line
from kodoctl.text.formatting import MAX_LISTED, many
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.plan.fleet_document import DifferingChange, FleetDocument, FleetMember
    from kodoctl.plan.plan_document import PlanDocument

ORDER = "Order: what is made or changed first, in all clusters; deletes last, once all of that is done everywhere."
_NOTE: Final = 2_000  # bytes that are kept for the sentence about plans that do not fit
_SAME = (
    "environment",
    "changes",
    "findings",
    "unmanaged",
    "elsewhere",
    "consumer_changes",
    "summary",
    "part",
    "refused",
)


def fleet_lines(document: FleetDocument, targets: Mapping[str, str], *, verbose: bool = False) -> Iterator[Line]:
    """Lines of the plan of several clusters: plans, each text once for all clusters that have it; clusters without a
    plan, and why; the first 20 objects that differ; the result of each cluster. `targets`: context -> text that says
    how its cluster was reached, for each context with a plan; `verbose`: every topic with the same changes is named,
    else only the first 3 of more than 8.
    """
    yield Line(_head(document), "bold")
    yield Line()
    for plans in _groups(document):
        yield Line(f"--- {_context_names(plans)}", "bold cyan")
        for context, plan in plans.items():
            yield Line(words.cluster_line(plan, targets[context]), "bold")
        yield from body_lines(_common(plans), verbose=verbose)
        yield Line()
    for member in _unreached_clusters(document):
        yield Line(f"--- {one_line(member['context'])}: not planned", "bold red")
        for problem in member["problems"]:
            yield from finding_lines(problem)
        yield Line()
    yield from _differences(document)
    yield from _verdict(document)


def _head(document: FleetDocument) -> str:
    return (
        f"One plan over {many(len(document['clusters']), 'cluster')}: {_context_names(_contexts(document['clusters']))}"
    )


def _contexts(members: Iterable[FleetMember]) -> list[str]:
    return [member["context"] for member in members]


def _context_names(contexts: Iterable[str]) -> str:
    return ", ".join(map(one_line, contexts))


def _groups(document: FleetDocument) -> list[dict[str, PlanDocument]]:
    """Plans by context, grouped: plans of one group have the same text. The order is that in which clusters were named."""
    groups: dict[str, dict[str, PlanDocument]] = {}
    for member in document["clusters"]:
        if (plan := member["plan"]) is not None:
            groups.setdefault(_key(plan), {})[member["context"]] = plan
    return list(groups.values())


def _common(plans: Mapping[str, PlanDocument]) -> PlanDocument:
    """The plan that is shown for all of a group: its first one."""
    return next(iter(plans.values()))


def _key(plan: PlanDocument) -> str:
    changes = [{**change, "evidence": None} for change in plan["changes"]]
    return json.dumps([{**plan, "changes": changes}[name] for name in _SAME], sort_keys=True)


def _unreached_clusters(document: FleetDocument) -> list[FleetMember]:
    return [member for member in document["clusters"] if member["plan"] is None]


def _differences(document: FleetDocument) -> Iterator[Line]:
    found = document["differences"]
    if not found:
        return
    yield Line("Where the clusters differ:", "bold")
    for one in found[:MAX_LISTED]:
        yield Line(f"    {one_line(one['address'])}")
        width = max(len(one_line(context)) for context in one["clusters"])
        for context, changes in one["clusters"].items():
            lead = f"      {one_line(context):<{width}}  "
            yield Line(f"{lead}{_doing(changes)}", hang=len(lead) + 2)
    if len(found) > MAX_LISTED:
        yield Line(f"    … and {len(found) - MAX_LISTED} more (--format json lists all)", "dim")
    yield Line()


def _doing(changes: list[DifferingChange]) -> str:
    """Text of the changes that one cluster makes to an object, on one line."""
    return "; ".join(_did(change) for change in changes) or "as it is"


def _did(change: DifferingChange) -> str:
    made = [words.created_text(change["after"])] if change["after"] else []
    fields = [f"{words.field_name(field['name'])} {words.field_text(field)}" for field in change["fields"]]
    changes = ", ".join(part for part in (*made, *fields) if part)
    return f"{Action(change['action']).symbol} {change['action']}{f': {changes}' if changes else ''}"


def _verdict(document: FleetDocument) -> Iterator[Line]:
    if document["deletes"]:
        yield Line(ORDER)
    width = max(len(one_line(member["context"])) for member in document["clusters"])
    for member in document["clusters"]:
        lead = f"{one_line(member['context']):<{width}}  "
        yield Line(f"{lead}{summary(member)}", "bold", len(lead) + 2)
    if document["refused"]:
        yield Line("Refused in one cluster is refused in all: nothing can be applied.", "bold red")
    elif _unreached_clusters(document):
        yield Line(_without(document), "bold yellow")


def summary(member: FleetMember) -> str:
    """Text of one cluster's plan on one line: its counts, after `refused.` if it is; `not planned` without a plan."""
    if member["plan"] is None:
        return "not planned"
    return f"{'refused. ' if member['plan']['refused'] else ''}{words.summary_line(member['plan'])}"


def _without(document: FleetDocument) -> str:
    lead = f"Without {_context_names(_contexts(_unreached_clusters(document)))}: the others can be applied"
    exception = ", but for their deletes, which wait for all" if document["deletes"] else ""
    return f"{lead}{exception}. Plan again once it answers, or leave its --context out."


def fleet_markdown(document: FleetDocument, targets: Mapping[str, str]) -> str:
    """Markdown of the plans of several clusters, for one comment of at most LIMIT bytes: the result of each cluster,
    clusters without a plan and why, the first objects that differ, then the plan of each group of clusters with the
    same text, cut to an equal share of the room that is left. Left-out parts are counted, and a warning names the
    first clusters whose plan does not fit. `targets`: context -> text that says how its cluster was reached.
    """
    groups = _groups(document)
    rows = [f"- {code(member['context'])} {markdown(summary(member))}" for member in document["clusters"]]
    cut = _fitting(rows, LIMIT // 8, len(rows), "cluster")
    parts = [f"## {markdown(_head(document))}", "\n".join(cut), *_markdown_rest(document)]
    room, omitted = LIMIT - sum(map(_size, parts)) - _NOTE, list[str]()
    for number, plans in enumerate(groups):
        title = f"## {markdown(_context_names(plans))}"
        share = room // (len(groups) - number) - _size(title)
        text = f"{title}\n\n{plan_markdown(_common(plans), _target_names(plans, targets), limit=share)}"
        if _size(text) <= room:
            parts.append(text)
            room -= _size(text)
        else:
            omitted += plans
    if omitted:
        names = markdown(_context_names(omitted), 100)
        lead = f"⚠️ **The plans of {many(len(omitted), 'cluster')} could not be shown in a comment ({names})"
        parts.insert(1, f"{lead}: read the plan file (artifact) before you approve.**")
    return "\n\n".join(parts)


def _size(part: str) -> int:
    """Bytes of a part, with the empty line behind it."""
    return len(part.encode()) + 2


def _fitting(lines: Iterable[str], room: int, total: int, noun: str) -> list[str]:
    """The first of these lines that fit into `room` bytes, then the number of the others, of `total`."""
    shown = []
    for line in lines:
        room -= _size(line)
        if room < 0:
            break
        shown.append(line)
    rest = total - len(shown)
    return [*shown, f"- … and {many(rest, f'more {noun}')}"] if rest else shown


def _target_names(contexts: Iterable[str], targets: Mapping[str, str]) -> str:
    return "; ".join(targets[context] for context in contexts)


def _markdown_rest(document: FleetDocument) -> Iterator[str]:
    unreached = [_unplanned(member) for member in _unreached_clusters(document)]
    yield from _fitting(unreached, LIMIT // 8, len(unreached), "unplanned cluster")
    if unreached and not document["refused"]:
        yield markdown(_without(document))
    found = document["differences"]
    if found:
        rows = [
            f"- {code(one['address'])}: "
            + "; ".join(f"{markdown(context)} {code(_doing(changes))}" for context, changes in one["clusters"].items())
            for one in found[:MAX_LISTED]
        ]
        yield "\n".join(["**Where the clusters differ**", "", *_fitting(rows, LIMIT // 4, len(found), "object")])
    if document["deletes"]:
        yield ORDER


def _unplanned(member: FleetMember) -> str:
    """Markdown of the reason why a cluster has no plan."""
    problems = "\n".join(f"{problem['summary']}: {problem['detail']}" for problem in member["problems"])
    text = markdown(problems.replace("\n", "; "))
    return f"**{markdown(member['context'])} not planned**: {text}"


def fleet_html(document: FleetDocument, targets: Mapping[str, str]) -> str:
    """An HTML page: each cluster's result, all objects that differ, clusters without a plan and why, and the whole plan
    of each group of clusters with the same text. `targets`: context -> text that says how its cluster was reached.
    """
    groups = _groups(document)
    counts: Counter[str] = Counter()
    for plans in groups:
        counts.update(_common(plans)["summary"])
    refused = "Refused in one cluster is refused in all: nothing can be applied." if document["refused"] else ""
    return page(
        "fleet.html.j2",
        title=_head(document),
        refused=document["refused"],
        rows=[(one_line(member["context"]), summary(member)) for member in document["clusters"]],
        verdict=refused or (_without(document) if _unreached_clusters(document) else ""),
        order=ORDER if document["deletes"] else "",
        differences=[
            (
                one_line(one["address"]),
                [(one_line(context), _doing(changes)) for context, changes in one["clusters"].items()],
            )
            for one in document["differences"]
        ],
        counts=counts,
        unreached=[
            (one_line(member["context"]), [page_finding(problem) for problem in member["problems"]])
            for member in _unreached_clusters(document)
        ],
        groups=[_page_group(plans, targets, f"plan-{number}-") for number, plans in enumerate(groups, 1)],
        version=document["kodoctl_version"],
        seal=document["seal"],
    )


def _page_group(plans: Mapping[str, PlanDocument], targets: Mapping[str, str], anchor: str) -> dict[str, Any]:
    clusters = [words.cluster_line(plan, targets[context]) for context, plan in plans.items()]
    return {"name": _context_names(plans), "clusters": clusters, "plan": plan_parts(_common(plans), "", anchor=anchor)}


def fleet_github(document: FleetDocument, targets: Mapping[str, str]) -> str:
    """Annotations and lines for the log (`plan_github`) of each group of clusters with the same text, followed by the
    summary of each cluster. A cluster without a plan has only its summary. `targets`: context -> text that says how its
    cluster was reached.
    """
    groups = [plan_github(_common(plans), _target_names(plans, targets)) for plans in _groups(document)]
    rows = [f"{one_line(member['context'])}: {summary(member)}" for member in document["clusters"]]
    return "\n".join([*groups, *rows])


def fleet_gitlab(document: FleetDocument, _: Mapping[str, str]) -> str:
    """JSON text of a Code Quality report of the plan of each group of clusters with the same text, and of the problems
    of clusters without a plan.
    """
    plans = [_common(plans) for plans in _groups(document)]
    problems = [problem for member in _unreached_clusters(document) for problem in member["problems"]]
    annotations = [*chain.from_iterable(map(plan_annotations, plans)), *map(finding_annotation, problems)]
    return code_quality(annotations, report_path(plans[0]) if plans else ".")

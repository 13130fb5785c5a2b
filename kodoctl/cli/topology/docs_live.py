"""Live part of a catalogue: backlogs, consumers, the last apply, and the policies above the topics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kodoctl.cli.common.command_target import shown_target
from kodoctl.errors import KodoctlError
from kodoctl.pulsar.admin.admin import must, namespace_path
from kodoctl.pulsar.admin.broker_info import read_server
from kodoctl.pulsar.control.journal import read_journal
from kodoctl.pulsar.inventory.policy_requests import read_namespace_policies
from kodoctl.status.status_reader import read_lanes
from kodoctl.topology.model.policies import to_json

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.broker_info import Server
    from kodoctl.pulsar.session import Session
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.names import NamespaceName

Json = dict[str, Any]
_NO_ANSWER: Final = "K514"  # code of the error


def with_live(session: Session, document: Json, expansions: Sequence[Expansion]) -> Json:
    """Returns the document of a catalogue with facts of the cluster in the keys `live`. Blocks; raises KodoctlError if
    no broker answers.

    The document's `live` has `target`, the time `at` in ms since the epoch, and `broker`, the policies that the
    broker's configuration sets (None: the facts about the broker cannot be read; {}: it sets none, or this role may not
    read the configuration). The `live` of each topology has its `lanes`, the list `unread` of topics with the reason,
    and facts about its namespace: its `policies` (None: they cannot be read; those with a request of their own are left
    out), the last apply `applied` (None: there is none, or it is unknown), and `unknown`, the reason why the last apply
    is unknown (else "").
    """
    at = int(time.time() * 1000)
    server = _server(session)
    namespaces: dict[NamespaceName, Json] = {}
    by_file: dict[str, Json] = {}
    for one in expansions:
        if one.namespace not in namespaces:
            namespaces[one.namespace] = _namespace(session, one.namespace, server)
        (status,), unread = read_lanes(session.admin, [one], lambda: False)
        by_file[one.topology.source.name] = {
            "lanes": [asdict(lane) for lane in status.lanes],
            "unread": [asdict(topic) for topic in unread],
            **namespaces[one.namespace],
        }
    if any(facts["unread"] for facts in by_file.values()):
        # If the broker no longer answers, this raises: the earlier pages, which have figures, stay.
        _server(session)
    topologies = [{**entry, "live": by_file[entry["file"]]} for entry in document["topologies"]]
    broker = None if server is None else _policies_json(server.defaults)
    return {
        **document,
        "topologies": topologies,
        "live": {"target": shown_target(session.connection), "at": at, "broker": broker},
    }


def _server(session: Session) -> Server | None:
    """The facts about the server; None if they cannot be read. Raises KodoctlError if no broker answers."""
    try:
        return read_server(session.admin)
    except KodoctlError as problem:
        if problem.diagnostics[0].code == _NO_ANSWER:
            raise
        return None


def _policies_json(policies: Any) -> Json:
    return {name: to_json(value) for name, value in policies.items()}


def _namespace(session: Session, namespace: NamespaceName, server: Server | None) -> Json:
    policies = None if server is None else _policies(session, namespace, server.cluster)
    try:
        applied, unknown = _last_apply(session, namespace)
    except KodoctlError as problem:
        first = problem.diagnostics[0]
        applied, unknown = None, f"{first.summary} [{first.code}]"
    return {"policies": policies, "applied": applied, "unknown": unknown}


def _policies(session: Session, namespace: NamespaceName, cluster: str) -> Json | None:
    """The policies of a namespace; None if they cannot be read."""
    try:
        dump = must(session.admin.call("GET", namespace_path(namespace)), f"reading namespace {namespace}")
        return _policies_json(read_namespace_policies(dump, cluster))
    except KodoctlError:
        return None


def _last_apply(session: Session, namespace: NamespaceName) -> tuple[Json | None, str]:
    """(the last apply, None: there is none or it is unknown; the reason why it is unknown, else "")."""
    from kodoctl.plan.history import parse, read_history

    found = read_history(map(parse, read_journal(session.admin, session.client, namespace)))
    if found.latest is None:
        return None, "a newer kodoctl carried it out" if found.newer else ""
    fields = ("id", "verb", "who", "began", "state", "commit")
    return {name: getattr(found.latest, name) for name in fields}, ""

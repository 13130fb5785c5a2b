"""Writes to functions and connectors: create, update, mark and delete one. Each function reads the object first, and
again until the object shows the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kodoctl.apply.deletes import refuse_stranger
from kodoctl.errors import ClusterError
from kodoctl.plan.field_diff import function_fields
from kodoctl.protocol.properties import OWNER_PROPERTY
from kodoctl.pulsar.admin.admin import Admin, functions_path, must
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, delete, is_done, poll_until, write_confirmed
from kodoctl.pulsar.admin.topic_stats import read_topic
from kodoctl.pulsar.inventory.evidence_reader import function_evidence, read_inputs
from kodoctl.pulsar.inventory.functions import options_form, options_of, read_function, request_form
from kodoctl.pulsar.values.live_objects import FunctionFacts
from kodoctl.text.formatting import many
from kodoctl.topology.resources import FunctionResource

if TYPE_CHECKING:
    from kodoctl.plan.changes import Delete
    from kodoctl.pulsar.values.live_objects import LiveObject

_NOT_SHOWN: Final = "written, and the worker does not show it as it was written: plan again"


def create_function(admin: Admin, function: FunctionResource, owner: str) -> None:
    """Creates a function with the marker `owner`, and waits until the worker shows it. Raises WriteFailedError if the
    function exists already (somebody created it since the plan), if its `package` is empty, or if the worker refuses it
    or does not show it as written (then it may exist); ClusterError if it cannot be read, or no worker answers.
    """
    if _read(admin, function) is not None:
        raise WriteFailedError("somebody created it since the plan: plan again")
    if not function.package:
        raise WriteFailedError("where its package is, is not known: declare it with its `package`")
    _write(admin, function, owner, {}, lambda: _read(admin, function))


def update_function(
    admin: Admin, before: FunctionResource, after: FunctionResource, owner: str, planned: str | None, hidden: str = ""
) -> None:
    """Updates a function, which restarts its instances, sets its marker to `owner`, and waits until the worker shows
    it. `planned`, `hidden`: its marker, and the digest of settings that are not shown, when the plan was checked.
    Raises WriteFailedError if the function is gone or changed since then, if its marker is neither `planned` nor
    `owner` now, if its runtime options cannot contain a marker, or if the worker refuses the update or does not show it
    as written (then it may be updated); ClusterError if it cannot be read at first, or if no worker answers.
    """
    found = _read_planned(admin, before, owner, planned)
    if found.resource != before or found.hidden != hidden:
        raise WriteFailedError("somebody changed it since the plan: plan again")
    options = _options(admin, before, owner, planned)
    _write(admin, after, owner, options, lambda: _read_planned(admin, after, owner, planned), before=before)


def mark_function(admin: Admin, function: FunctionResource, owner: str, planned: str | None) -> None:
    """Sets the marker of a function to `owner`, which restarts its instances. `planned`: the marker that the plan saw.
    Raises WriteFailedError if its marker is neither `planned` nor `owner` now, if it is gone, if its runtime options
    cannot contain a marker, or if the worker refuses the new marker or does not show it; ClusterError if the function
    cannot be read at first, or if no worker answers.
    """
    _read_planned(admin, function, owner, planned)
    marked = {**_options(admin, function, owner, planned), OWNER_PROPERTY: owner}
    body, kind = options_form(function, marked)

    def is_marked() -> bool:
        return _read_planned(admin, function, owner, planned).marker == owner

    write_confirmed(admin, "PUT", _path(function), body, content_type=kind, done=is_marked)
    if not _takes_effect(admin, function, is_marked):
        raise WriteFailedError(_NOT_SHOWN)


def delete_function(admin: Admin, change: Delete, *, marker: str | None, allowed: bool) -> None:
    """Deletes a function, and waits until it is gone; one that no longer exists is no error. If Pulsar deletes its
    subscription as well, waits up to 10 s for that, too, without an error if it remains.

    `marker`: its marker when the plan was checked, None: it had none, as most adopted functions; `allowed`: a user
    allowed the loss. Raises WriteFailedError if the function has another marker, if it is not deleted, or, unless
    `allowed`, if instances run or unread messages would be lost, or if either is not known; ClusterError if the
    function cannot be read at first, or if no worker answers.
    """
    function = change.before
    assert isinstance(function, FunctionResource)

    def look() -> Mapping[str, str] | None:
        now = _read(admin, function)
        if now is None:
            return None
        refuse_stranger(now.marker, marker)
        assert isinstance(now.facts, FunctionFacts)
        if not allowed:
            _refuse_use(admin, function, now.facts)
        return {}

    now = _read(admin, function)
    delete(admin, _path(function), look, final=frozenset({404}))
    if not _takes_effect(admin, function, lambda: _read(admin, function) is None):
        raise WriteFailedError("the worker did not delete it")
    if now is not None and isinstance(now.facts, FunctionFacts) and now.facts.cleans_up:
        poll_until(lambda: is_done(lambda: not _has_subscription(admin, function)))  # its topics may be deleted next


def _takes_effect(admin: Admin, function: FunctionResource, done: Callable[[], bool]) -> bool:
    """Calls `done` again and again for 10 s, and returns True as soon as it does, else False. If the function cannot be
    read meanwhile, waits as long as `admin.waits` allows, and then raises WriteFailedError.
    """
    with admin.waits.during(f"{function.address}: not known yet whether the request took effect") as wait:
        while True:
            try:
                return poll_until(done)
            except ClusterError as problem:
                why = problem.diagnostics[0].detail
                if not wait.again(why):
                    raise WriteFailedError(f"whether it took effect is not known: {why}; plan again") from None


def _refuse_use(admin: Admin, function: FunctionResource, facts: FunctionFacts) -> None:
    """Raises WriteFailedError if instances run or messages wait, or if either is not known."""
    if facts.running != 0:
        running = "whether instances run is not known" if facts.running is None else "instances run"
        raise WriteFailedError(f"{running}: plan again and allow it")
    evidence = function_evidence(admin, function) if facts.cleans_up else None
    if evidence is not None and (evidence.entries or evidence.unread):
        waiting = evidence.unread or many(evidence.entries, "unread entry", "unread entries")
        raise WriteFailedError(f"its subscription: {waiting}, which nobody allowed to destroy: plan again")


def _has_subscription(admin: Admin, function: FunctionResource) -> bool:
    readings = [read_topic(admin, topic) for topic in read_inputs(admin, function)]
    return any(one.name == function.subscription for found in readings if found for one in found.subscriptions)


def _write(
    admin: Admin,
    function: FunctionResource,
    owner: str,
    options: Mapping[str, object],
    read: Callable[[], LiveObject | None],
    *,
    before: FunctionResource | None = None,
) -> None:
    """Creates a function, or updates it if `before` is given, and waits until the worker shows it. `read` is called
    before a try is repeated, and raises WriteFailedError if it must not be repeated.
    """
    body, kind = request_form(function, owner, options, before)

    def is_written() -> bool:
        now = read()
        if now is None or now.marker != owner or not isinstance(now.resource, FunctionResource):
            return False
        return not function_fields(function, now.resource)

    path = _path(function)
    write_confirmed(admin, "POST" if before is None else "PUT", path, body, content_type=kind, done=is_written)
    if not _takes_effect(admin, function, is_written):
        raise WriteFailedError(_NOT_SHOWN)


def _options(admin: Admin, function: FunctionResource, owner: str, planned: str | None) -> dict[str, object]:
    """The runtime options of a function. Raises WriteFailedError if another owner than these has
    marked it meanwhile.
    """
    reply = admin.call("GET", _path(function))
    found = options_of(must(reply, f"reading {function.address}"))
    if found is None:
        raise WriteFailedError("its customRuntimeOptions are no JSON object, so that kodoctl cannot mark it")
    marker = found.get(OWNER_PROPERTY)
    _refuse_other(marker if isinstance(marker, str) else None, owner, planned)
    return found


def _read_planned(admin: Admin, function: FunctionResource, owner: str, planned: str | None) -> LiveObject:
    """The function as it is. Raises WriteFailedError if it is gone, or marked by another owner than these."""
    found = _read(admin, function)
    if found is None:
        raise WriteFailedError("it is gone since the plan: plan again")
    _refuse_other(found.marker, owner, planned)
    return found


def _refuse_other(marker: str | None, owner: str, planned: str | None) -> None:
    """Raises WriteFailedError unless the marker is one of these owners."""
    if marker not in (planned, owner):
        by_whom = f"it belongs to {marker!r}" if marker else "somebody made it anew"
        raise WriteFailedError(f"{by_whom} since the plan: plan again")


def _read(admin: Admin, function: FunctionResource) -> LiveObject | None:
    return read_function(admin, function.kind, function.namespace, function.name, function)


def _path(function: FunctionResource) -> str:
    return functions_path(function.kind, function.namespace, function.name)

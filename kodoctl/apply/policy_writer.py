"""Writer of one policy of a topic or namespace. A DELETE is sent only if the broker shows the planned value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kodoctl.plan.field_diff import is_equal
from kodoctl.pulsar.admin.admin import NOT_SENT, Admin
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, delete, poll_until, write_confirmed
from kodoctl.pulsar.inventory.policy_requests import Write, is_on_the_way

if TYPE_CHECKING:
    from kodoctl.plan.policy_write_order import PolicyWrite
    from kodoctl.topology.model.policies import PolicyValue


def write_policy(
    admin: Admin, path: str, step: PolicyWrite, requests: Iterable[Write], now: Callable[[], PolicyValue | None]
) -> None:
    """Sends the requests that write one policy of the object at `path`; the caller has to read the result. `now`: reads
    the policy. Raises WriteFailedError if a request fails, or if, before a request that unsets the policy or a part of
    it, the live value is neither `step.before` nor a part of that, nor `step.after`; ClusterError if the policy cannot
    be read, or no broker answers.
    """

    def is_written() -> bool:
        return is_equal(step.name, now(), step.after)

    def as_planned() -> bool:
        shown = now()
        return is_equal(step.name, shown, step.before) or is_on_the_way(shown, step.before)

    def look(query: Mapping[str, str]) -> Mapping[str, str] | None:
        if is_written():
            return None
        if not poll_until(as_planned):  # another broker may show late what was written right before
            difference = f"planned from {step.before}, now {now()}"
            raise WriteFailedError(f"{step.name} changed since the plan: {difference}; plan again")
        return query

    for one in requests:
        where, query = f"{path}/{one.path}", dict(one.query)
        if one.method == "DELETE":
            delete(admin, where, partial(look, query))
            continue
        try:
            write_confirmed(
                admin, one.method, where, one.body if one.has_body else NOT_SENT, query=query or None, done=is_written
            )
        except WriteFailedError as problem:
            if step.name == "replication" and "Namespace not found" in str(problem):  # an answer of the other cluster
                raise WriteFailedError(f"{problem}; each cluster of `replication` has to have the namespace") from None
            raise

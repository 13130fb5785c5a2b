"""Live orders of one subscription: made, compared with the file, stored on the cluster and taken back."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import tell_wait
from kodoctl.errors import UsageError, error
from kodoctl.host.host_facts import user_name
from kodoctl.protocol.overrides import Override, OverrideKind, why_invalid, with_override
from kodoctl.topology.units import Duration, UnitError

if TYPE_CHECKING:
    from kodo_consumer.core.values.limit_policy import Limit
    from kodo_consumer.core.values.policy import Policy
    from kodoctl.pulsar.control.override_store import OverrideStore

_FILLS: Final = (
    "Note: this subscription moves nobody aside (isolate). Once messages of paused tenants fill the look-ahead of a"
    " worker, it reads nothing more, of anybody, until they resume."
)


@dataclass(frozen=True, slots=True)
class LiveOrders:
    """Live orders of a subscription: instructions of people to running workers, each with an end. `policy`: policy of
    the subscription by the file; `store`: orders on the cluster.
    """

    policy: Policy
    store: OverrideStore

    @property
    def limits(self) -> list[tuple[str, str, str, str, str]]:
        """Limits of the file that an order may change, each as (kind, property or "" for one limit of all, lanes or ""
        for all lanes, title, value by the file), all texts.
        """
        from kodo_consumer.core.values.limit_policy import kind_of, title_of

        return [
            (kind_of(one), one.by or "", str(one.within), title_of(one), _value_text(one)) for one in self.policy.limits
        ]

    def check(self, order: Override) -> None:
        """Raises UsageError (K780) if workers of the subscription cannot follow the order."""
        from kodo_consumer.core.upkeep.override_state import why_not_followed

        if reason := why_not_followed(order, self.policy):
            raise cannot(reason)

    def check_level(self, to: str) -> None:
        """Raises UsageError (K780), which names the levels of the topic, if `to` is the name of no level that any topic
        may have. The error of the order itself would name all of those.
        """
        from kodo_consumer.core.upkeep.move_orders import why_no_level
        from kodoctl.topology.names import Level

        if to not in set(Level):
            raise cannot(why_no_level(to, self.policy))

    def give(
        self, order: Override, check: Callable[[tuple[Override, ...]], object] = lambda _: None
    ) -> tuple[Override, ...]:
        """Stores an order on the cluster, in place of one about the same subject (`Override.concerns`), and returns all
        orders in force. `check` gets all orders that would be in force, at each try to store them, and raises if they
        conflict. Raises UsageError, ClusterError.
        """
        from kodoctl.protocol.overrides import active_overrides

        def add_order(orders: tuple[Override, ...]) -> tuple[Override, ...]:
            together = with_override(orders, order)
            check(active_overrides(together, now_ms()))
            return together

        self.check(order)
        return self.store.change(add_order, now_ms())

    def take_back(self, concerns: tuple[str, ...]) -> tuple[Override, ...]:
        """Removes the order about this subject (`Override.concerns`) from the cluster, and returns the others in force.
        Raises UsageError (K780) if there is none, ClusterError.
        """
        if all(order.concerns != concerns for order in self.store.read(now_ms())):
            raise cannot("there is no such order; `kodo-consumer steer` shows those in force")
        gone: Callable[[Any], Any] = lambda orders: tuple(one for one in orders if one.concerns != concerns)  # noqa: E731
        return self.store.change(gone, now_ms())

    def notes(self, order: Override) -> list[str]:
        """Lines of text for people about the consequences of an order: of a move the shares of the level, of a pause of
        a tenant a warning if its messages can fill the look-ahead; often none.
        """
        from kodo_consumer.core.upkeep.move_orders import share_lines

        if order.what is OverrideKind.MOVE:
            return list(share_lines(self.policy, order))
        fills = order.what is OverrideKind.PAUSE and order.tenant
        return [_FILLS] if fills and self.policy.isolation_target(self.policy.ground_lane.level) is None else []


def _value_text(limit: Limit) -> str:
    """Value of a limit as the file writes it: `100/s`, `1500/h`, or a number of handlers."""
    from kodo_consumer.core.values.limit_policy import Concurrency, Quota
    from kodoctl.topology.units import Rate

    if isinstance(limit, Concurrency):
        return str(limit.limit)
    pace = limit if isinstance(limit, Quota) else limit.pace
    return str(Rate(pace.amount, Duration(pace.period)))


@contextmanager
def open_orders(topology: str, topic: str, subscription: str, place: ConnectionOptions) -> Iterator[LiveOrders]:
    """Context with the live orders of a subscription of the file `topology`. Raises KodoctlError."""
    from kodo_consumer.policy_builder import policy_of
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
    from kodoctl.pulsar.control.override_store import OverrideStore

    surroundings = Environment.of(**place)
    policy = policy_of(surroundings.topology(topology), topic, subscription)
    with closing(HttpAdmin(surroundings.connection(), waits=WaitMonitor(tell_wait))) as admin:
        yield LiveOrders(policy, OverrideStore(admin, policy.ground_lane.topic, subscription, who=_who()))


def new_order(what: OverrideKind, lasting: str, why: str, **details: str) -> Override:
    """Makes an order that begins now, and stores nothing. `lasting`: duration such as `1h`; `why`: reason for people,
    cut to 200 characters; `details`: other fields of `Override`. Raises UsageError (K780) if the order is invalid.
    """
    try:
        span = int(Duration.parse(lasting))
    except UnitError as problem:
        raise cannot(str(problem)) from None
    now = now_ms()
    order = Override(what, now, now + span, _who(), why[:200], **details)
    if problem_text := why_invalid(order) or ("" if span else "it would be over at once"):
        raise cannot(problem_text)
    return order


def cannot(detail: str) -> UsageError:
    """Returns the error K780 of an order that cannot be given; the caller raises it."""
    return UsageError(error("K780", "invalid live order", detail))


def now_ms() -> int:
    """The time now in ms since the epoch."""
    return time.time_ns() // 1_000_000


def _who() -> str:
    return f"{user_name()}@{socket.gethostname()}"[:200]

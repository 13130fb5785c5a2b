"""Send target: a ready topic as those who send to it see it, made by kodo_consumer.policy_builder from a topology."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kodo_consumer.core.values.envelope import Level
from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.core.values.route_table import DispatchTable


@dataclass(frozen=True, slots=True)
class SendTarget:
    """A ready topic as its producers see it. `schema`: of payloads, None: the file declares none, and any payload fits.
    `properties`: "required" or "optional" by name; empty: any may be sent but the platform's own. `ordered`: a reader
    keeps order within a key; `by_key`: readers share it by key, so that batches must not mix keys. `undelayed`: names
    of the subscriptions to which Pulsar delivers delayed messages at once, which are exclusive and failover ones;
    `ttl`: ms after which messages expire, 0: the file declares no time. `dispatch` None: each message goes to the level
    that its sender names.
    """

    topic: str
    schema: Mapping[str, Any] | None
    properties: Mapping[str, str]
    by_key: bool
    ordered: bool
    payload_type: Literal["json", "avro"] = "json"
    largest: Mapping[str, int] = field(default_factory=dict)  # bytes a message may have, by full topic, where declared
    compression: str = ""  # algorithm of its messages; "": none
    dispatch: DispatchTable | None = field(default=None, compare=False)  # routes of those who read it
    fair_by: str | None = None
    ground: str = ""
    level: Level = Level.L1
    undelayed: tuple[str, ...] = ()
    ttl: int = 0


def level_refusal(ground: str, level: str, active: Iterable[str], *, draining: bool) -> UsageError:
    """Returns the error (K709) for a level of a ground topic that takes no messages. `active`: levels that take some;
    `draining`: the file drains the level.
    """
    why = " (it is draining)" if draining else ""
    detail = f"{ground} takes messages on {', '.join(active)}, not on {level}{why}"
    return UsageError(error("K709", "level takes no messages", detail))

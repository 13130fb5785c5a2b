"""Release of messages that wait because of a limit: their lanes, their condition, and the command of kodoctl for it.

Messages over a rate or a quota wait in PENDING and BLOCKING (in RETRYING after the last attempt there). The broker
keeps them until they are due, even if the limit changes meanwhile. Messages that wait in the memory of a worker need no
release: the worker checks the limit again as soon as it applies the order.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.limit_policy import NOBODY, Limit, kind_of
from kodoctl.cli.common.console import finish, say
from kodoctl.errors import ExitCode
from kodoctl.host.programs import python_command
from kodoctl.protocol.properties import OVER_LIMIT_REASON

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.sending.environment import ConnectionOptions
    from kodoctl.protocol.overrides import Override

_FLAGS: Final = ("env", "context", "admin_url", "broker_url", "token_file", "tls_cert", "tls_key", "tls_ca")


def release_waiting(
    policy: Policy, order: Override, of: Mapping[str, str], place: ConnectionOptions, *, because: str
) -> None:
    """Runs `kodoctl waiting release`, as a child process, for the messages that `condition_of` selects in the lanes of
    `lanes_of_waits`, and waits for its end; if its exit code is not 0, ends this process with that code (1 if a signal
    ended the child). Ctrl-C is left to the child. Only prints a note if no lane can have such messages. `of`: the
    command's arguments by `topology`, `topic` and `subscription`; `because`: reason for the record. `order`: its limit
    must be in the policy.
    """
    lanes = lanes_of_waits(policy, order)
    if not lanes:
        say("Nothing waits elsewhere because of this limit: workers ask it again as soon as they follow the order.")
        return
    with subprocess.Popen(release_command(policy, order, lanes, of, place, because)) as child:  # noqa: S603  # our own program
        while True:
            try:
                code = child.wait()
                break
            except KeyboardInterrupt:
                continue
    if code:
        finish(code if code > 0 else ExitCode.ERROR)


def lanes_of_waits(policy: Policy, order: Override) -> tuple[str, ...]:
    """Names of the lanes (LEVEL/STATE) in which messages may wait because of the limit of an order; () if they wait
    only in the memory of workers.
    """
    limit = limit_of(policy, order)
    found: dict[str, None] = {}
    for lane in policy.lanes:
        if not limit.within.has(lane.level, lane.state):
            continue
        targets = list(policy.limit_targets(lane.level, lane.state, type(limit)))
        if targets and (retrying := policy.target(lane.level, State.RETRYING)) is not None:
            targets.append(retrying)
        found.update(dict.fromkeys(f"{target.level}/{target.state}" for target in targets))
    return tuple(found)


def limit_of(policy: Policy, order: Override) -> Limit:
    """The limit of the policy that an order changes. Raises StopIteration if the policy lacks it."""
    named = order.limit, order.by, order.within
    return next(one for one in policy.limits if (kind_of(one), one.by or "", str(one.within)) == named)


def condition_of(policy: Policy, order: Override) -> str:
    """Condition for `--where` of `kodoctl waiting release`: messages that wait because of a limit, whichever it is,
    with the value that the order names; if it names none, with any value that has no limit of its own in the file. If
    the order's limit has no property, the condition is for all messages that wait because of a limit.
    """
    over = f"reason = {_text(OVER_LIMIT_REASON)}"
    if not order.by:
        return over
    fact = _fact(policy, order.by)
    if order.value:
        return f"{over} AND {fact} = {_text(order.value)}"
    own = ", ".join(_text(value) for value in sorted(limit_of(policy, order).overrides))
    return f"{over} AND {fact} NOT IN ({own})" if own else over


def release_command(
    policy: Policy,
    order: Override,
    lanes: Sequence[str],
    of: Mapping[str, str],
    place: ConnectionOptions,
    because: str,
) -> list[str]:
    """Command line of `kodoctl waiting release`, to be run by this Python. `of`: keys `topology`, `topic` and
    `subscription`.
    """
    words = python_command("kodoctl", "waiting", "release", of["topology"])
    words += ["--topic", of["topic"], "--subscription", of["subscription"]]
    words += [word for lane in lanes for word in ("--lane", lane)]
    words += ["--where", condition_of(policy, order), "--because", because]
    given: Mapping[str, Any] = place
    for name in _FLAGS:
        if given.get(name):
            words += [f"--{name.replace('_', '-')}", str(given[name])]
    return words


def _fact(policy: Policy, by: str) -> str:
    if by == policy.fair_by:
        return "tenant"
    return f"coalesce({'key' if by == 'key' else f'properties[{_text(by)}]'}, {_text(NOBODY)})"


def _text(value: str) -> str:
    """A text as a literal of the language of conditions."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

"""Partitions that are missing in an answer about a whole topic: each is requested individually, and counts as absent
only if two sources agree.

The broker that answers for a whole topic asks each partition's owner, and answers 200 without the partitions whose
owner gave no answer. Measured on 3 brokers, Pulsar 4.2.4: from a broker's death until its ZooKeeper session ends (0 to
30 s) `partitioned-stats` lacks all partitions that it owned, and in an unload, a split or a move the partitions that
have no owner meanwhile: 372 of 1,880 answers. A request for such a partition is then answered with 412 or 500, or
redirected to the dead broker. Never seen in 20,000 answers: a 404 for a partition that exists; stats of a partition
without one of its subscriptions or a backlog; topic lists, partition counts or policies of a namespace that are
incomplete (any broker reads these from metadata).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin import Admin, AdminError, Reply, must, partition_path
from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S
from kodoctl.topology.names import PLAIN

if TYPE_CHECKING:
    from kodoctl.topology.names import TopicName

_NO_ANSWER: Final = frozenset({"K510", "K512", "K513", "K514"})  # a token that is refused is another matter
_ADVICE: Final = (
    "a broker has ended, or part of the namespace moves to another one: try again in a minute; if it stays so, the broker"
    " cannot load the topic, and its log says why"
)
_NO_DRIVER: Final = "No offloader found"
_MEND_DRIVER: Final = (
    "waiting does not mend this: install the driver on each broker, or take the policy off the topic by `pulsar-admin"
    " topicPolicies remove-offload-policies {}`"
)


class UnknownPartitionsError(ClusterError):
    """Nothing is known of some partitions, perhaps not even whether they exist, so no decision about their topic is
    safe. `numbers`: these partitions (PLAIN: the topic itself); `why`: the broker's answer; `lasting`: the broker named
    a cause that does not go away by waiting, or failed for longer than a fail-over takes; `reason`: text about the
    partitions, with `why`.
    """

    def __init__(self, topic: TopicName, numbers: Iterable[int], why: str, *, lasting: bool = False) -> None:
        self.topic, self.reason = topic, f"nothing is known of {_which(numbers)}: {why}"
        self.lasting = lasting
        if lasting and _NO_DRIVER in why:
            advice = _MEND_DRIVER.format(topic)
        else:
            advice = "waiting does not mend this; the broker's log says more" if lasting else _ADVICE
        super().__init__(error("K580", "part of a topic cannot be read", f"{topic}: {self.reason}; {advice}"))


class NotAwaitedError(UnknownPartitionsError):
    """Nothing is known of some partitions of a topic that does not concern the command. Raised without a second try,
    because the broker of these partitions may never answer.
    """


def may_be_left_out(problem: ClusterError, *, is_ours: bool, everything: bool, lenient: bool) -> bool:
    """True if a read goes on without the topic whose read raised `problem`. That needs an UnknownPartitionsError. A
    topic of ours is left out only in a comparison, and only if waiting does not mend the problem (`lasting`): else the
    verdict would be that of a moment in which a broker ended. Another topic is left out in a comparison, in an import,
    and for a NotAwaitedError.

    Args:
        is_ours: a file declares the topic, or a ledger of ours lists it.
        everything: the read is of an import.
        lenient: the read is of a comparison.
    """
    if not isinstance(problem, UnknownPartitionsError):
        return False
    if is_ours:
        return lenient and problem.lasting
    return lenient or everything or isinstance(problem, NotAwaitedError)


def _which(numbers: Iterable[int]) -> str:
    parts = [str(number) for number in numbers if number != PLAIN]
    return f"partition {', '.join(parts)}" if parts else "it"


def ask_each(admin: Admin, topic: TopicName, numbers: Iterable[int], what: str, **query: str) -> dict[int, Any]:
    """Sends `GET …-partition-N/<what>` for each of the partitions `numbers`, for PLAIN `GET …/<what>`; `query`: its
    parameters. Returns the decoded answers by partition number, without absent partitions. Raises
    UnknownPartitionsError as soon as a partition neither answers nor is absent, AdminError if the role lacks the right,
    and ClusterError for causes of this connection, such as a token that is not accepted.
    """
    asked, found = tuple(numbers), dict[int, Any]()
    for place, number in enumerate(asked):
        try:
            reply = _ask(admin, topic, number, what, query)
        except ClusterError as problem:
            forbidden = isinstance(problem, AdminError) and problem.reply.forbidden
            if forbidden or problem.diagnostics[0].code not in _NO_ANSWER:
                raise
            raise UnknownPartitionsError(topic, asked[place:], problem.diagnostics[0].detail) from None
        if reply.forbidden:
            must(reply, f"reading {topic.partition(number)}")
        if not reply.missing and not isinstance(reply.data if reply.ok else None, dict):
            failed_on = reply.status == 500 and admin.waits.limit >= FAIL_OVER_S  # `call` sent it again until then
            raise UnknownPartitionsError(topic, asked[place:], f"{reply}", lasting=reply.lasting or failed_on)
        if reply.ok:
            found[number] = reply.data
    return found


def _ask(admin: Admin, topic: TopicName, number: int, what: str, query: dict[str, str]) -> Reply:
    """The answer of one partition. A 404 comes from the partition's owner and must agree with the namespace's
    list, which is read from metadata. If they contradict each other, both are read once more, because the
    partition may have been created or deleted in between.
    """
    for _ in range(2):
        reply = admin.call("GET", f"{partition_path(topic, number)}/{what}", query=query or None)
        if not reply.missing or not _is_listed(admin, topic, number):
            return reply
    raise UnknownPartitionsError(topic, [number], f"{reply}, and its namespace's list of topics has it")


def _is_listed(admin: Admin, topic: TopicName, number: int) -> bool:
    reply = admin.call("GET", f"persistent/{topic.namespace}")
    return not reply.missing and topic.partition(number) in must(reply, f"listing topics of {topic.namespace}")

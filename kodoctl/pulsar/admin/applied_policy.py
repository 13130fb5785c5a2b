"""Effective policy of a topic: the value in force, whether it is set on the topic, its namespace or the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kodoctl.pulsar.admin.admin import Admin, topic_path

if TYPE_CHECKING:
    from kodoctl.topology.names import TopicName


class PolicyUnreadableError(Exception):
    """A broker did not return the policy in force. The text names the request and the broker's answer."""


def time_to_live(admin: Admin, topic: TopicName) -> int:
    """Reads after which time, in ms, the broker itself acknowledges messages that a subscription of the topic has not
    acknowledged; 0: never. Raises PolicyUnreadableError for every answer but success, and ClusterError if no broker
    answers.
    """
    return int(_applied(admin, topic, "messageTTL") or 0) * 1000


def backlog_limits(admin: Admin, topic: TopicName) -> tuple[int, int]:
    """Reads the backlog quota that holds for each partition of a topic: (bytes, age in ms), 0 where there is none.
    Raises PolicyUnreadableError for every answer but success, and ClusterError if no broker answers.
    """
    found = _applied(admin, topic, "backlogQuotaMap") or {}
    size = found.get("destination_storage") or {}
    age = found.get("message_age") or {}
    return max(0, int(size.get("limitSize") or 0)), max(0, int(age.get("limitTime") or 0)) * 1000


def _applied(admin: Admin, topic: TopicName, policy: str) -> Any:
    reply = admin.call("GET", f"{topic_path(topic)}/{policy}", query={"applied": "true"})
    if not reply.ok:
        raise PolicyUnreadableError(f"{reply}")
    return reply.data

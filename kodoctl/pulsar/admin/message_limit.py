"""Maximum message size of a topic.

If a message is larger, the broker closes the connection and the client sends the message again, for ever.
"""

from __future__ import annotations

from kodoctl.pulsar.admin.admin import Admin, topic_path
from kodoctl.topology.names import TopicName, whole_topic


def largest_message(admin: Admin, topic: str) -> int | None:
    """Reads the topic's own maximum message size in bytes, local or for all clusters; 0: the topic has none; None: the
    broker refused to answer this role. For the name of a partition, the limit of its topic.
    """
    path = f"{topic_path(TopicName.parse(whole_topic(topic)))}/maxMessageSize"
    found = 0
    for query in ({}, {"isGlobal": "true"}):  # in force, and not part of the answer without (measured)
        reply = admin.call("GET", path, query=query)
        if not reply.ok:
            return None
        found = found or int(reply.data or 0)
    return found

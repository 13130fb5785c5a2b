"""Maximum message size of a topic.

If a message is larger, the broker closes the connection and the client sends the message again, for ever.
"""

from __future__ import annotations

from kodoctl.pulsar.admin.admin import Admin, topic_path
from kodoctl.topology.names import TopicName, whole_topic


def largest_message(admin: Admin, topic: str) -> int | None:
    """Reads the maximum message size, in bytes, that is set on a topic for this cluster, or else for all clusters; 0 if
    none is set; None if the broker does not say it: the role may not read it, the topic does not exist, or the broker
    fails. `topic` may be a partition: the limit is that of its topic. Raises ClusterError if no broker answers.
    """
    path = f"{topic_path(TopicName.parse(whole_topic(topic)))}/maxMessageSize"
    found = 0
    for query in ({}, {"isGlobal": "true"}):  # in force, and not part of the answer without (measured)
        reply = admin.call("GET", path, query=query)
        if not reply.ok:
            return None
        found = found or int(reply.data or 0)
    return found

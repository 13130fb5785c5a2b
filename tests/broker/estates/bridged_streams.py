"""Streams that moved here from other systems: names of MQTT, of change data capture, of Kafka, and what its Java clients made.

Facts from public threads and pages: streamnative/mop#1532 (topics of MQTT are percent-encoded), apache/pulsar#18149 and
#22705 (retry and dead letter topics of single partitions), the Debezium pages of pulsar.apache.org (dotted names), and
KoP's internal topics. Names are invented.
"""

from __future__ import annotations

from datetime import timedelta

from tests.broker.estates.estate_builder import (
    A_GRANT,
    A_SCHEMA,
    ITS_TOPIC,
    JAVAS_RETRY,
    NO_FAMILY,
    TERMINATED,
    Estate,
    EstateBuilder,
)

_LONG = "plant-7." + "line.".join(f"{number:03}-" for number in range(22)) + "end"
_SITES = [f"site%2F{number}%2Ftemperature" for number in range(1, 23)]
_ODD = {
    "$SYS%2Fbroker%2Fuptime": 0, "Größe": 0, "two words": 0, "plus+hash#": 0, _LONG: 0, "Orders": 0, "orders": 0, "a:b=c": 0,
    "commands%2Fall": 3,
}  # fmt: skip


def _mqtt(to: EstateBuilder) -> None:
    to.topics("mqtt", dict.fromkeys(_SITES, 0) | _ODD)
    to.subscribe("mqtt/orders", "bridge #1", "bridge", "a+b")
    to.subscribe(f"mqtt/{_SITES[0]}", "archiver")
    to.subscribe(f"mqtt/{_LONG}", "archiver")
    to.set_on_topic(f"mqtt/{_SITES[1]}", "messageTTL", messageTTL="60")
    to.grant(f"mqtt/{_SITES[0]}", "gateway", "produce")
    for topic in (_SITES[2], "plus+hash#", "a:b=c"):
        to.schema(f"mqtt/{topic}", "STRING")
    to.set_on_namespace("mqtt", "delayedDelivery", {"tickTime": 500, "active": False, "maxDeliveryDelayInMillis": 0})
    to.set_on_namespace("mqtt", "messageTTL", 3600)


def _changes(to: EstateBuilder) -> None:
    to.topics("cdc", {f"shop.public.{table}": 1 for table in ("customers", "orders", "order_lines")})
    to.topics("cdc", {"schema-changes.shop": 0, "shop.public.stock": 3, "shop.public.returns": 4, "shop.public.old": 2})
    to.topics("cdc", {"shop.public.carts": 2, "connect-offsets": 0, "mirror": 0})
    to.set_on_topic("cdc/shop.public.old", "terminate/partitions")
    to.set_on_topic("cdc/shop.public.stock-partition-1", "terminate")
    to.set_on_topic("cdc/schema-changes.shop", "terminate")
    to.send("DELETE", f"persistent/{to.tenant}/cdc/shop.public.returns-partition-2", force="true")
    to.set_on_topic("cdc/shop.public.customers", "deduplicationEnabled", value=True)
    to.set_on_topic(
        "cdc/shop.public.carts", "delayedDelivery", {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0}
    )
    to.set_on_topic("cdc/connect-offsets", "compactionThreshold", 1024)
    to.send("PUT", f"persistent/{to.tenant}/cdc/mirror-shadow", {"PULSAR.SHADOW_SOURCE": to.full("cdc/mirror")})
    to.set_on_topic("cdc/mirror", "shadowTopics", [to.full("cdc/mirror-shadow")], "PUT")
    to.subscribe("cdc/shop.public.orders", "search", "warehouse", f"{to.tenant}/cdc/flatten")
    to.subscribe("cdc/shop.public.customers", "connect-jdbc-sink")
    to.subscribe("cdc/shop.public.stock", "connect-jdbc-sink")
    to.subscribe("cdc/shop.public.old", "search")
    to.set_on_namespace("cdc", "schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE", "PUT")


def _kafka(to: EstateBuilder) -> None:
    to.topics("kop", {"__consumer_offsets": 4, "__transaction_state": 2, "metrics": 4, "metrics-L2": 2})
    to.subscribe("kop/metrics", "group-A", "group.B")
    to.set_on_namespace("kop", "backlogQuota", {"limitSize": 1 << 20, "limitTime": -1, "policy": "consumer_backlog_eviction"},
                        backlogQuotaType="destination_storage")  # fmt: skip
    to.set_on_namespace("kop", "properties", {"kop.migrated": "2023-04-01"}, "PUT")
    to.grant("kop", "Kafka Users", "produce", "consume")


def _retries(to: EstateBuilder) -> None:
    to.topics("jobs", {
        "jobs": 3, "jobs-app-DLQ": 3, "jobs-app-RETRY": 3, "jobs-partition-0-app-DLQ": 0, "jobs-partition-1-app-RETRY": 0,
        "mails": 0, "mails-sender-DLQ": 0, "mails-sender-RETRY": 0, "mails-sender-PENDING": 1, "lost-app-DLQ": 0,
        "jobs-app-BLOCKING": 2,
    })  # fmt: skip
    to.subscribe("jobs/jobs", "app", "app-RETRYING", "kodo-hold")
    to.subscribe("jobs/jobs-app-RETRY", "app")
    to.subscribe("jobs/mails", "sender")
    to.subscribe("jobs/mails-sender-RETRY", "sender")
    to.subscribe("jobs/lost-app-DLQ", "on-call")
    to.set_on_topic("jobs/jobs-app-DLQ", "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    with to.client() as client:
        producer = client.create_producer(to.full("jobs/mails"))
        for hours in range(4):
            producer.send(b"{}", deliver_after=timedelta(hours=hours) if hours else None)
        producer.close()


def build(to: EstateBuilder) -> None:
    """Makes the streams."""
    to.namespaces("mqtt", "cdc", "kop", "jobs")
    for make in (_mqtt, _changes, _kafka, _retries):
        make(to)


BRIDGED_STREAMS = Estate(
    build,
    adopted=37,
    created=2,
    left_out={
        f"grant.mqtt/{_SITES[0]}/gateway": A_GRANT,
        f"schema.mqtt/{_SITES[2]}": A_SCHEMA.format("STRING"),
        "schema.mqtt/a:b=c": A_SCHEMA.format("STRING"),
        "schema.mqtt/plus+hash#": A_SCHEMA.format("STRING"),
        "subscription.cdc/shop.public.orders/cdc/flatten": "its name: it holds '/': ",
        "subscription.jobs/jobs/app-RETRYING": "its name ends in -RETRYING, which marks topics of a family",
        "subscription.jobs/jobs/kodo-hold": "its name begins with kodo-, which marks subscriptions of kodoctl",
        "subscription.jobs/lost-app-DLQ/on-call": ITS_TOPIC,
        "subscription.mqtt/orders/a+b": "its name: it holds '+': ",
        "subscription.mqtt/orders/bridge #1": "its name: it holds ' ' '#': ",
        f"subscription.mqtt/{_SITES[0]}/archiver": ITS_TOPIC,
        "topic.cdc/mirror-shadow as a shadow topic": "its messages are those of persistent://",
        "topic.cdc/schema-changes.shop terminated": TERMINATED,
        "topic.cdc/shop.public.carts": "it has a delayed-delivery policy of its own, ",
        "topic.cdc/shop.public.old terminated": TERMINATED,
        "topic.cdc/shop.public.returns": "partition 2 of 4 is missing, and an apply would create it",
        "topic.cdc/shop.public.stock terminated (partition 1)": TERMINATED,
        "topic.jobs/jobs-app-BLOCKING": "it ends in -BLOCKING and does not fit a family: it has 2 partitions, and jobs 3 ",
        "topic.jobs/jobs-app-RETRY as a retry topic": JAVAS_RETRY,
        "topic.jobs/jobs-partition-0-app-DLQ": NO_FAMILY.format("-DLQ"),
        "topic.jobs/jobs-partition-1-app-RETRY": "its name: -partition-<number> is how Pulsar names the parts",
        "topic.jobs/lost-app-DLQ": NO_FAMILY.format("-DLQ"),
        "topic.jobs/mails-sender-PENDING": "it ends in -PENDING and does not fit a family: it has 1 partition, and mails no ",
        "topic.jobs/mails-sender-RETRY as a retry topic": JAVAS_RETRY,
        "topic.kop/__consumer_offsets": "its name: names that begin with __ are Pulsar's own ",
        "topic.kop/__transaction_state": "its name: names that begin with __ are Pulsar's own ",
        "topic.kop/metrics-L2": "it ends in -L2 and does not fit a family: it has 2 partitions, and metrics 4 ",
        "topic.mqtt/$SYS%2Fbroker%2Fuptime": "its name: it holds '$' '%': ",
        "topic.mqtt/Größe": "its name: it holds 'ß' 'ö': ",
        "topic.mqtt/commands%2Fall": "its name: it holds '%': ",
        "topic.mqtt/plus+hash#": "its name: it holds '#' '+': ",
        "topic.mqtt/two words": "its name: it holds ' ': ",
        **{f"topic.mqtt/{site}": "its name: it holds '%': " for site in _SITES},
    },
)

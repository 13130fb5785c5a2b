"""Counts of passengers and positions of vehicles: a pilot with a plain topic for each city, then a second life in partitions.

Facts from the infrastructure code in tvv-lippu-ja-maksujarjestelma-oy/waltti-apc-deployment: a namespace for each stage of
the pipeline, months of retention, a role that is granted again on every topic. Names and figures are invented.
"""

from __future__ import annotations

from tests.broker.estates.estate_builder import A_GRANT, Estate, EstateBuilder

_STAGES = ("source", "deduplicated", "cleaned", "aggregated", "anonymized", "profiles", "open")
_CITIES = ("northport", "eastham", "millbrook")
_ALL = ("produce", "consume", "functions")
_PILOT, _FORWARDER = "pilot@transit.example.org", "forwarder@transit.example.org"
_CATALOGUES = [f"catalogue-{city}" for city in _CITIES]
_PLAIN = {
    "source": ["counts", *(f"positions-{city}" for city in _CITIES), *_CATALOGUES],
    "deduplicated": ["counts-deduplicated"],
    "cleaned": ["counts-cleaned", "position-v2"],
    "aggregated": ["stop-counts-v1", "stop-counts-v1.1"],
    "anonymized": [f"counts-anonymized-{city}" for city in _CITIES],
    "profiles": ["anonymization-profiles"],
}
_PARTITIONED = {
    "source": {"counts-v2": 6, "position.v3": 4},
    "cleaned": {"position.v3": 4, "trip_V3": 3},
    "aggregated": {"stop-counts-v2": 3},
    "open": {"position.v3": 4, "service-alert:v1": 1},
}
_READERS = {
    "source/counts": ("deduplicator",),
    "source/counts-v2": ("deduplicator", "raw-archive"),
    "source/position.v3": ("journey-matcher",),
    "cleaned/position.v3": ("stop-aggregator",),
    "cleaned/trip_V3": ("full-publisher",),
    "aggregated/stop-counts-v2": ("anonymizer",),
    "open/position.v3": ("mqtt-gateway", "mqtt-gateway-staging", "blob-writer"),
}


def build(to: EstateBuilder) -> None:
    """Makes the pipeline."""
    to.namespaces(*_STAGES)
    for stage in _STAGES:
        minutes, size = (-1, 100) if stage == "profiles" else (46_080, -1)
        to.set_on_namespace(stage, "retention", {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size})
        to.grant(stage, _PILOT, *_ALL)
    quota = {"limitSize": 10 << 30, "limitTime": -1, "policy": "producer_exception"}
    to.set_on_namespace("cleaned", "backlogQuota", quota, backlogQuotaType="destination_storage")
    to.set_on_namespace("open", "messageTTL", 90)
    to.set_on_namespace("profiles", "compactionThreshold", 104_857_600, "PUT")
    for stage, names in _PLAIN.items():
        to.topics(stage, dict.fromkeys(names, 0))
        for name in names:
            to.grant(f"{stage}/{name}", _PILOT, *_ALL)
    for stage, topics in _PARTITIONED.items():
        to.topics(stage, topics)
    for name in _CATALOGUES:
        to.set_on_topic(f"source/{name}", "compactionThreshold", 1_048_576)
    to.set_on_topic("source/position.v3", "retention", {"retentionTimeInMinutes": 180, "retentionSizeInMB": 20_480})
    to.set_on_topic("source/position.v3", "messageTTL", messageTTL="120")
    to.set_on_topic("cleaned/trip_V3", "deduplicationEnabled", value=True)
    to.grant("source/counts", _FORWARDER, *_ALL)
    to.grant("source/counts-v2", _FORWARDER, "produce")
    for topic, readers in _READERS.items():
        to.subscribe(topic, *readers)


TRANSIT_PIPELINE = Estate(
    build,
    adopted=48,
    left_out={
        **{f"grant.{stage}/{name}/{_PILOT}": A_GRANT for stage, names in _PLAIN.items() for name in names},
        f"grant.source/counts/{_FORWARDER}": A_GRANT,
    },
)

"""Words that a term of docs/glossary.md has replaced. A writer uses the term; a reader need not know this list."""

from __future__ import annotations

from typing import Final

REPLACED: Final = {
    "topology": (
        "stack",
        "config",
    ),
    "ground topic": (
        "main topic",
        "base",
    ),
    "topic family": (
        "ground's topics",
        "crew",
    ),
    "level": ("tier",),
    "backup": ("fallback",),
    "lane": (
        "queue",
        "partition",
        "lock",
    ),
    "dead letter, letter": ("parcel",),
    "move of a tenant": ("promotion",),
    "policy layer": ("ground layer",),
    "resource": ("thing",),
    "address": ("name",),
    "change": ("step of a recall",),
    "adopt": ("take over",),
    "forget": ("let go",),
    "marker": ("mark",),
    "ownership ledger": ("book",),
    "evidence": ("look",),
    "data loss": (
        "danger",
        "harm",
    ),
    "remedy": ("way out",),
    "target": (
        "portion",
        "part",
    ),
    "lease": ("lock of a lane",),
    "journal": ("diary",),
    "barrier": (
        "meeting",
        "seat",
    ),
    "diagnostic": (
        "complaint",
        "fault",
    ),
    "worker": ("hand",),
    "worker group": ("pool",),
    "engine": ("core",),
    "error text": ("trace",),
    "executor": (
        "runner",
        "desk",
    ),
    "supervisor": ("service",),
    "observer": (
        "watcher",
        "onlooker",
    ),
    "poller": ("looker",),
    "in-flight message": ("held message",),
    "look-ahead budget": (
        "stock",
        "room",
    ),
    "redelivery": ("repeat",),
    "acknowledgement": ("finish",),
    "reroute": ("forward",),
    "receipt": ("answer",),
    "header": ("control",),
    "idempotency": (
        "guard",
        "has its effects once",
    ),
    "poison message": (
        "mark",
        "fall",
    ),
    "tenant (of a message)": (
        "user",
        "bucket",
    ),
    "slow tenant": ("heavy tenant",),
    "head-room": ("reserve",),
    "noisy neighbour": (
        "loud tenant",
        "harm",
    ),
    "limiter": ("gate",),
    "bulkhead": (
        "partition",
        "compartment",
    ),
    "reservation": (
        "debt",
        "promise",
    ),
    "token lease": (
        "loan",
        "purse",
        "borrower",
    ),
    "circuit breaker": ("rest",),
    "recall": ("redrive",),
    "release": ("give up",),
    "recall ledger": ("book of recalls",),
    "in doubt": ("unsettled",),
    "audit": ("judgement",),
    "audit record": ("deed",),
    "ingest": ("landing",),
    "pipeline run": ("cycle",),
    "coverage": (
        "part",
        "reach",
    ),
    "audit start": ("begun",),
    "rollup": ("counting",),
    "recommendation": ("advice",),
    "simulation, lab": ("trial",),
    "outage": ("incident",),
}

"""Documents of reports for tests of pages: made from made-up facts by the code that makes them from real ones."""

from __future__ import annotations

import math
from typing import Any

from kodo_pipeline.audit.report import document as told
from kodo_pipeline.audit.verdict import decide_verdict
from kodo_pipeline.evidence.audit_evidence import AuditEvidence, MessageStatus, PartitionCoverage, SubscriptionTotals
from kodo_pipeline.report.document import Facts, ReportOrigin, document

AT = 1_767_323_040_000  # 2026-01-02 03:04
MINUTE, HOUR = 60_000, 3_600_000
READY = "persistent://kodo/trade/orders"
ABOUT = ReportOrigin(
    run="20260102-040500-9f86d081", made_at=AT + HOUR, topology="trade", environment=None,
    file="topologies/trade.yaml", typed="topologies/trade.yaml",
)  # fmt: skip
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>\x1b[31m\u202e${7*7}$\\alpha$"


def audited(lost: int = 0, short: bool = False, **fates: int) -> Any:
    """An audit's document. `short`: a partition was not read completely."""
    counts = {MessageStatus[name.upper()]: number for name, number in fates.items()} | (
        {MessageStatus.LOST: lost} if lost else {}
    )
    partial = PartitionCoverage(READY, 1, 1_388, 1_380, ("entries 7:0 to 7:99: timeout, 92 of 100 seen",))
    parts = (PartitionCoverage(READY, 0, 1_402, 1_402), partial if short else PartitionCoverage(READY, 1, 1_388, 1_388))
    found: Any = [
        {
            "fate": "lost",
            "cause": "acknowledged without a record and without a next place",
            "topic": "orders",
            "subscription": "billing",
            "msg_topic": READY,
            "id": f"7:{n}:0:-1",
        }
        for n in range(min(lost, 20))
    ]
    evidence = AuditEvidence(
        parts, (SubscriptionTotals("orders", "billing", "wait", {MessageStatus.DONE: 2_790, **counts}),)
    )
    lane: Any = {"topic": "orders", "subscription": "billing", "lane": "L1/ready", "messages": lost}
    return told(decide_verdict(evidence), evidence, found, [lane] if lost else ())


def late(p50: float, p95: float, p99: float) -> dict:
    return {"p50": p50, "p95": p95, "p99": p99}


def lane(level, state, done, latency=None, **counts):
    names = ("arrivals", "failed", "rerouted", "over_limit", "retries", "dead", "discarded", "repeated")
    return {"topic": "orders", "subscription": "billing", "level": level, "state": state, "done": done, "latency_ms": latency,
            **dict.fromkeys(names, 0), **counts}  # fmt: skip


def tenant(name, arrivals, done, latency, **counts):
    return {**lane(None, None, done, latency, arrivals=arrivals, **counts), "tenant": name}


def wait(level, state, messages, oldest, median, overdue=0):
    return {"topic": "orders", "subscription": "billing", "level": level, "state": state, "messages": messages,
            "overdue": overdue, "oldest_ms": oldest, "median_ms": median}  # fmt: skip


def failure(rule, reason, messages, event="moved"):
    return {
        "topic": "orders",
        "subscription": "billing",
        "event": event,
        "rule": rule,
        "cause": reason,
        "reason": reason,
        "messages": messages,
    }


def busy(**changes) -> Facts:
    """A day with a noisy tenant, failures and three lost messages."""
    tenants = [
        tenant("mega", 2_400, 1_460, late(61_000, 272_000, 301_000), over_limit=1_890),
        *(tenant(name, count, count, late(38, 120, 240)) for name, count in (("anna", 96), ("ben", 84), ("cleo", 80))),
        tenant("acme", 60, 12, late(2_100, 4_800, 5_100), failed=148),
        tenant("dora", 50, 50, late(40, 110, 190)),
        tenant("eve", 20, 8, late(33, 90, 95), failed=12, dead=12),
    ]
    counted: Any = {
        "format_version": 1, "window_ms": MINUTE, "since": AT - 40 * MINUTE, "until": AT, "windows": 40, "impossible_windows": 0, "tenants": tenants,
        "lanes": [
            lane("L1", "ready", 1_480, late(44, 260, 890)), lane("L1", "retrying", 12, late(2_100, 4_800, 5_100)),
            lane("L1", "pending", 1_210, late(61_000, 262_000, 301_000)), lane("L2", "ready", 88, late(31, 88, 120)),
            lane("L1", "blocking", 0),
        ],
    }  # fmt: skip
    facts: dict[str, Any] = {
        "audit": audited(lost=3, dead=12, open=18, waiting=540),
        "counted": counted,
        "waiting": [
            wait(None, "dead", 12, 38 * MINUTE, 21 * MINUTE), wait("L1", "pending", 421, 4 * MINUTE, 70_000),
            wait("L1", "ready", 18, 900, 300), wait("L1", "blocking", 107, 52 * MINUTE, 30 * MINUTE),
            wait("B1", "ready", 12, 11 * MINUTE, 9 * MINUTE, overdue=2),
        ],
        "failures": [
            failure("retrying", "ConnectionError: acme's bank does not answer", 136),
            failure("backup", "ConnectionError: acme's bank does not answer", 12),
            failure("dead", "negative amount", 12, "dead"),
        ],
        "failed": 165, "groups": [
            {"topic": "orders", "noisy": True, "names": ["mega"], "tenants": 1, "arrivals": 2_400, "latency_ms": late(61_000, 272_000, 301_000)},
            {"topic": "orders", "noisy": False, "names": [], "tenants": 6, "arrivals": 390, "latency_ms": late(40, 190, 4_600)},
        ],
        "points": [
            {"at": AT - (40 - n) * MINUTE, "arrivals": 12 + round(210 * math.exp(-(((n - 14) / 5) ** 2))),
             "done": 10 + round(90 * math.exp(-(((n - 20) / 11) ** 2))), "failed": 3 + n % 4,
             "over_limit": round(130 * math.exp(-(((n - 15) / 5) ** 2)))}
            for n in range(40)
        ],
        "width": MINUTE, "read_at": AT + MINUTE,
        "sent": {("orders", one["tenant"]): one["arrivals"] for one in changes.get("counted", counted)["tenants"]},
    }  # fmt: skip
    return Facts(**{**facts, **changes})


def quiet() -> Facts:
    """Nothing to complain of."""
    counted: Any = {"format_version": 1, "window_ms": MINUTE, "since": AT - HOUR, "until": AT, "windows": 2, "impossible_windows": 0, "tenants": [],
               "lanes": [lane("L1", "ready", 2_790, late(44, 260, 890))]}  # fmt: skip
    return Facts(audited(), counted, read_at=AT)


def made(facts: Facts | None = None) -> Any:
    """The document of these facts."""
    return document(ABOUT, facts or busy())


def tried() -> Any:
    """A lab's document: a noisy tenant is moved out of the way of others."""

    def side(**waits: tuple[int, int, int]) -> dict:
        rows = [
            {"tenant": None if name == "others" else name, "tenants": 12, "messages": one[0],
             "wait_ms": {"p50": one[1], "p95": one[2]} if len(one) > 1 else None}
            for name, one in waits.items()
        ]  # fmt: skip
        return {"tenants": rows}

    today = side(noisy=(9_000, 9_500, 29_900), acme=(1_200, 4_300, 22_000), calm=(338, 0, 3), others=(3_100, 80, 9_100))
    then = side(noisy=(9_000, 41_000, 92_000), acme=(1_200, 3, 120), calm=(338, 0, 2), others=(3_100, 4, 60))
    return {"trials": [{"topic": "orders", "subscription": "billing", "today": today, "candidate": then}]}

"""Consoles served to tests: a shop at night, where much needs a person, and one in which every name is hostile."""

from __future__ import annotations

import http.client
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from kodoctl.documents.recall_document import PeekDocument, PeekedMessage
from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.plan.changes import ChangeContext, Create
from kodoctl.plan.history_document import ApplyRow, HistoryDocument
from kodoctl.plan.serialization import change_to_json
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.message_rows import encoder_of
from kodoctl.status.lane_status import LaneStatus, StatusReading, TopologyStatus, UnreadTopic
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import TopicResource
from kodoctl.ui.action_pages import ActionMaker
from kodoctl.ui.actions import ActionDesk
from kodoctl.ui.application import ConsoleData, console
from kodoctl.ui.audit_sentence import AuditStep, Sentence
from kodoctl.ui.first_screen import CommandWords, DriftNews, ScreenFacts, StoppedApply
from kodoctl.ui.letter_causes import CauseCount, FailingGroup, LetterCauses, TryCount
from kodoctl.ui.message_search import LaneCopy, SearchHit, SearchResult, SearchText
from kodoctl.ui.message_views import (
    LaneMessages,
    LaneQuestion,
    MessageQuestion,
)
from kodoctl.ui.plan_views import DriftReading, NamespaceHistory
from kodoctl.ui.web_server import ConsoleServer
from tests.samples.reports import EVIL

Json = dict[str, Any]
CAUSE = "ValueError: card of order # was refused"
NOW = 1_767_268_500_000  # ms since the epoch


def lane(state: str = "ready", level: str = "L1", **values: Any) -> LaneStatus:
    name = {"ready": "orders", "dead": "orders-billing-DLQ"}.get(state, f"orders-billing-{state.upper()}")
    made = LaneStatus("orders", "billing", "" if state == "dead" else level, state, name, there=True)
    return replace(made, **values)


EVIL_PATHS = (
    "/",
    "/lanes",
    f"/lane?{urlencode({'topology': EVIL, 'topic': EVIL, 'subscription': EVIL})}",
    f"/lane?{urlencode({'topology': EVIL, 'topic': EVIL, 'subscription': EVIL, 'where': EVIL})}",
    f"/find?{urlencode({'q': EVIL, 'span': EVIL, 'topology': EVIL})}",
    f"/plans?{urlencode({'topology': EVIL, 'drift': 'read'})}",
    f"/message?{urlencode({'topology': EVIL, 'ground': EVIL, 'subscription': EVIL, 'message': EVIL, 'span': EVIL})}",
)


def reading(*lanes: LaneStatus, unread: tuple[UnreadTopic, ...] = ()) -> StatusReading:
    return StatusReading(NOW, (TopologyStatus("trade", "kodo/trade", lanes, ()),), unread)


WORDS = CommandWords({"trade": "topologies/trade.yaml"}, ["--context", "prod"], paths=["topologies"])
NIGHT = reading(
    lane(entries=1_240, oldest=NOW - 9 * 60_000, consumers=2, rate_in=90.0, rate_out=20.0, rate_acked=20.0),
    lane("retrying", entries=12, oldest=NOW - 3_600_000),
    lane("pending", consumers=2, blocked=1),
    lane("dead", entries=3, oldest=NOW - 8 * 3_600_000),
    lane(subscription="mailing", topic="orders", entries=4, oldest=NOW - 1_000),
    lane(subscription="mailing", level="L2", topic="orders-L2", there=False),
    unread=(UnreadTopic("kodo/trade", "parcels", "parcels", "503: no broker owns it"),),
)


def peeked(text: str = "", **values: Any) -> PeekedMessage:
    """A dead letter; every text of it is `text`, unless that is left out."""
    control = {"kodo-id": "order-4711", "kodo-reason": "ValueError", "kodo-error": "card of order 4711 was refused"}
    made: PeekedMessage = {
        "topic": text or "persistent://kodo/trade/orders-billing-DLQ",
        "position": text or "7:1:0:-1",
        "published": NOW - 60_000,
        "event_time": 0,
        "key": text or "4711",
        "ordering_key": text,
        "size": 12,
        "properties": {text or "uid": text or "u13"},
        "control": [{"name": name, "value": text or value, "means": text} for name, value in control.items()],
        "broken": "",
        "preview": text or '{"n": 4711}',
        "content": {"kind": text or "json", "text": text or '{\n  "n": 4711\n}', "note": text},
    }
    return {**made, **values}  # type: ignore[typeddict-item]


class SampleMessages:
    """Answers of a cluster with one dead letter; `text`: every text of it, "" for those of a shop."""

    def __init__(self, text: str = "") -> None:
        self.text, self.asked = text, list[Any]()

    def lane(self, question: LaneQuestion) -> LaneMessages:
        self.asked.append(question)
        parse(question.where, NOW)
        document: PeekDocument = {
            "format_version": 1, "read": 3, "matched": 1, "marks": 0, "complete": True, "read_all": True,
            "messages": [peeked(self.text)], "by_cause": {self.text or CAUSE: 1},
            "groups": [{"cause": self.text or CAUSE, "tenant": self.text or "u13", "messages": 1}],
            "unread": [self.text] if self.text else [],
        }  # fmt: skip
        topic, ground = self.text or peeked()["topic"], self.text or "orders"
        return LaneMessages(topic, ground, None, "dead", "kodo-hold", document, ended=False, longest_wait=86_400_000)

    def export(self, question: LaneQuestion, suffix: str) -> Generator[bytes]:
        self.asked.append((question.where, suffix))
        parse(question.where, NOW)
        encoder_of(suffix)
        if question.topology == "cut off":
            return self._cut_off()
        return (one for one in (b'{"id": "order-4711"}\n', b'{"id": "order-4712"}\n'))

    @staticmethod
    def _cut_off() -> Generator[bytes]:
        yield b'{"id": "order-4711"}\n'
        raise ClusterError(error("K561", "messages cannot be read", "gone"))

    def lane_title(self, question: LaneQuestion) -> str:
        return self.text or f"orders / {question.subscription}: dead letters"

    def find(self, wanted: SearchText, span: str, topology: str) -> SearchResult:
        self.asked.append((wanted.text, span, topology))
        message, name = peeked(self.text), self.text or "billing"
        hit = SearchHit(self.text or "trade", self.text or "orders", message, 86_400_000)
        lane = LaneCopy(name, self.text or "orders-billing-DLQ", self.text or "dead letters", True, message)
        hit.add(
            self.text or "key", message, [lane, LaneCopy(self.text or "mailing", "orders", "L1 ready", False, message)]
        )
        more = (self.text,) if self.text else ()
        hits = [[] if one.startswith(("none", "order ")) else [hit] for one in wanted.texts]
        counted, found = wanted.best(hits)
        return SearchResult(found, 3, not self.text, more, more, frozenset(), counted)

    def history(self, question: MessageQuestion) -> Json:
        self.asked.append(question)
        hop: Json = {
            "place": "L1/ready", "topic": "orders", "id": "7:1:0:-1", "at": NOW, "hop": 0, "reason": "", "cause": "",
            "error": "", "error_stack": "", "attempts": {}, "postponed": 0, "due": None, "recall": "",
            "ended": "dead", "rule": "dead", "ended_at": NOW, "ended_reason": "ValueError", "ended_error": "",
            "target": "dead letters", "run": "", "stored": False, "acknowledged": True,
            "left": "died: ValueError", "waits": "",
        }  # fmt: skip
        here = {
            **hop,
            "place": "dead letters",
            "reason": "ValueError",
            "ended": "",
            "left": "",
            "waits": "put back to wait twice in retrying",
            "stored": True,
            "acknowledged": False,
        }
        if self.text:
            here = {name: self.text if isinstance(value, str) else value for name, value in here.items()}
            here |= {"attempts": {self.text: 1}, "postponed": 1, "due": NOW}
        move = dict.fromkeys(("tenant", "to", "who", "why"), self.text)
        return {
            "also": [self.text] if self.text else [], "sent": NOW - 3_600_000, "hops": [hop, here] if question.message != "none" else [],
            "longest_wait": 0, "stored": peeked(self.text) if question.message != "none" else None,
            "looked_at": 3, "searched": ["orders"], "missing": [self.text] if self.text else [], "unread": [self.text] if self.text else [],
            "levels": {"moves": [{**move, "until": NOW}] if self.text else []},
        }  # fmt: skip


STOPPED = StoppedApply("trade", "kodo/trade", "apply 4f2a is cut off: 3 of 9 changes done")
FACTS = ScreenFacts(
    {("trade", "orders-billing-DLQ", "orders", "billing"): LetterCauses(
        3, True, (CauseCount(CAUSE, 2), CauseCount("handler took too long", 1)), (),
        entries=3, oldest=NOW - 8 * 3_600_000, since=NOW - 9 * 3_600_000,
    ), ("trade", "orders-billing-RETRYING", "orders", "billing"): LetterCauses(
        12, True, (CauseCount("ConnectionError", 12, (("u13", 12),)),), (("u13", 12),),
        entries=12, oldest=NOW - 3_600_000, dues={"u13": NOW + 600_000}, since=NOW - 7_200_000,
        failing=(FailingGroup("u13", "ConnectionError", 12, NOW - 7_200_000, TryCount(3, 9, "the backup level")),),
    )},
    (STOPPED,),
    DriftNews(NOW - 300_000, "Drift: 2 objects.", drifted=True),
    tenants={("trade", "orders"): "uid"},
)  # fmt: skip


class SamplePlans:
    """Plans and history of a namespace in which the last apply stopped; `text`: every text of it, "" for a shop's."""

    def __init__(self, text: str = "") -> None:
        self.text, self.drifts = text, 0

    def history(self, topology: str) -> NamespaceHistory:
        if topology not in ("trade", self.text):
            raise UsageError(error("K022", "unknown topic", topology))
        topic = TopicResource(TopicName.parse("kodo/trade/orders-L2"), 3, {})
        change: Any = change_to_json(Create(topic, ChangeContext("trade")))
        if self.text:
            change = {**change, "address": self.text}
        apply: ApplyRow = {
            "id": self.text or "4f2a", "verb": self.text or "apply", "who": self.text or "root@vm pid 7", "began": NOW - 900_000,
            "ended": None, "commit": self.text or "c0ffee" * 6, "plan": "d", "state": "cut off", "changes": 9,
            "done": [change], "broken": [{"change": change, "detail": self.text or "unknown: no end"}],
        }  # fmt: skip
        replay: Any = {
            "run": "20260101-101500", "who": "root@vm", "topic": "orders", "subscription": "billing", "because": "bug 17",
        } | dict.fromkeys(("run", "who", "topic", "subscription", "because") if self.text else (), self.text)  # fmt: skip
        replays: Any = [{**replay, "began": NOW - 6_000_000, "messages": 1_200, "state": "complete"}]
        place = {"topic": self.text or "orders", "subscription": self.text or "billing"}
        order: Any = {
            **place, "at": NOW - 600_000, "who": self.text or "root", "back": False, "until": NOW + 3_600_000,
            "order": self.text or "lane L1/ready paused", "why": self.text or "bank",
        }  # fmt: skip
        older: ApplyRow = {
            **apply,
            "id": self.text or "1b0c",
            "state": "complete",
            "ended": NOW,
            "broken": [],
            "changes": 1,
        }
        run: Any = {
            "run": self.text or "20260101-110200", "who": self.text or "root@vm", "source": self.text or "orders-billing-DLQ",
            "began": NOW - 3_000_000, "sent": 3, "discarded": 0, "refused": 0, "unclear": 1, "open": 0,
        }  # fmt: skip
        taken_back: Any = {**order, "back": True, "at": NOW}
        document: HistoryDocument = {
            "namespace": self.text or "kodo/trade", "applies": [older, apply], "replays": replays, "recalls": [run],
            "orders": [order, taken_back], "ledger": self.text or ".kodoctl/recall",
            "unknown": [self.text] if self.text else [],
        }  # fmt: skip
        return NamespaceHistory(document, self.text or "kodoctl history kodo/trade --context prod")

    def read_drift(self) -> DriftReading:
        self.drifts += 1
        found: Any = {
            "format_version": 1, "drifted": True, "refused": False, "by_hand": [], "either": [], "not_applied": [],
            "beyond_repair": [], "conflicts": [], "unmanaged": [], "counts_unmanaged": False,
            "stale_topologies": [self.text or "trade"], "returning": {},
        }  # fmt: skip
        return DriftReading(int(time.time() * 1000), found, self.text or "context prod, http://pulsar:8080")

    def last_drift(self) -> DriftReading | None:
        return self.read_drift() if self.drifts else None


def rates_of_night() -> Callable[[], StatusReading]:
    """Readings of NIGHT, ten seconds apart, whose rates change."""
    numbers = itertools.count()

    def read() -> StatusReading:
        number = next(numbers)
        swing = 1 + 0.4 * math.sin(number / 2)
        (shop,) = NIGHT.topologies
        lanes = [
            replace(
                one,
                rate_in=one.rate_in * swing,
                rate_out=one.rate_out * (2 - swing),
                rate_acked=one.rate_handled * (2 - swing),
            )
            for one in shop.lanes
        ]
        return replace(NIGHT, at=NOW + number * 10_000, topologies=(replace(shop, lanes=tuple(lanes)),))

    return read


def data_of(status: StatusReading = NIGHT, **values: Any) -> ConsoleData:
    made = ConsoleData(
        target="context prod, http://pulsar:8080",
        production=True,
        words=WORDS,
        read_status=lambda: status,
        read_audit=lambda: Sentence(
            "good", "No message was lost, as read 3 min ago", is_judged=True, files=("trade-prod-audit.json",)
        ),
        read_facts=lambda _: FACTS,
        messages=SampleMessages(),
        plans=SamplePlans(),
        defect=lambda problem: error("K599", "a defect of kodoctl", str(problem)),
    )
    return replace(made, **values)


def evil_data() -> ConsoleData:
    """Every text that others may choose is hostile, the answers of the cluster among them."""
    names = {"ground": EVIL, "subscription": EVIL, "topic": EVIL}
    lanes = (
        lane(**names, entries=5, consumers=1, blocked=1, steered=EVIL),
        lane("retrying", EVIL, **names, entries=1),
        lane("dead", **names, entries=2, oldest=NOW),
        lane("pending", **names, there=False),
    )
    status = StatusReading(NOW, (TopologyStatus(EVIL, EVIL, lanes, ()),), (UnreadTopic(EVIL, EVIL, EVIL, EVIL),))
    return data_of(
        status, target=EVIL, words=CommandWords({EVIL: EVIL}, [EVIL]), messages=SampleMessages(EVIL),
        read_audit=lambda: Sentence("bad", EVIL, files=(EVIL,), steps=(AuditStep(EVIL, (EVIL,)),)), plans=SamplePlans(EVIL),
        read_facts=lambda _: ScreenFacts(
            {(EVIL, EVIL, EVIL, EVIL): LetterCauses(20, False, (CauseCount(EVIL, 2, ((EVIL, 2),)),), ((EVIL, 15), ("b", 5)))},
            (StoppedApply(EVIL, EVIL, EVIL),), DriftNews(NOW, EVIL, drifted=True),
        ),
    )  # fmt: skip


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


class Console:
    """A console as a client sees it that may send whatever it likes. `ask` sends the cookie of one that was given the token.
    `folder`: path of its pages, below which `ask` asks.
    """

    def __init__(self, server: ConsoleServer) -> None:
        self.address, self.port = server.address, server.port
        parts = urlsplit(server.address)
        self.folder, self.token = parts.path.rstrip("/"), parts.query.partition("=")[2]
        self.own = {"Host": f"127.0.0.1:{server.port}", "Cookie": f"kodoctl-ui-{server.port}={self.token}"}

    def ask(self, path: str = "/", method: str = "GET", body: str | None = None, **headers: str | None) -> Answer:
        """Headers replace those of a browser with the cookie; None leaves one out."""
        sent = {**self.own, **{name.replace("_", "-"): value for name, value in headers.items()}}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.putrequest(method, f"{self.folder}{path}", skip_host=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body.encode() if body is not None else None)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())

    def post(self, path: str, fields: Mapping[str, str], **headers: str | None) -> Answer:
        """Sends a form as a page of the console does; headers as in `ask`."""
        own = {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/x-www-form-urlencoded"}
        return self.ask(path, "POST", urlencode(fields), **{**own, **headers})


@contextmanager
def served(data: ConsoleData, actions: tuple[ActionMaker, ActionDesk] | None = None) -> Iterator[Console]:
    with closing(ConsoleServer(console(data, actions))) as server:
        yield Console(server)

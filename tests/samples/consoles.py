"""Consoles served to tests: a shop at night, where much needs a person, and one in which every name is hostile."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from kodoctl.status.lane_status import LaneStatus, StatusReading, TopologyStatus, UnreadTopic
from kodoctl.ui.application import ConsoleData, console
from kodoctl.ui.first_screen import CommandWords, Sentence
from kodoctl.ui.web_server import ConsoleServer
from tests.samples.reports import EVIL

NOW = 1_767_268_500_000  # ms since the epoch


def lane(state: str = "ready", level: str = "L1", **values: Any) -> LaneStatus:
    name = {"ready": "orders", "dead": "orders-billing-DLQ"}.get(state, f"orders-billing-{state.upper()}")
    made = LaneStatus("orders", "billing", "" if state == "dead" else level, state, name, there=True)
    return replace(made, **values)


def reading(*lanes: LaneStatus, unread: tuple[UnreadTopic, ...] = ()) -> StatusReading:
    return StatusReading(NOW, (TopologyStatus("trade", "kodo/trade", lanes, ()),), unread)


WORDS = CommandWords({"trade": "topologies/trade.yaml"}, ["--context", "prod"])
NIGHT = reading(
    lane(entries=1_240, oldest=NOW - 9 * 60_000, consumers=2, rate_in=90.0, rate_out=20.0),
    lane("retrying", entries=12, oldest=NOW - 3_600_000),
    lane("pending", consumers=2, blocked=1),
    lane("dead", entries=3, oldest=NOW - 8 * 3_600_000),
    lane(subscription="mailing", topic="orders", entries=4, oldest=NOW - 1_000),
    lane(subscription="mailing", level="L2", topic="orders-L2", there=False),
    unread=(UnreadTopic("kodo/trade", "parcels", "parcels", "503: no broker owns it"),),
)


def data_of(status: StatusReading = NIGHT, **values: Any) -> ConsoleData:
    made = ConsoleData(
        target="context prod, http://pulsar:8080",
        production=True,
        words=WORDS,
        read_status=lambda: status,
        read_audit=lambda: Sentence("good", "No message was lost, as read 3 min ago"),
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
        status, target=EVIL, words=CommandWords({EVIL: EVIL}, [EVIL]), read_audit=lambda: Sentence("bad", EVIL, EVIL)
    )


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


class Console:
    """A console as a client sees it that may send whatever it likes. `ask` sends the cookie of one that was given the token."""

    def __init__(self, server: ConsoleServer) -> None:
        self.address, self.port = server.address, server.port
        self.token = urlsplit(server.address).query.partition("=")[2]
        self.own = {"Host": f"127.0.0.1:{server.port}", "Cookie": f"kodoctl-ui-{server.port}={self.token}"}

    def ask(self, path: str = "/", method: str = "GET", **headers: str | None) -> Answer:
        """Headers replace those of a browser with the cookie; None leaves one out."""
        sent = {**self.own, **{name.replace("_", "-"): value for name, value in headers.items()}}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.putrequest(method, path, skip_host=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())


@contextmanager
def served(data: ConsoleData) -> Iterator[Console]:
    with closing(ConsoleServer(console(data))) as server:
        yield Console(server)

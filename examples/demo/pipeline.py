"""The data pipeline in three minutes, on a real broker: from traffic to a verdict, a planted loss, the same sent again, no loss, and
a page that tells of it.

Every command shown is really run. The broker is started for the demo and removed at its end; the page and the pictures stay.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
import webbrowser
from pathlib import Path
from urllib.request import Request, urlopen

import run as demo
from run import check, run, tell, title, wait

LOST = 3
FLOODS = 3  # of the noisy customer: so many windows of three or more have to speak against it
FLOOD = 1000
WINDOW = 4  # seconds, so that three minutes have windows
GOAL = "20ms"


def main() -> None:
    """The demo."""
    started = time.monotonic()
    kept = Path(tempfile.mkdtemp(prefix="kodoctl-report-"))
    with demo.workplace() as folder, demo.broker() as admin_url:
        show(folder, admin_url, kept)
    page = kept / "shop-report.html"
    print(f"\nDone in {time.monotonic() - started:.0f} s. The page, to look at and to send around:\n{page}")
    if desktop():
        webbrowser.open(page.as_uri())


def show(folder: Path, admin_url: str, kept: Path) -> None:
    """All steps between the broker's start and its end."""
    title("One line in the file makes workers write down what they do")
    tell("shop.yaml is the topology of `make demo`: `audit: true` stands below its subscription.")
    run("kodoctl apply shop.yaml --auto-approve", quiet=True)
    tell("The first ingest comes before the first message: nothing that happens later is out of sight.")
    run("kodoctl pipeline ingest shop.yaml")
    title("Orders arrive: one noisy customer, one whose bank is down, some that are wrong")
    log = folder / "billed.txt"
    demo.consume(log, send_floods, seconds=2)
    title("What happened is landed as tables and counted. Was anything lost?")
    run(f"kodoctl pipeline run shop.yaml --window {WINDOW}s --no-report")
    tell(
        "Exit code 0: no loss, and everything that this needs was seen. Orders that wait or died are not lost: they are there."
    )
    title(f"Who harms whom? Orders of quiet customers should be billed within {GOAL}")
    found = run(f"kodoctl pipeline recommend shop.yaml --goal {GOAL}")
    check("isolate mega, L1 -> B1" in found, "mega is to be isolated")
    lose_and_resend(admin_url, log, kept)
    title("What the page says to do about the dead letters")
    where = "reason = 'negative amount'"
    run(f'kodoctl recall plan shop.yaml --topic orders --subscription billing --where "{where}" --out recall.json')


def lose_and_resend(admin_url: str, log: Path, kept: Path) -> None:
    """From a loss to no loss, by the commands that the audit prints."""
    title("Somebody skips three orders behind everybody's back")
    skip(admin_url)
    lost = run("kodoctl pipeline run shop.yaml --no-report", expect=5).splitlines()
    tell(
        "Exit code 5: just these three, with their places, the queries that show them, and what to do. `run --every 5m` would "
        "have told by itself."
    )
    title("What were they? The query that the audit printed answers at once, without Spark")
    query = next(line for line in lost if line.startswith("sql: SELECT * FROM events")).removeprefix("sql: ")
    columns = query.replace("*", "id, tenant, decode(payload) AS payload", 1)
    run(f"kodoctl pipeline sql shop.yaml {shlex.quote(columns)}")
    title("They are landed, payloads too: so they can be sent again, each exactly once")
    plan, apply = [line.strip() for line in lost if line.startswith("  kodoctl") and " recall " in line]
    run(plan)
    run(apply)
    before = billed(log)
    with demo.worker(log):
        deadline = time.monotonic() + 60
        while billed(log) < before + LOST:
            check(time.monotonic() < deadline, f"{LOST} orders of anna are billed after all")
            wait(0.2)
    title("Looked at again: no loss. And a page for people who would rather look than read")
    run(f"kodoctl pipeline run shop.yaml --out {kept} --png {kept}/pictures")
    run(f"kodoctl pipeline sql shop.yaml {shlex.quote(BILLED)}")


BILLED = "SELECT tenant, count(*) AS billed FROM transitions WHERE event = 'done' GROUP BY ALL ORDER BY ALL"


def billed(log: Path) -> int:
    """Orders of anna, whose orders were skipped."""
    return sum(line.startswith("anna ") for line in log.read_text().splitlines())


def send_floods() -> None:
    """As `make demo` has it, but that the noisy customer comes three times, each time with the others behind it."""
    from kodo_consumer import Producer

    with Producer.load("shop.yaml", topic="orders") as producer:

        def order(customer: str, amount: int = 10, plan: str = "basic") -> None:
            payload = {"customer": customer, "amount": amount, "sent": time.time()}
            producer.post(payload, properties={"customer": customer, "plan": plan})

        for flood in range(FLOODS):
            wait(WINDOW - time.time() % WINDOW)  # what is blamed on a flood is in its window
            for _ in range(FLOOD):
                order("mega")
            for _ in range(7):
                for customer in demo.QUIET:
                    order(customer)
                order("gold-gmbh", plan="gold")
            if not flood:
                for _ in range(demo.FAILING):
                    order("acme")
            order("eve", -1)
            producer.flush()
    tell(
        f"sent: {FLOODS} times {FLOOD:,} orders of mega at once, behind each 7 of each quiet customer and one with a negative "
        "amount; 5 of acme (always fails)"
    )


def skip(admin_url: str) -> None:
    """What an operator might do with other tools, while no worker runs."""
    from kodo_consumer import Producer

    with Producer.load("shop.yaml", topic="orders") as producer:
        for number in range(LOST):
            order = {"customer": "anna", "amount": 100 + number, "sent": time.time()}
            producer.post(order, properties={"customer": "anna", "plan": "basic"})
        producer.flush()
    path = "orders/subscription/billing/skip_all"
    print(f"# by hand: POST …/{path}", flush=True)
    request = Request(f"{admin_url}/admin/v2/persistent/kodo/shop/{path}", method="POST")
    urlopen(request, timeout=30).close()


def desktop() -> bool:
    """Whether somebody sits before a screen that a browser can open on."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform in ("darwin", "win32")
    return bool(screen) and sys.stdout.isatty()


if __name__ == "__main__":
    main()

"""The data pipeline in five minutes, on a real broker: from traffic to a verdict, a planted loss, and a page that tells of it.

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
from run import run, tell, title

LOST = 3


def main() -> None:
    """The demo."""
    started = time.monotonic()
    kept = Path(tempfile.mkdtemp(prefix="kodoctl-report-"))
    with demo.workplace() as folder, demo.broker() as admin_url:
        text = Path("shop.yaml").read_text()
        Path("shop.yaml").write_text(text.replace("concurrency: 16", "audit: true\n        concurrency: 16"))
        show(folder, admin_url, kept)
    page = kept / "shop.html"
    print(f"\nDone in {time.monotonic() - started:.0f} s. The page, to look at and to send around:\n{page}")
    if desktop():
        webbrowser.open(page.as_uri())


def show(folder: Path, admin_url: str, kept: Path) -> None:
    """All steps between the broker's start and its end."""
    title("One line in the file makes workers write down what they do")
    tell("shop.yaml is the topology of `make demo`, with `audit: true` below its subscription.")
    run("kodoctl apply shop.yaml --auto-approve", quiet=True)
    tell("The first ingest comes before the first message: nothing that happens later is out of sight.")
    run("kodoctl pipeline ingest shop.yaml")
    title("Orders arrive: one noisy customer, one whose bank is down, some that are wrong")
    log = folder / "billed.txt"
    demo.consume(log)
    title("What happened is landed as tables and counted. Was anything lost?")
    run("kodoctl pipeline run shop.yaml --no-report")
    tell(
        "Exit code 0: no loss, and everything that this needs was seen. Orders that wait or died are not lost: they are there."
    )
    title("Somebody skips three orders behind everybody's back")
    skip(admin_url)
    lost = run(f"kodoctl pipeline run shop.yaml --out {kept}", expect=5)
    tell(
        "Exit code 5: just these three, with their places and the queries that show them. `run --every 5m` would have told by itself."
    )
    title("What were they? The query that the audit printed answers at once, without Spark")
    query = next(line for line in lost.splitlines() if line.startswith("sql: SELECT * FROM events")).removeprefix(
        "sql: "
    )
    columns = query.replace("*", "id, tenant, decode(payload) AS payload", 1)
    run(f"kodoctl pipeline sql shop.yaml {shlex.quote(columns)}")
    # What sends the lost messages again belongs here, and an audit behind it: no loss.
    title("Who harms whom?")
    run("kodoctl pipeline recommend shop.yaml")
    title("And a page for people who would rather look than read")
    run(f"kodoctl pipeline report shop.yaml --out {kept / 'shop.html'} --png {kept / 'pictures'}")
    title("What the page says to do about the dead letters")
    where = "reason = 'negative amount'"
    run(f'kodoctl recall plan shop.yaml --topic orders --subscription billing --where "{where}" --out recall.json')


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

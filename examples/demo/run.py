"""kodoctl in three minutes, on a real broker: from one YAML file to a live, consumed topology.

Every command shown is really run. The broker is started for the demo and removed at its end.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
NAME = f"demo-{os.getpid()}"
CONSUMER_SECONDS = 15
WORKER_LOG = "worker.log"


def title(text: str) -> None:
    """A step of the demo."""
    print(f"\n\033[1m── {text}\033[0m" if sys.stdout.isatty() else f"\n── {text}", flush=True)


def tell(text: str) -> None:
    """What to look at."""
    print(textwrap.fill(" ".join(text.split()), 80), flush=True)


def run(command: str, *, expect: int = 0, quiet: bool = False) -> str:
    """Shows and runs one command; any other exit code than `expect` ends the demo."""
    print(f"\n$ {command}", flush=True)
    program, *arguments = shlex.split(command)
    done = subprocess.run([str(BIN / program), *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if not quiet:
        print(done.stdout.rstrip(), flush=True)
    if done.returncode != expect:
        sys.exit(f"the demo expected exit code {expect}, got {done.returncode}")
    return done.stdout


@contextmanager
def broker() -> Iterator[str]:
    """A development broker of our own, with a configuration of our own: nothing of the user's is touched."""
    title("A real Pulsar, started for this demo")
    tell("Without Docker it needs Java and Maven; its jars (240 MB) are downloaded once.")
    try:
        run(f"kodoctl dev up --name {NAME} --use")
        yield json.loads(run("kodoctl context show --format json", quiet=True))["admin_url"]
    finally:
        title("Cleaning up")
        run(f"kodoctl dev reset --name {NAME} --yes")


def send_orders() -> None:
    """One customer floods, one is always broken, some orders are wrong, the rest is quiet."""
    from kodo_consumer import Producer

    def order(customer: str, amount: int, plan: str = "basic") -> None:
        payload = {"customer": customer, "amount": amount, "sent": time.time()}
        producer.post(payload, properties={"customer": customer, "plan": plan})

    with Producer.load("shop.yaml", topic="orders") as producer:
        for _ in range(3000):
            order("mega", 10)
        for _ in range(20):
            for customer in ("anna", "ben", "cleo", "dora"):
                order(customer, 10)
            order("gold-gmbh", 10, plan="gold")
        for _ in range(5):
            order("acme", 10)
        for _ in range(3):
            order("eve", -1)
        producer.flush()
    tell(
        "sent: 3,000 orders of mega at once, then 20 of each quiet customer, 5 of acme (always fails), 3 with a negative amount"
    )


def consume(log: Path) -> None:
    """The reference consumer as a user runs it, ended by SIGTERM as a scheduler would."""
    command = "kodo-consumer run shop.yaml --topic orders --subscription billing --handler billing:bill"
    print(f"\n$ {command} 2> {WORKER_LOG} &", flush=True)
    program, *arguments = shlex.split(command)
    environ = {**os.environ, "DEMO_LOG": str(log), "PYTHONPATH": os.getcwd()}
    with Path(WORKER_LOG).open("wb") as said:
        worker = subprocess.Popen([str(BIN / program), *arguments], env=environ, stderr=said)
    try:
        wait_until_it_consumes(worker)
        send_orders()
        time.sleep(CONSUMER_SECONDS)
        print(f"\n$ kill -TERM {worker.pid}", flush=True)
        worker.send_signal(signal.SIGTERM)
        if worker.wait(60):
            sys.exit(f"the consumer did not end with exit code 0\n{Path(WORKER_LOG).read_text()}")
    finally:
        worker.kill()
    print(f"\n$ grep WARNING {WORKER_LOG}", flush=True)
    print(*(line for line in Path(WORKER_LOG).read_text().splitlines() if "WARNING" in line), sep="\n", flush=True)
    tell("Its traceback is there too, at most once in ten seconds; how often it came is in the counts above.")


def wait_until_it_consumes(worker: subprocess.Popen[bytes]) -> None:
    """Until the broker shows a consumer on every lane."""
    deadline = time.monotonic() + 60
    while worker.poll() is None and time.monotonic() < deadline:
        found = subprocess.run(
            [str(BIN / "kodoctl"), "status", "shop.yaml", "--format", "json"], stdout=subprocess.PIPE, check=True
        )
        lanes = json.loads(found.stdout)["topologies"][0]["lanes"]
        if all(lane["consumers"] for lane in lanes if lane["state"] != "dead"):
            return
        time.sleep(0.2)
    sys.exit(f"the consumer did not start\n{Path(WORKER_LOG).read_text()}")


def waits(log: Path) -> None:
    """How long each customer's orders waited from being sent to being billed."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for line in log.read_text().splitlines():
        customer, waited = line.split()
        seconds[customer].append(float(waited))
    print(f"\n  {'customer':<10} {'billed':>6} {'median wait':>12} {'longest':>9}")
    for customer, found in sorted(seconds.items(), key=lambda item: -len(item[1])):
        found.sort()
        print(f"  {customer:<10} {len(found):>6} {found[len(found) // 2]:>10.2f} s {found[-1]:>7.2f} s")


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder with the demo's files, where commands find no settings of the user's."""
    with tempfile.TemporaryDirectory(prefix="kodoctl-demo-") as scratch:
        folder = Path(scratch)
        for file in ("shop.yaml", "billing.py"):
            shutil.copy(HERE / file, folder)
        os.chdir(folder)
        os.environ["KODOCTL_CONFIG"] = str(folder / "kodoctl.toml")
        os.environ["KODOCTL_DEV_HOME"] = str(folder / "brokers")
        for variable in (
            "KODOCTL_ADMIN_URL",
            "KODOCTL_BROKER_URL",
            "KODOCTL_TOKEN",
            "KODOCTL_TOKEN_FILE",
            "KODOCTL_CONTEXT",
        ):
            os.environ.pop(variable, None)
        yield folder
        os.chdir(HERE)


def main() -> None:
    """The demo."""
    started = time.monotonic()
    with workplace() as folder, broker() as admin_url:
        show(folder, admin_url)
    print(f"\nDone in {time.monotonic() - started:.0f} s. Next: docs/tutorial.md builds this step by step.")


def show(folder: Path, admin_url: str) -> None:
    """All steps between the broker's start and its end."""
    title("One file declares the topology")
    run("kodoctl lint shop.yaml")
    run("kodoctl expand shop.yaml")
    title("Plan shows what would change, apply does exactly that")
    run("kodoctl plan shop.yaml --out plan.json")
    run("kodoctl apply plan.json", quiet=True)
    run("kodoctl plan shop.yaml --detailed-exitcode")
    title("Orders arrive: one noisy customer, one whose bank is down, some that are wrong")
    log = folder / "billed.txt"
    consume(log)
    waits(log)
    tell("mega is held to 100 a second, and nobody waits behind it. acme's failing bank held nobody up either.")
    title("Where the messages are now")
    run("kodoctl status shop.yaml --exact")
    tell(
        """mega's orders over the rate wait in pending, those over its quota in blocking; acme's failed twice in retrying and
        now wait ten minutes in B1; the wrong ones are dead letters, held until somebody looks."""
    )
    title("The file changes: the plan shows what that means")
    text = Path("shop.yaml").read_text()
    Path("shop.yaml").write_text(
        text.replace("retention: {time: 1d, size: 5GiB}", "retention: {time: 7d, size: 5GiB}").replace("100/s", "200/s")
    )
    run("kodoctl plan shop.yaml")
    run("kodoctl apply shop.yaml --auto-approve", quiet=True)
    title("Somebody changes the cluster by hand: drift finds it")
    by_hand(admin_url)
    run("kodoctl drift shop.yaml", expect=3)
    run("kodoctl apply shop.yaml --auto-approve", quiet=True)
    title("And the plan is empty again")
    run("kodoctl plan shop.yaml --detailed-exitcode")


def by_hand(admin_url: str) -> None:
    """What an operator might do with other tools."""
    from urllib.request import Request, urlopen

    base = f"{admin_url}/admin/v2/persistent/kodo/shop"
    for method, path, body in (
        ("POST", "orders/retention", b'{"retentionTimeInMinutes": 60, "retentionSizeInMB": 2048}'),
        ("DELETE", "orders-L2-billing-PENDING/subscription/billing", None),
        ("PUT", "forgotten-experiment/partitions", b"1"),
    ):
        print(f"# by hand: {method} …/{path} {(body or b'').decode()}")
        request = Request(f"{base}/{path}", data=body, method=method, headers={"Content-Type": "application/json"})
        urlopen(request, timeout=30).close()


if __name__ == "__main__":
    main()

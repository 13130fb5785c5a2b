"""kodoctl in one to two minutes, on a real broker: from one YAML file to a live, consumed topology.

Every command shown is really run, and what the texts say of it is checked: the demo fails where it is not so. The broker is started for the
demo and removed at its end, also by a signal; with `--keep` it is audited, and stays with a worker until Ctrl-C, to be looked at in `kodoctl ui`.
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
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from kodoctl.errors import ExitCode
from kodoctl.host.end_signals import signals_to

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
NAME = f"demo-{os.getpid()}"
CONSUMER_SECONDS = 15
QUIET = ("anna", "ben", "cleo", "dora")
RATE = 100  # orders a second, as the file says
QUOTA = 1500  # orders an hour
FAILING = 5  # orders of acme
FLOOD = 3000  # orders of mega
FIRST = 4711 - FLOOD - 20 * (len(QUIET) + 1)  # number of the first order, so that the first one of acme is 4711
WORKER_LOG = "worker.log"
AUDIT = "shop-audit.json"  # where the console looks for the verdict of shop.yaml
ENDING = threading.Event()  # somebody asked the demo to end
RUNNING: list[subprocess.Popen[str]] = []  # commands that a request to end ends, too


def title(text: str) -> None:
    """A step of the demo."""
    print(f"\n\033[1m── {text}\033[0m" if sys.stdout.isatty() else f"\n── {text}", flush=True)


def tell(text: str) -> None:
    """What to look at."""
    print(textwrap.fill(" ".join(text.split()), 80), flush=True)


def check(holds: bool, what: str) -> None:  # noqa: FBT001  # as `assert`, also under `python -O`
    """Ends the demo if a step does not show what its title promises."""
    if not holds:
        sys.exit(f"the last step of the demo does not show that {what}")


def run(command: str, *, expect: int = 0, quiet: bool = False, into: str = "", always: bool = False) -> str:
    """Shows and runs one command; any other exit code than `expect` ends the demo, and so does a request to end. `into`: file
    for its output; `always`: also after such a request.
    """
    if not always:
        wait(0)
    print(f"\n$ {command}{f' > {into}' if into else ''}", flush=True)
    program, *arguments = shlex.split(command)
    process = subprocess.Popen(
        [str(BIN / program), *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    if not always:
        RUNNING.append(process)
        if ENDING.is_set():  # the request came after the check above
            process.terminate()
    output, _ = process.communicate()
    if not always:
        RUNNING.remove(process)
        wait(0)
    if into:
        Path(into).write_text(output)
    elif not quiet:
        print(output.rstrip(), flush=True)
    if process.returncode != expect:
        sys.exit(f"the demo expected exit code {expect}, got {process.returncode}")
    return output


def wait(seconds: float) -> None:
    """Waits, or ends the demo if somebody asks for its end meanwhile."""
    if ENDING.wait(seconds):
        sys.exit(ExitCode.INTERRUPTED)


def end() -> None:
    """Asks the demo to end. Its commands have sessions of their own: a terminal's Ctrl-C comes to them from here alone."""
    ENDING.set()
    for process in [*RUNNING]:
        process.terminate()


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Context in which the signals that end a program lead through all cleaning up. A shell starts a program behind `&` with
    SIGINT ignored: it counts all the same; SIGHUP does not where `nohup` says so.
    """
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    with signals_to(end, numbers):
        yield


@contextmanager
def broker() -> Iterator[str]:
    """A development broker of our own, with a configuration of our own: nothing of the user's is touched."""
    title("A real Pulsar, started for this demo")
    tell("Without Docker it needs Java and Maven; its jars (270 MB) are downloaded once.")
    try:
        run(f"kodoctl dev up --name {NAME} --use")
        yield json.loads(run("kodoctl context show --format json", quiet=True))["admin_url"]
    finally:
        title("Cleaning up")
        run(f"kodoctl dev reset --name {NAME} --auto-approve", always=True)


def send_orders() -> None:
    """One customer floods, one is always broken, some orders are wrong, the rest is quiet."""
    from kodo_consumer import Producer

    numbers = count(FIRST)

    def order(customer: str, amount: int, plan: str = "basic") -> None:
        number = next(numbers)
        payload = {"order": number, "customer": customer, "amount": amount, "sent": time.time()}
        producer.post(payload, properties={"customer": customer, "plan": plan, "order": str(number)})

    with Producer.load("shop.yaml", topic="orders") as producer:
        for _ in range(FLOOD):
            order("mega", 10)
        for _ in range(20):
            for customer in QUIET:
                order(customer, 10)
            order("gold-gmbh", 10, plan="gold")
        for _ in range(FAILING):
            order("acme", 10)
        for _ in range(3):
            order("eve", -1)
        producer.flush()
    tell(
        "sent: 3,000 orders of mega at once, then 20 of each quiet customer, 5 of acme (always fails), 3 with a negative amount"
    )


def consume(log: Path, send: Callable[[], None] = send_orders, seconds: float = CONSUMER_SECONDS) -> None:
    """Orders that are sent while a worker is there, and `seconds` for it behind them."""
    with worker(log):
        send()
        wait(seconds)
        wait_until_nothing_is_retried()
    print(f"\n$ grep WARNING {WORKER_LOG}", flush=True)
    print(*(line for line in Path(WORKER_LOG).read_text().splitlines() if "WARNING" in line), sep="\n", flush=True)
    tell("Its traceback is there too, at most once in ten seconds; how often it came is in the counts above.")


@contextmanager
def worker(log: Path) -> Iterator[None]:
    """The reference consumer as a user runs it, ended by SIGTERM as a scheduler would."""
    command = "kodo-consumer run shop.yaml --topic orders --subscription billing --handler billing:bill"
    print(f"\n$ {command} 2> {WORKER_LOG} &", flush=True)
    program, *arguments = shlex.split(command)
    paths = filter(None, (os.getcwd(), os.environ.get("PYTHONPATH")))
    environ = {**os.environ, "DEMO_LOG": str(log), "PYTHONPATH": os.pathsep.join(paths)}
    with Path(WORKER_LOG).open("wb") as log_file:
        process = subprocess.Popen(
            [str(BIN / program), *arguments], env=environ, stderr=log_file, start_new_session=True
        )
    try:
        wait_until_it_consumes(process)
        yield
        print(f"\n$ kill -TERM {process.pid}", flush=True)
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            sys.exit(f"the consumer did not end with exit code 0\n{Path(WORKER_LOG).read_text()}")
    finally:
        process.kill()


def wait_until_it_consumes(worker: subprocess.Popen[bytes]) -> None:
    """Until the broker shows a consumer on every lane."""
    deadline = time.monotonic() + 60
    while worker.poll() is None and time.monotonic() < deadline:
        if all(lane["consumers"] for (_, state), lane in lanes().items() if state != "dead"):
            return
        wait(0.2)
    sys.exit(f"the consumer did not start\n{Path(WORKER_LOG).read_text()}")


def lanes() -> dict[tuple[str, str], dict[str, Any]]:
    """Lanes by level and state, as `kodoctl status` has them."""
    found = subprocess.run(
        [str(BIN / "kodoctl"), "status", "shop.yaml", "--format", "json"],
        stdout=subprocess.PIPE, check=True, start_new_session=True,
    )  # fmt: skip
    return {(lane["level"], lane["state"]): lane for lane in json.loads(found.stdout)["topologies"][0]["lanes"]}


def wait_until_nothing_is_retried() -> None:
    """Until what always fails has come to B1, where it waits for ten minutes."""
    deadline = time.monotonic() + 60
    while lanes()["B1", "ready"]["delayed"] < FAILING:
        check(time.monotonic() < deadline, f"{FAILING} orders of acme come to B1")
        wait(0.5)


def waits(log: Path) -> int:
    """How long each customer's orders waited from being sent to being billed. Answers how many of mega's were."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for line in log.read_text().splitlines():
        customer, waited = line.split()
        seconds[customer].append(float(waited))
    print(f"\n  {'customer':<10} {'billed':>6} {'median wait':>12} {'longest':>9}")
    for customer, found in sorted(seconds.items(), key=lambda item: -len(item[1])):
        found.sort()
        print(f"  {customer:<10} {len(found):>6} {found[len(found) // 2]:>10.2f} s {found[-1]:>7.2f} s")
    counts = {customer: len(found) for customer, found in seconds.items()}
    mega = seconds["mega"]
    check(counts == {"mega": counts["mega"], **dict.fromkeys((*QUIET, "gold-gmbh"), 20)}, f"who is billed: {counts}")
    most = RATE + RATE * (mega[-1] - mega[0] + 1)
    check(0 < len(mega) <= most, f"mega is held to {RATE} a second: {len(mega)} in {mega[-1] - mega[0]:.0f} s")
    for customer in QUIET:
        middle = seconds[customer][10]
        check(middle < mega[len(mega) // 2], f"{customer} does not wait behind mega: {middle:.1f} s")
    return len(mega)


def check_places(billed: int) -> None:
    """Where the messages are, as the text about them says. `billed`: orders of mega; at its quota none is left in pending."""
    found = lanes()
    waiting = {state: found["L1", state]["delayed"] for state in ("pending", "blocking")}
    check(bool(waiting["pending"]) or billed == QUOTA, f"mega's orders over the rate wait in pending: {waiting}")
    check(bool(waiting["blocking"]), f"mega's orders over the quota wait in blocking: {waiting}")
    check(found["B1", "ready"]["delayed"] == FAILING, f"acme's wait in B1: {found['B1', 'ready']}")
    check(found["", "dead"]["entries"] > 0, "wrong ones are dead letters")
    check(not any(found[level, "retrying"]["entries"] for level in ("L1", "L2")), "nothing is left in retrying")


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder with the demo's files, where commands find no settings of the user's; signals end what is done there in order."""
    with tempfile.TemporaryDirectory(prefix="kodoctl-demo-") as scratch, ending_in_order():
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
        try:
            yield folder
        finally:
            os.chdir(HERE)


def main() -> None:
    """The demo."""
    started = time.monotonic()
    with workplace() as folder, broker() as admin_url:
        show(folder, admin_url)
        done = f"Done in {time.monotonic() - started:.0f} s. "
        if "--keep" in sys.argv[1:]:
            audit()
            keep(folder, time.monotonic() - started)
            done = ""
    print(f"\n{done}Next: docs/tutorial.md builds this step by step.")


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
    billed = waits(log)
    tell("mega is held to 100 a second, and nobody waits behind it. acme's failing bank held nobody up either.")
    title("Where the messages are now")
    run("kodoctl status shop.yaml --exact")
    check_places(billed)
    tell(
        """mega's orders over the rate wait in pending for their turn, those over its quota in blocking; acme's failed twice in retrying and
        now wait ten minutes in B1; the wrong ones are dead letters, held until somebody looks."""
    )
    title("The file changes: the plan shows what that means")
    text = Path("shop.yaml").read_text()
    Path("shop.yaml").write_text(
        text.replace("retention: {time: 1d, size: 5GiB}", "retention: {time: 7d, size: 5GiB}").replace("100/s", "200/s")
    )
    plan = run("kodoctl plan shop.yaml")
    check("time 1d → 7d" in plan and "limit: 200/s" in plan, "the plan shows both changes")
    run("kodoctl apply shop.yaml --auto-approve", quiet=True)
    title("Somebody changes the cluster by hand: drift finds it")
    by_hand(admin_url)
    drift = run("kodoctl drift shop.yaml", expect=3)
    check("Drift: 2 objects" in drift and "forgotten-experiment" in drift, "drift finds what was changed by hand")
    run("kodoctl apply shop.yaml --auto-approve", quiet=True)
    title("And the plan is empty again")
    run("kodoctl plan shop.yaml --detailed-exitcode")


def audit() -> None:
    """A verdict about the orders so far, for the console."""
    title("Was anything lost? An audit of what is stored says so, and the console shows its verdict")
    run("kodoctl pipeline ingest shop.yaml", quiet=True)
    run("kodoctl pipeline audit shop.yaml --format json", into=AUDIT)
    tell(f"Its verdict: {json.loads(Path(AUDIT).read_text(encoding='utf-8'))['verdict']}.")


def keep(folder: Path, seconds: float) -> None:
    """Keeps broker, folder and a worker until it is asked to end, so that the console can be opened on them. `seconds`:
    duration of the demo so far.
    """
    title(f"It stays, with a worker, after {seconds:.0f} s: look at it in the console")
    with worker(folder / "billed.txt"):
        tell("In another terminal, this prints an address to open:")
        print(
            f"\n{shlex.join(['cd', str(folder)])} && {shlex.join([str(BIN / 'kodoctl'), 'ui', 'shop.yaml'])}\n",
            flush=True,
        )
        tell(
            "Search it for order 4711, which is of acme. Ctrl-C or SIGTERM here ends worker and broker, and removes the folder."
        )
        ENDING.wait()
        print("\nEnds: the worker first, then the broker.", flush=True)


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

"""kodoctl beside Terraform with the Pulsar provider: the same topics on the same broker, in one run.

    python benchmarks/plan_apply/terraform.py --provider FOLDER [--topics 300] [--rounds 1] [--cap 540] [--out FILE] [ARM ...]

Needs KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL (for example from `kodoctl dev up`) and `terraform` on the PATH; FOLDER holds
the provider's binary (README.md says how it is built). Arms, each in a namespace of its own: `kodoctl`; `terraform-50` and
`terraform-10`, which is -parallelism, 10 being Terraform's default; `floor`, the same writes and deletes by bare concurrent
requests, nothing verified. Topics have one partition, 4 policies (retention, backlog quota, TTL, maximum of producers) and
one subscription. Steps of an arm: apply into the empty namespace; plan with nothing to change; the TTL of one topic changed,
applied; destroy. `terraform-50` plans with nothing to change once more at a parallelism of 10, on the same topics.

kodoctl's modules are compiled once before, as an installation does. Wall and CPU seconds are those of the command and its children, memory is that of the largest of them. Requests are counted by
the broker (`jetty_requests_total`), so nothing else may talk to it; kodoctl's reading of the change log is no request there.
A step over `--cap` seconds is killed: DNF, and its arm ends. Every step is a line of FILE, by default terraform.jsonl.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import requests
from measure import HERE, KODOCTL, floor, record, topology

ARMS = ("kodoctl", "floor", "terraform-50", "terraform-10")
CHANGED = "t00007"  # the topic whose TTL one step changes
_SERVED = re.compile(r"^jetty_requests_total\S* (\S+)$", re.MULTILINE)

_CONFIGURATION = """\
terraform {{
  required_providers {{ pulsar = {{ source = "streamnative/pulsar" }} }}
}}
provider "pulsar" {{ web_service_url = "{admin}" }}
locals {{ topics = {{ for i in range({topics}) : format("t%05d", i) => 1209600 }} }}
variable "changed" {{
  type    = map(number)
  default = {{}}
}}
resource "pulsar_namespace" "n" {{
  tenant    = "bench"
  namespace = "{name}"
}}
resource "pulsar_topic" "t" {{
  for_each   = merge(local.topics, var.changed)
  tenant     = "bench"
  namespace  = pulsar_namespace.n.namespace
  topic_type = "persistent"
  topic_name = each.key
  partitions = 1
  retention_policies {{
    retention_time_minutes = 10080
    retention_size_mb      = 20480
  }}
  backlog_quota {{
    limit_bytes   = "5368709120"
    limit_seconds = "-1"
    policy        = "producer_request_hold"
    type          = "destination_storage"
  }}
  topic_config {{
    message_ttl_seconds = each.value
    max_producers       = 100
  }}
}}
resource "pulsar_subscription" "s" {{
  for_each          = local.topics
  topic_name        = pulsar_topic.t[each.key].id
  subscription_name = "s"
  position          = "earliest"
}}
"""

Steps = Iterator[tuple[str, list[str]]]


def served(admin: str) -> int:
    """Requests that the broker has answered so far, this one among them the next time."""
    answer = requests.get(f"{admin}/metrics/", timeout=60)
    answer.raise_for_status()
    return int(float(_SERVED.search(answer.text).group(1)))


def timed(command: list[str], folder: Path, cap: float, admin: str) -> dict[str, object]:
    """One command as a whole process: seconds, CPU, peak memory, requests, how it ended. Killed after `cap` seconds."""
    before = served(admin)
    with (folder / "log").open("w") as log:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        ended = ""
        while True:
            over, status, usage = os.wait4(process.pid, os.WNOHANG)
            if over:
                break
            if not ended and time.monotonic() - began > cap:
                ended = "DNF"
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.01)
        wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not ended:
        sys.exit(f"{command}: exit {process.returncode}\n{(folder / 'log').read_text()[-3000:]}")
    return {
        "wall_s": round(wall, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mib": usage.ru_maxrss >> 10,
        "requests": served(admin) - before - 1,
        "ended": ended or "done",
    }


def kodoctl_steps(folder: Path, name: str, topics: int) -> Steps:
    """Steps of kodoctl: one file, which one step changes."""
    file = folder / f"{name}.yaml"
    text = topology(name, topics)
    file.write_text(text)
    yield "apply, empty namespace", [*KODOCTL, "apply", file.name, "--auto-approve"]
    yield "plan, nothing to change", [*KODOCTL, "plan", file.name]
    changed = f"  {CHANGED}: {{policies: {{ttl: 13d}}, "
    file.write_text(text.replace(f"  {CHANGED}: {{", changed))
    yield "apply, one TTL changed", [*KODOCTL, "apply", file.name, "--auto-approve"]
    yield "destroy", [*KODOCTL, "destroy", file.name, "--auto-approve"]


def terraform_steps(folder: Path, name: str, topics: int, parallelism: int, admin: str) -> Steps:
    """Steps of Terraform: one configuration, of which a variable changes one topic."""
    (folder / "main.tf").write_text(_CONFIGURATION.format(admin=admin, name=name, topics=topics))
    changed = ["-var", f"changed={{{CHANGED}=1123200}}"]
    wide = [f"-parallelism={parallelism}"]
    yield "apply, empty namespace", ["terraform", "apply", "-auto-approve", "-no-color", *wide]
    yield "plan, nothing to change", ["terraform", "plan", "-no-color", *wide]
    if parallelism != 10:
        yield "plan, nothing to change, parallelism 10", ["terraform", "plan", "-no-color"]
    yield "apply, one TTL changed", ["terraform", "apply", "-auto-approve", "-no-color", *wide, *changed]
    yield "destroy", ["terraform", "destroy", "-auto-approve", "-no-color", *wide, *changed]


def run_arm(arm: str, topics: int, number: int, cap: float, out: Path) -> None:
    """All steps of one arm; every step is one line of `out`."""
    admin = os.environ["KODOCTL_ADMIN_URL"].rstrip("/")
    name = f"{arm}-{number}-{int(time.time())}"
    about = {"arm": arm, "topics": topics, "round": number}
    if arm == "floor":
        for step, seconds in floor(admin, name, topics).items():
            record({**about, "step": step, "wall_s": seconds, "load": os.getloadavg()[0]}, out)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        steps = (
            kodoctl_steps(folder, name, topics)
            if arm == "kodoctl"
            else terraform_steps(folder, name, topics, int(arm.partition("-")[2]), admin)
        )
        for step, command in steps:
            result = {**about, "step": step, "load": os.getloadavg()[0], **timed(command, folder, cap, admin)}
            record(result, out)
            if result["ended"] != "done":
                return


def provided(folder: Path, home: Path) -> None:
    """Terraform takes the provider from `folder`, without a registry and without asking home whether it is the newest."""
    if not (folder / "terraform-provider-pulsar").is_file():
        sys.exit(f"no terraform-provider-pulsar in {folder}: README.md says how it is built")
    settings = home / "cli.tfrc"
    overrides = f'dev_overrides {{ "streamnative/pulsar" = {json.dumps(str(folder.resolve()))} }}'
    settings.write_text(f"provider_installation {{\n  {overrides}\n  direct {{}}\n}}\n")
    os.environ.update(TF_CLI_CONFIG_FILE=str(settings), CHECKPOINT_DISABLE="1")


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arms", nargs="*", default=ARMS, metavar="ARM", help=", ".join(ARMS))
    parser.add_argument("--provider", type=Path, required=True)
    parser.add_argument("--topics", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cap", type=float, default=540.0)
    parser.add_argument("--out", type=Path, default=HERE / "terraform.jsonl")
    options = parser.parse_args()
    if unknown := set(options.arms) - set(ARMS):
        sys.exit(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}")
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux"
    record({"machine": machine, "when": time.strftime("%Y-%m-%d"), "load_before": os.getloadavg()[0]}, options.out)
    compileall.compile_dir(HERE.parents[1] / "kodoctl", quiet=1)
    with tempfile.TemporaryDirectory() as home:
        provided(options.provider, Path(home))
        for number in range(options.rounds):
            for arm in options.arms:
                run_arm(arm, options.topics, number, options.cap, options.out)


if __name__ == "__main__":
    main()

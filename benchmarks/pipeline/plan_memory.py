"""Memory of a recall plan of millions: written by the code of every `recall plan`, read by that of every `recall apply`.

    python benchmarks/pipeline/plan_memory.py [--letters 1000000 10000000] [--out benchmarks/pipeline/plan_memory.jsonl]

Needs no broker and no Spark: letters of 16 partitions are made one after the other, as a selector hands them over. Each step is a process of its own;
its peak is what the kernel counts (`ru_maxrss`, MiB, with Python, Arrow and SQLite themselves). `bare`: the same imports, and no letter.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from kodo_pipeline.recall.select_job import CandidateRow

from kodoctl.recall.filter.condition import parse
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.destinations import family_of
from kodoctl.recall.plan.letter_table import check_table, segments
from kodoctl.recall.plan.recall_plan import LetterTable, RecallAction, RecallPlan
from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest
from kodoctl.topology.load import load_topology

NOW = 1_800_000_000_000
PARTITIONS = 16
TOPOLOGY = """
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders: {partitions: 16, subscriptions: {billing: {}}}
"""


def plan(folder: Path, letters: int) -> LetterTable:
    """Selects letters that are made here into a plan's table, with the code that every plan uses."""
    file = folder / "trade.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    family = family_of(load_topology(str(file)), "orders", "billing")
    asked = SelectionRequest(RecallAction.SEND, family, parse("true", NOW), "r1", None, letters, again=False, edit=None)
    selection = LetterSelection(asked)
    share = letters // PARTITIONS
    for number in range(share * PARTITIONS):
        partition, entry = divmod(number, share)
        properties = {
            "kodo-id": f"id-{number}",
            "kodo-reason": f"r{number % 9}",
            "kodo-level": "L1",
            "kodo-origin-id": f"9:{number}:{partition}:-1",
        }
        selection.read += 1
        letter = CandidateRow(
            family.source_topic, Position(partition, 7, entry), b"x", properties, f"k{number % 1_000}", publish_time=NOW - letters + number,
            tenant=f"t{number % 50}", fingerprint=sha256(b"%d" % number).hexdigest()[:32], length=1_024, is_text=True,
        )  # fmt: skip
        selection.consider(letter, chosen=True)
    selection.finish(folder / "letters")
    assert selection.written is not None
    return selection.written


def read(table: LetterTable) -> int:
    """Rows of the table, as an attempt takes them: checked, then a segment at a time."""
    check_table(table)
    known: Any = dict.fromkeys(RecallPlan.__dataclass_fields__)
    made = RecallPlan(**{**known, "table": table})
    return sum(len(one.letters) + len(one.unsent) for one in segments(made))


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result of a step, its seconds and its peak in MiB, in a process of its own."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_work, args=(work, theirs))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def _work(work: Callable[[], Any], answer: Any) -> None:
    began, cpu = time.monotonic(), time.process_time()
    found = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    facts = {
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_mib": round(peak),
    }
    answer.send((found, facts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--out", default=str(Path(__file__).parent / "plan_memory.jsonl"))
    asked = parser.parse_args()
    import pyarrow.parquet  # noqa: F401 - of every process here

    for letters in asked.letters:
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            _, bare = measured(lambda: None)
            table, planned = measured(lambda folder=folder, letters=letters: plan(folder, letters))
            rows, applied = measured(lambda table=table: read(table))
            assert rows == table.rows == table.letters
            size = round(table.path.stat().st_size / 2**20)
        at = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
        line = json.dumps(
            {
                "at": at,
                "letters": table.letters,
                "file_mib": size,
                "load_before": round(load, 1),
                "bare": bare,
                "plan": planned,
                "read": applied,
            }
        )
        print(line, flush=True)
        with Path(asked.out).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()

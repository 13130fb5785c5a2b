"""Sending of a recall plan's letters by Spark: each task sends to lanes of its own, by the same code as without Spark.

The process that started Spark is the holder of the dead letters, and acknowledges them when the recall ledger has them
(kodoctl.recall.send.sender). A task reads letters without consuming, sends them, and appends to the recall ledger. If a
task is killed, its lanes are as after a killed attempt without Spark, and the next attempt continues there. A task has
its part of one segment of the plan, and one batch of letters, in memory.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.spark.spark_errors import spark_error, words
from kodoctl.documents.recall_document import SendReport
from kodoctl.errors import error
from kodoctl.protocol.signing import Signer
from kodoctl.pulsar.session import Session
from kodoctl.recall.cluster import RecallCluster
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.plan.partitioning import partition_plan
from kodoctl.recall.send.rate_limit import RateLimit
from kodoctl.recall.send.sender import RecallSender
from kodoctl.recall.send.sends_in_flight import SendOptions
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.connection.secret import Secret
    from kodoctl.recall.message.payload_patch import Edit
    from kodoctl.recall.message.stored_message import Position
    from kodoctl.recall.plan.recall_plan import RecallPlan

AT_ONCE: Final = 10_000  # letters that a task books at once: two commits of the ledger are worth that many sends
_REPORTS: Final = "crew bigint, report string"


@dataclass(frozen=True, slots=True)
class SendTask:
    """Work of one Spark task. `plan`: has only the letters (dead letters) of the task's lanes; `ledger`: absolute
    address of the recall ledger; `edit`: patch of the payloads, None: none; `per_second`: the task's share of the rate,
    in letters; `who`: the user, for the ledger; `keys`: signing keys, None: headers are not signed; `largest`,
    `compression`: see kodoctl.recall.cluster.RecallCluster; `booked`: see kodoctl.recall.send.plan_ledger.PlanLedger.
    """

    plan: RecallPlan
    connection: Connection
    ledger: str
    edit: Edit | None
    per_second: float
    who: str
    keys: Secret | None
    largest: Mapping[str, int] = field(default_factory=dict)
    compression: Mapping[str, str] = field(default_factory=dict)
    booked: Mapping[str, int] | None = None

    def run(self) -> SendReport:
        """Sends the letters, records them in the ledger, acknowledges none, and returns the report. Runs in a Python
        process of a Spark executor. Raises KodoctlError.
        """
        signer = Signer.parse(self.keys.reveal()) if self.keys is not None else None
        pace = RateLimit(self.per_second)
        orders = SendOptions(
            pace, self.who, _now, threading.Event(), _untold, signer, AT_ONCE, holds=False, booked=self.booked
        )
        with Session(self.connection) as session:
            cluster, ledger = RecallCluster(session, self.largest, self.compression), DeltaLedger(self.ledger)
            return RecallSender(self.plan, cluster, ledger, self.edit, orders).run()


def _now() -> int:
    return int(time.time() * 1000)


def _untold(done: int, total: int) -> None:
    """Ignores the progress of a task, which nobody watches."""


@dataclass(frozen=True)
class ParallelSender:
    """Sender of a plan, or of a segment of it, by Spark. `ledger`: address of the recall ledger, which every task must
    be able to reach; `per_second`: rate of all tasks together, in letters; `orders`: settings of the attempt, of which
    only `stop` and `who` are used; `open_spark`: makes a context with the Spark session, which is entered at the first
    call and serves all; `report`: prints a line; `stack`: ends the session when it is closed; `keys`: signing keys,
    None: headers are not signed; all others: as in SendTask.
    """

    connection: Connection
    ledger: str
    edit: Edit | None
    per_second: float
    orders: SendOptions
    open_spark: Callable[[], AbstractContextManager[SparkSession]]
    report: Callable[[str], None]
    stack: ExitStack
    keys: Secret | None = None
    largest: Mapping[str, int] = field(default_factory=dict)
    compression: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self, plan: RecallPlan, lanes: Collection[int], without: Container[Position], booked: Mapping[str, int]
    ) -> int:
        """Sends the plan's letters for `lanes` (indices into the plan's lanes, which are target partitions), except
        those at the positions `without`, and returns, when all tasks have ended, the number of letters that the broker
        dropped because it had stored them before. The recall ledger then has all that was sent. `plan`: has its letters
        in memory (no table); `booked`: see kodoctl.recall.send.plan_ledger.PlanLedger.

        Once `orders.stop` is set, cancels the tasks and returns 0 soon after: letters may then be in doubt, as after a
        killed attempt. Raises KodoctlError if a task failed; letters may be sent then, too.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        DeltaLedger(self.ledger).create()  # before tasks that would create it side by side
        spark = self._spark
        plans = partition_plan(plan, lanes, spark.sparkContext.defaultParallelism, without)
        errands = self._errands(plans, booked)
        letters = sum(len(one.letters) for one in plans)
        into = many(len(lanes), "lane") + (f", {len(plans):,} at a time" if len(lanes) > 1 else "")
        self.report(f"Sending {many(letters, 'letter')} into {into}.")
        with self._interruptible(spark):
            try:
                return _total(_reports(spark, errands))
            except (PySparkException, Py4JError) as problem:  # a cancelled job is none of Python's
                if self.orders.stop.is_set():
                    return 0
                text = str(problem)
                detail = f"{words(text)}\nthe same command again goes on where it was, and sends nothing twice"
                otherwise = error("K823", "a task of Spark's that sends letters failed", detail)
                raise spark_error(text, otherwise) from None

    @cached_property
    def _spark(self) -> SparkSession:
        """Session for all segments, started at first use."""
        interrupted = signal.getsignal(signal.SIGINT)
        spark = self.stack.enter_context(self.open_spark())
        self.stack.enter_context(_interrupts_to(interrupted))
        return spark

    def _errands(self, plans: list[RecallPlan], booked: Mapping[str, int]) -> list[SendTask]:
        ledger = self.ledger if "://" in self.ledger else str(Path(self.ledger).absolute())
        letters = sum(len(one.letters) for one in plans)
        return [
            SendTask(
                plan,
                self.connection,
                ledger,
                self.edit,
                self.per_second * len(plan.letters) / letters,
                self.orders.who,
                self.keys,
                self.largest,
                self.compression,
                booked,
            )
            for plan in plans
        ]

    @contextmanager
    def _interruptible(self, spark: SparkSession) -> Iterator[None]:
        """Context in which a thread cancels Spark's jobs once `orders.stop` is set, because tasks cannot be stopped in
        order.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.2):
                if self.orders.stop.is_set():  # again and again: the job may begin a moment later
                    with suppress(Exception):  # nothing to cancel, or nobody to ask: neither may end this thread
                        spark.sparkContext.cancelAllJobs()

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()


@contextmanager
def _interrupts_to(handler: Any) -> Iterator[None]:
    """Context in which SIGINT goes to `handler`, the one from before Spark started. Spark's own handler would raise
    from any line of code. Outside of the main thread nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and before is not handler
    if ours:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def _reports(spark: SparkSession, errands: list[SendTask]) -> list[SendReport]:
    """Runs one task for each errand, side by side, and returns their reports."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                document = json.dumps(asdict(errands[number].run()))
                yield pa.RecordBatch.from_pydict({"crew": [number], "report": [document]})

    numbers = spark.range(0, len(errands), 1, len(errands))
    return [SendReport(**json.loads(row["report"])) for row in numbers.mapInArrow(work, _REPORTS).collect()]


def _total(reports: list[SendReport]) -> int:
    return sum(one.had_already for one in reports)

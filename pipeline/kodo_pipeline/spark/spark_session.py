"""Factory of Spark sessions: silent, in UTC, and the same code on a laptop, a cluster or in a session of the caller.

Spark starts a Java process that prints eight lines before it has read any configuration: its output goes to a file,
which is read only if it does not start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from kodo_pipeline.spark.java_classes import keep_java_classes
from kodo_pipeline.spark.spark_errors import spark_error, words
from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.host.host_facts import home_folder, is_listed_user, user_name
from kodoctl.host.programs import SAFE_PATH, runs_nothing_here

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import DataFrame, SparkSession

    Session = SparkSession
    """For who may not import Spark."""

LOCAL: Final = "local[*]"
_YES: Final = "1"
_PYTHON: Final = "PYSPARK_PYTHON"
_LOG: Final = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS: Final = f"-Xss8m -Dlog4j2.configurationFile={_LOG.as_uri()}"
"""With a deep stack: Spark up to 4.1 runs over its stack when a query is stopped while our source is read."""
_SQL: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",  # our source pushes down; Spark refuses it when this is off
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.hugeMethodLimit": "8000",  # Java never compiles a longer method: our wide rows would be interpreted
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",  # 10,000 payloads that a condition reads may be gigabytes
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # 96 bits have no statistics, and others read them otherwise
    "spark.sql.maxConcurrentOutputFileWriters": "20",  # partitions of a task side by side: else rows are sorted by them first
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "500",  # a job that asks after each file costs more than asking
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.sql.hive.filesourcePartitionFileCacheSize": "0",  # else up to 250 MB of listed files, which only their reader asks for
}
"""What our plans rely on: set in a session of our own, whoever made the context."""
_CONTEXT: Final = {
    f"spark.executorEnv.{SAFE_PATH}": _YES,  # workers run nothing because it lies in a folder that Spark was started in
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",  # two attempts at once would read, or send, twice
    "spark.sql.codegen.cache.maxEntries": "2000",  # an audit has more than Spark's 100, and each would be compiled every time
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # asks Java four things for each expression of a plan
    "spark.sql.dataFrameQueryContext.enabled": "false",  # takes a stack trace of Java for each of these expressions
    "spark.sql.ui.explainMode": "simple",  # of the words of each plan, which are made without a page as well
    "spark.buffer.pageSize": "2m",  # each small table of a join takes one: by itself 64 MB of a heap of 2 GB on two cores
    "spark.sql.ui.retainedExecutions": "50",  # kept without a page as well, with the words of each plan
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
}
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
_LIGHT: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
"""For a few rows: most of what Spark and Java then spend is compiling what runs once, and planning anew behind each stage."""
_JAVA: Final = "spark.driver.extraJavaOptions"
_NIMBLE: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""With as much room for code as Java takes otherwise: with one compiler it takes 48 MB, and when they are full, which they are
behind some hundred queries, a thread of Spark's own can end, and the query waits for ever.
"""
_COLLECTORS: Final = {False: "-XX:+UseParallelGC", True: "-XX:+UseSerialGC"}
"""By whether there is little to do. Java's own choice shortens pauses, which nobody here waits for: an audit of a
million took 8 % less time without it, a tenth less in a session that is warm (benchmarks/pipeline).
"""
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_READS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_RELIED: Final = ("spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled", "spark.speculation")
"""Whoever changed these would get other answers."""
_STORE: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
)  # fmt: skip
"""How the environment names an object store and the way in, for Spark, Arrow and deltalake alike."""


_ENDED: Final = """its Java process has ended
the system ends it when memory runs out, and dmesg tells: take less with --conf spark.driver.memory=…, or a larger machine"""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """`master`: Spark's address of a cluster, or `local[n]`; None: the master of `spark-submit`, else every core here.
    `extra` wins over our own settings. `submitted`: the process was started by `spark-submit`, which has made a
    context's settings. `light`: a session of our own on this machine has little to do
    (kodo_pipeline.landing.landing_store tells). `environ`: of the process, which names an object store and the way
    in.
    """

    master: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    submitted: bool = False
    light: bool = False
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def at(self) -> str | None:
        """Spark's master; None: it is in the settings of the context already."""
        return self.master or (None if self.submitted else LOCAL)

    @property
    def configuration(self) -> dict[str, str]:
        """Settings of a new context."""
        if self.submitted:
            return {}
        local = _LOCAL | (_LIGHT if self.light else {}) if self.is_local else {}
        ours = {**_CONTEXT, **_SQL, **local, **_store(self.environ)}
        return {**ours, **self.extra, _JAVA: " ".join(self._java())}

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for executors on other machines. Spark passes the settings of the store for its own
        tables alone, and tasks of kodoctl write there, too.
        """
        return (
            {}
            if self.submitted or self.is_local
            else {name: self.environ[name] for name in _STORE if name in self.environ}
        )

    def _java(self) -> Iterator[str]:
        """Java refuses two collectors, so one that the user names is the only one."""
        given = self.extra.get(_JAVA, "")
        yield JAVA_OPTIONS
        if not is_listed_user():  # Java would take "?" for the home folder, and Spark refuses a relative one
            yield shlex.quote(f"-Duser.home={home_folder(self.environ)}")
        if self.is_local:
            if self.light:
                yield _NIMBLE
            if not any(
                _COLLECTOR.search(one) for one in (given, *(self.environ.get(name, "") for name in _JAVA_READS))
            ):
                yield _COLLECTORS[self.light]
        if given:
            yield given

    @property
    def is_local(self) -> bool:
        """True if Spark runs on this machine alone, in a context of our own."""
        return self.at is not None and self.at.startswith("local")


def _store(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings that the S3 connector of Spark does not take from the environment by itself, and Arrow does."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    found = {"spark.hadoop.fs.s3a.endpoint.region": region} if region else {}
    return found | ({"spark.hadoop.fs.s3a.path.style.access": "true"} if environ.get("AWS_ENDPOINT_URL") else {})


def configuration_of(pairs: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE`, as spark-submit takes them. Raises UsageError with every one that is
    wrong; values may be secrets.
    """
    split = [(key.strip(), sign, value.strip()) for key, sign, value in (pair.partition("=") for pair in pairs)]
    wrong = [
        f"--conf {key}: KEY=VALUE, and KEY begins with spark."
        for key, sign, _ in split
        if not sign or not key.startswith("spark.")
    ]
    wrong += [
        f"--conf {key}: kodoctl's answers rest on it, so it stays as it is" for key, *_ in split if key in _RELIED
    ]
    if wrong:
        raise UsageError(*(error("K578", "settings of Spark", detail) for detail in wrong))
    return {key: value for key, _, value in split}


def check_installed() -> None:
    """Raises UsageError when the extra is not."""
    try:
        import pyarrow as pa  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as problem:
        detail = f"{problem.name} is missing: pip install '.[spark]' in a clone of kodoctl (some 1 GB; Java 17 or 21 as well)"
        raise UsageError(error("K570", "Spark is not installed", detail)) from None


def open_session(settings: SparkSettings | None = None) -> SparkSession:
    """A session: of the context that runs in this process, else of a new one. Takes 5 to 10 s for a new one.

    Raises UsageError without the extra, KodoctlError when Spark does not start.
    """
    check_installed()
    from pyspark.sql import SparkSession

    asked = settings or SparkSettings()
    running = SparkSession.getActiveSession()
    session = running.newSession() if running else _start_session(asked)
    if session.sparkContext.pythonExec == "python3":  # nobody said which; the first on PATH may be any
        session.sparkContext.pythonExec = sys.executable
    if not running:  # workers of a session of the caller's import as the caller wants
        session.sparkContext.environment.setdefault(SAFE_PATH, _YES)
    keep_java_classes(session)
    for key, value in {**_SQL, **asked.extra}.items():
        if running or asked.submitted:
            with contextlib.suppress(Exception):  # what only a context takes is its maker's business
                session.conf.set(key, value)
    return session


@contextlib.contextmanager
def spark_session(settings: SparkSettings | None = None) -> Iterator[SparkSession]:
    """The same for the length of a block. Behind it the session is ended, or the one that was running is the active
    one again. What fails in Spark is a KodoctlError.
    """
    check_installed()
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    session = open_session(settings)
    if running is not None:
        _make_active(session)
    logging.getLogger().addFilter(_is_not_of_py4j)
    try:
        with spark_failures(session):
            yield session
    finally:
        if running is None:
            with contextlib.suppress(ConnectionError, Py4JError), warnings.catch_warnings():  # it has ended by itself
                warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark", RuntimeWarning)
                session.stop()
        else:
            _make_active(running)
        logging.getLogger().removeFilter(_is_not_of_py4j)


@contextlib.contextmanager
def spark_failures(session: SparkSession) -> Iterator[None]:
    """Raises KodoctlError (K577) for every error of Spark in the block. A ConnectionError is raised unchanged unless
    the Spark session has ended.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as problem:
        if has_ended(session):
            raise KodoctlError(error("K577", "Spark failed", _ENDED)) from None
        if isinstance(problem, ConnectionError):
            raise
        text = str(problem)
        raise spark_error(text, error("K577", "Spark failed", words(text))) from None


def set_light(session: SparkSession, settings: SparkSettings, *, light: bool) -> None:
    """Has the queries that follow compile nothing, or as the settings say: in a session of our own on this machine, which
    one run after another uses. What the user set stays.
    """
    if not settings.is_local:
        return
    for key, value in _LIGHT.items():
        if key not in settings.extra:
            if light:
                session.conf.set(key, value)
            elif (configured := settings.configuration.get(key)) is not None:
                session.conf.set(key, configured)
            else:
                session.conf.unset(key)


def cancel_jobs(session: SparkSession) -> None:
    """Cancels all that its context does, batches of streams included: who waits for it gets an error. Of a Java process
    that has ended nothing is to be cancelled.
    """
    from py4j.protocol import Py4JError

    with contextlib.suppress(ConnectionError, Py4JError):
        session.sparkContext.cancelAllJobs()


def has_ended(session: SparkSession) -> bool:
    """True if its Java process is not there any more."""
    from py4j.protocol import Py4JError

    try:
        return not session.version
    except (ConnectionError, Py4JError):
        return True


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """False for the traceback that py4j logs with the root logger when Java ends during a call: it also raises an
    error, which is reported once.
    """
    return record.module != "java_gateway"


def _make_active(session: SparkSession) -> None:
    """Spark looks a source up in the active session, whoever asks and registers; a session becomes that whenever a
    frame of rows is made in it. So ours is while it is in use, else sources of its maker's would stand in the way of
    ours, and not behind that, else its maker's would be unknown.
    """
    with contextlib.suppress(Exception):  # its context was ended meanwhile
        session.createDataFrame([], "n int")


def small_table(session: SparkSession, rows: Iterable[Mapping[str, Any] | Sequence[Any]], schema: str) -> DataFrame:
    """A table of these rows, by name or in the order of its columns, that is part of the plan (Spark's
    LocalRelation): a list would become a data set in Java, and each join with it a job of its own.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    kind = cast("StructType", StructType.fromDDL(schema))
    named = [row if isinstance(row, Mapping) else dict(zip(kind.names, row, strict=True)) for row in rows]
    return session.createDataFrame(pa.Table.from_pylist(named, schema=to_arrow_schema(kind)), kind)


def running_tasks(session: SparkSession) -> tuple[int, int]:
    """(over, all) of the stages that run now; (0, 0) where nothing does, or Spark has ended."""
    try:
        tracker = session.sparkContext.statusTracker()
        stages = [found for one in tracker.getActiveStageIds() if (found := tracker.getStageInfo(one)) is not None]
    except Exception:  # noqa: BLE001 - what became of Spark its user is told, not who looks on
        return 0, 0
    return sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)


def _start_session(asked: SparkSettings) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kodoctl")
    if asked.at:
        builder = builder.master(asked.at)
    for key, value in asked.configuration.items():
        builder = builder.config(key, value)
    with _hidden_output() as output, runs_nothing_here({_PYTHON: sys.executable}):  # of Java, and what it starts
        try:
            unlisted = not (asked.submitted or is_listed_user())
            if asked.environment or unlisted:
                settings = {"spark.app.name": "kodoctl", "spark.master": asked.at or "", **asked.configuration}
                conf = SparkConf().setAll(list(settings.items()))
                # settings stand in the list of processes, for everybody to read, and the environment does not
                SparkContext(conf=conf, environment=asked.environment, gateway=_of_nobody(conf) if unlisted else None)
            return builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as problem:
            output.seek(0)
            last = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()][-5:]
            text = "\n".join([str(problem).splitlines()[0][:300], *last])
            detail = f"{text}\nSpark needs Java 17 or 21: `java -version`, or JAVA_HOME"
            raise KodoctlError(error("K571", "Spark does not start", detail)) from None


def _of_nobody(conf: SparkConf) -> JavaGateway:
    """The Java process of a context of a user that the machine does not list, as containers have them. Hadoop's login asks
    the machine for the user's name, and fails where there is none, whatever the environment says: so it is told here.
    """
    from pyspark.java_gateway import launch_gateway

    gateway: JavaGateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
    users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(user_name()))
    return gateway


@contextlib.contextmanager
def _hidden_output() -> Iterator[IO[bytes]]:
    """Both outputs go into a file while Java is started, which inherits them."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as output:
        kept = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in kept:
                os.dup2(output.fileno(), number)
            yield output
        finally:
            for number, copy in kept.items():
                os.dup2(copy, number)
                os.close(copy)

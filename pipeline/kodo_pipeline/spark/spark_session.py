"""Factory of Spark sessions: without output, in UTC, and with the same code on a laptop, on a cluster or in a session
of the caller.

Spark starts a Java process that prints eight lines before it has read any configuration: its output goes to a file,
which is read only if the process does not start.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from kodo_pipeline.spark.java_classes import keep_java_classes
from kodo_pipeline.spark.spark_errors import spark_error, words
from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.host.extras import needs_extra
from kodoctl.host.host_facts import home_folder, is_listed_user, user_name
from kodoctl.host.programs import SAFE_PATH, runs_nothing_here

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import DataFrame, SparkSession

    Session = SparkSession
    """Type for modules that must not import Spark."""

LOCAL: Final = "local[*]"
_YES: Final = "1"
_PYTHON: Final = "PYSPARK_PYTHON"
_LOG: Final = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS: Final = f"-Xss8m -Dlog4j2.configurationFile={_LOG.as_uri()}"
"""Options of Java, with a deep stack: in Spark up to 4.1 the stack overflows if a query is stopped while our source is
read.
"""
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
"""Settings on which our plans rely. They are set in a session of our own, whoever made the context."""
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
"""Settings for a few rows. Without them Spark and Java spend most of the time on compiling code that runs once, and on
planning again after each stage.
"""
_JAVA: Final = "spark.driver.extraJavaOptions"
_NIMBLE: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Options of Java for a light session. With one compiler Java reserves only 48 MB for code; when these are full, after
some hundred queries, a thread of Spark's own can end, and the query waits for ever. So the usual size is given.
"""
_COLLECTORS: Final = {False: "-XX:+UseParallelGC", True: "-XX:+UseSerialGC"}
"""Garbage collector, by whether the session is light. Java's own choice shortens pauses, which nobody here waits for:
an audit of a million messages took 8 % less time without it, a tenth less in a warm session (benchmarks/pipeline).
"""
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_READS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_RELIED: Final = ("spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled", "spark.speculation")
"""Settings that must not be changed, because results would differ."""
_STORE: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
)  # fmt: skip
"""Environment variables with the address and the keys of an object store, for Spark, Arrow and deltalake alike."""


_ENDED: Final = """its Java process has ended
the system ends it when memory runs out, and dmesg tells: take less with --conf spark.driver.memory=…, or a larger machine"""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of a Spark session. `master`: address of a Spark cluster, or `local[n]` for n cores of this machine;
    None: the master that `spark-submit` was given, else all cores of this machine. `extra`: settings of the user, which
    have precedence over ours, `spark.master` over `master` as well. `submitted`: `spark-submit` started this process,
    and has already configured the context. `light`: the work is little
    (kodo_pipeline.landing.landing_store.Landing.is_small); this counts only in a context of our own on this machine.
    `environ`: environment variables, among them the address and keys of an object store.
    """

    master: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    submitted: bool = False
    light: bool = False
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def at(self) -> str | None:
        """URL of Spark's master, such as `local[*]`; None: the context of `spark-submit` has one already."""
        return self.extra.get("spark.master") or self.master or (None if self.submitted else LOCAL)

    @property
    def configuration(self) -> dict[str, str]:
        """Settings for a new context; {} if `spark-submit` has configured it."""
        if self.submitted:
            return {}
        local = _LOCAL | (_LIGHT if self.light else {}) if self.is_local else {}
        ours = {**_CONTEXT, **_SQL, **local, **_store(self.environ)}
        return {**ours, **self.extra, _JAVA: " ".join(self._java())}

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for executors on other machines; {} if Spark runs on this machine, or if `spark-submit`
        has configured it. They are needed because tasks of kodoctl write to the object store as well, and Spark passes
        the store's settings only to its own tables.
        """
        return (
            {}
            if self.submitted or self.is_local
            else {name: self.environ[name] for name in _STORE if name in self.environ}
        )

    def _java(self) -> Iterator[str]:
        """Yields options of Java. It refuses two garbage collectors, so ours is left out if the user names one."""
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
        """True if Spark runs only on this machine, in a context of our own."""
        return self.at is not None and self.at.startswith("local")


def _store(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings that the S3 connector of Spark does not take from the environment by itself, and Arrow does."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    found = {"spark.hadoop.fs.s3a.endpoint.region": region} if region else {}
    return found | ({"spark.hadoop.fs.s3a.path.style.access": "true"} if environ.get("AWS_ENDPOINT_URL") else {})


def configuration_of(pairs: Sequence[str]) -> dict[str, str]:
    """Parses `KEY=VALUE` texts, as spark-submit takes them; the last one counts if a key is repeated. Raises UsageError
    that names every invalid key, and every key that must stay as it is (such as the time zone), without values, which
    may be secrets.
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
    """Raises UsageError (K570) if the extra `spark` is not installed."""
    with needs_extra("spark"):
        import pyarrow as pa  # noqa: F401
        import pyspark  # noqa: F401


def open_session(settings: SparkSettings | None = None) -> SparkSession:
    """Opens a session. If this thread has an active session: a new one of the same context, to which `master` and
    settings of contexts do not apply, and which the caller must not stop, because that ends the context for all. Else
    one of a new context, which takes 5 to 10 s, and which the caller has to stop. `settings` None: a session on this
    machine. Raises UsageError without the extra `spark`, KodoctlError if Spark does not start.
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
    """Context with a session of `open_session`. At the end of the block Spark is ended if this thread had no active
    session before, even if another thread has one; otherwise that session becomes active again. Errors of Spark in the
    block become KodoctlError.
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
    """Context that converts every error of Spark to KodoctlError: with a known cause, else K577. A ConnectionError is
    raised unchanged unless the Spark session has ended.
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
    """Sets (`light`) or removes the settings for few rows, for the following queries. Has an effect only in a session
    of our own on this machine, which several runs use; settings of the user stay. `settings`: those of the session;
    their own `light` does not count.
    """
    if not settings.is_local:
        return
    usual = replace(settings, light=False).configuration
    for key, value in _LIGHT.items():
        if key not in settings.extra:
            if light:
                session.conf.set(key, value)
            elif (configured := usual.get(key)) is not None:
                session.conf.set(key, configured)
            else:
                session.conf.unset(key)


def cancel_jobs(session: SparkSession) -> None:
    """Cancels all jobs of the session's context, including those of streams; callers that wait for one get an error.
    Does nothing if the Java process has ended.
    """
    from py4j.protocol import Py4JError

    with contextlib.suppress(ConnectionError, Py4JError):
        session.sparkContext.cancelAllJobs()


def has_ended(session: SparkSession) -> bool:
    """True if the session's Java process does not answer any more. Asks it for its version."""
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
    """Makes a session the active one, by making a frame in it. Spark looks sources up in the active session, whichever
    session asks. So ours must be active while it is in use, else sources of the caller would hide ours; afterwards the
    caller's must be, else its sources would be unknown.
    """
    with contextlib.suppress(Exception):  # its context was ended meanwhile
        session.createDataFrame([], "n int")


def small_table(session: SparkSession, rows: Iterable[Mapping[str, Any] | Sequence[Any]], schema: str) -> DataFrame:
    """Makes a frame of a few rows (mappings, or sequences in the order of the columns) that is part of the query plan,
    Spark's LocalRelation. From a list, Spark would make a data set in Java, and run a job for each join with it.
    `schema`: columns in DDL.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    kind = cast("StructType", StructType.fromDDL(schema))
    named = [row if isinstance(row, Mapping) else dict(zip(kind.names, row, strict=True)) for row in rows]
    return session.createDataFrame(pa.Table.from_pylist(named, schema=to_arrow_schema(kind)), kind)


def check_file_system(session: SparkSession, uri: str) -> None:
    """Raises KodoctlError (K579) if Spark has no connector for the file system of `uri`. Spark itself notices that only
    when it first reads or writes there, after other work.
    """
    from py4j.protocol import Py4JJavaError

    context: Any = session.sparkContext
    jvm, java = context._jvm, context._jsc  # noqa: SLF001 - Python has no other way to ask
    try:
        jvm.org.apache.hadoop.fs.Path(uri).getFileSystem(java.hadoopConfiguration())
    except Py4JJavaError as problem:
        text = str(problem)
        raise spark_error(text, error("K577", "Spark failed", words(text))) from None


def running_tasks(session: SparkSession) -> tuple[int, int]:
    """(completed tasks, all tasks) of the stages that run now; (0, 0) if none runs, or if Spark has ended."""
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
            text = "\n".join([*(line[:300] for line in str(problem).splitlines()[:1]), *last])
            detail = f"{text}\nSpark needs Java 17 or 21: `java -version`, or JAVA_HOME"
            raise KodoctlError(error("K571", "Spark does not start", detail)) from None


def _of_nobody(conf: SparkConf) -> JavaGateway:
    """Starts the Java process for a user whom the machine does not list, as in containers. Hadoop's login asks the
    machine for the user's name and fails without one, so the name is set here.
    """
    from pyspark.java_gateway import launch_gateway

    gateway: JavaGateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
    users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(user_name()))
    return gateway


@contextlib.contextmanager
def _hidden_output() -> Iterator[IO[bytes]]:
    """Context in which standard output and error go into the yielded file, so that the Java process that is started in
    it inherits that file.
    """
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

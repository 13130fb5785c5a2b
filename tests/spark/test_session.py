"""The session factory, and that a table's two schemas are one."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kodo_pipeline.landing.landing_commits import LandingCommit, TableFiles
from kodo_pipeline.landing.landing_store import FEW, Landing
from kodo_pipeline.landing.tables import COMMITS, COUNTED, MESSAGES, TABLES, Table
from kodo_pipeline.source.data_source import PulsarSource
from kodo_pipeline.spark.spark_session import (
    JAVA_OPTIONS,
    SparkSettings,
    configuration_of,
    open_session,
    small_table,
    spark_session,
)
from pyspark.sql import DataFrame, SparkSession

from kodoctl.errors import UsageError
from tests import source_roots
from tests.brokers.workspace import run_main

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(one for one in (source_roots.PATHS, os.environ.get("PYTHONPATH", "")) if one)
ENDED = """
import os, signal, threading
from pathlib import Path
from unittest.mock import patch
from kodoctl.errors import KodoctlError
from kodo_pipeline.spark.spark_session import SparkSettings, spark_failures, spark_session
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JNetworkError
def reset(*_):
    raise Py4JNetworkError("Error while sending or receiving", ConnectionResetError(104, "reset"))
def kill():
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text().strip() == "java":
            os.kill(int(child), signal.SIGKILL)
try:
    with spark_session(SparkSettings(master="local[1]")) as session:
        try:
            with patch.object(ClientServerConnection, "send_command", reset), spark_failures(session):
                session.range(1).collect()
        except KodoctlError as problem:
            print(problem)
        threading.Timer(1, kill).start()
        session.range(10**11).selectExpr("sum(sqrt(id))").collect()
except KodoctlError as problem:
    print(problem)
"""
LOUD = """
import os
from kodoctl.errors import KodoctlError
from kodo_pipeline.spark.spark_session import SparkSettings, open_session
extra = {"spark.driver.memory": MEMORY}
try:
    session = open_session(SparkSettings(master="local[1]", extra=extra, environ=dict(os.environ)))
except KodoctlError as problem:
    print(problem)
else:
    print(session.range(10).count(), session.conf.get("spark.sql.session.timeZone"))
    session.stop()
"""
ELSEWHERE = """
from pyspark.sql.datasource import DataSource, DataSourceReader
from kodo_pipeline.spark.spark_session import SparkSettings, open_session
class Reader(DataSourceReader):
    def read(self, partition):
        import os, sys
        yield (os.environ.get("PYTHONSAFEPATH"), sys.executable)
class Source(DataSource):
    @classmethod
    def name(cls):
        return "here"
    def schema(self):
        return "safe string, python string"
    def reader(self, schema):
        return Reader()
session = open_session(SparkSettings(master="local[1]"))
session.dataSource.register(Source)
print(session.read.format("here").load().collect()[0])
print(session.range(1).rdd.map(lambda one: one.id + 1).collect())
session.stop()
"""
"""A source of data and a function, each of which Spark runs in a Python of its own, as a command of kodoctl does."""
NOBODY = """
import os
from kodoctl.host.host_facts import is_listed_user
from kodo_pipeline.spark.spark_session import SparkSettings, open_session
session = open_session(SparkSettings(master="local[1]", light=True, environ=dict(os.environ)))
session.range(3).write.parquet("rows")
rows = session.read.parquet("rows").count()
print(os.getuid(), is_listed_user(), rows, session.range(1).rdd.map(lambda one: one.id + 1).collect())
session.stop()
"""
"""A table is written and read, for which Hadoop wants to know who does it, and a Python of Spark works."""
G1 = "-XX:+UseG1GC"
UNLISTED = ("unshare", "--user", "--map-user=12345", "--map-group=12345")
"""A program behind it runs as a user whom the list of users does not have."""


@pytest.mark.parametrize(
    ("memory", "collector", "said"),
    [
        pytest.param("512m", G1, "10 UTC", marks=pytest.mark.full),
        ("1m", "", "Too small maximum heap"),
    ],
)
def test_spark_says_nothing_of_its_own_and_why_it_does_not_start(memory: str, collector: str, said: str) -> None:
    """Java refuses two collectors, and says that it has options of the environment."""
    done = _run(LOUD.replace("MEMORY", repr(memory)), JAVA_TOOL_OPTIONS=collector)
    assert said in done.stdout
    assert done.stderr == ""


@pytest.mark.full
def test_java_that_the_system_ended_is_told_as_that() -> None:
    """A connection that Java's end resets, and an end in the middle of a query."""
    done = _run(ENDED)
    assert (done.stdout.count("K577"), done.stdout.count("memory")) == (2, 4), done.stdout
    assert done.stderr == ""


@pytest.mark.full
def test_pythons_of_spark_run_nothing_of_the_working_folder(tmp_path: Path) -> None:
    """Spark starts them by `-m`, which puts the working folder first, and the first of them by any `python3` of PATH."""
    for name in ("select", "socket", "pyspark", "kodoctl"):
        (tmp_path / f"{name}.py").write_text("open('RAN', 'a').write(__name__)\n")
    for name in ("python3", "java", "ps"):
        (tmp_path / name).write_text("#!/bin/sh\necho $0 >> RAN\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path.parent / "program.py").write_text(ELSEWHERE)
    done = _run(tmp_path.parent / "program.py", tmp_path, PATH=f".:{os.environ['PATH']}", PYTHONPATH=PATHS)
    assert f"Row(safe='1', python='{sys.executable}')\n[1]" in done.stdout
    assert not (tmp_path / "RAN").exists()


def _can_be_unlisted() -> bool:
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run([*UNLISTED, "true"], capture_output=True, check=False).returncode
    )


@pytest.mark.full
@pytest.mark.skipif(not _can_be_unlisted(), reason="the system gives nobody another user's number")
@pytest.mark.parametrize("home", ["", "home of nobody"])
def test_spark_runs_for_a_user_whom_the_machine_does_not_list(home: str, tmp_path: Path) -> None:
    """As a container's is, with and without HOME."""
    done = _run(NOBODY, tmp_path, by=UNLISTED, HOME=home and str(tmp_path / home), PYTHONPATH=PATHS)
    assert done.stdout == "12345 False 3 [1]\n"
    assert done.stderr == ""


def _run(
    program: str | Path, folder: Path | None = None, by: Sequence[str] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*by, sys.executable, *((str(program),) if isinstance(program, Path) else ("-c", program))],
        cwd=folder,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )


def test_a_session_that_runs_is_used_and_left_as_it_is(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        ours = open_session()
        assert ours.sparkContext is spark.sparkContext
        assert ours.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_session_of_ours_is_the_active_one_until_it_is_done_with(spark: SparkSession) -> None:
    class Again(PulsarSource):
        """Registered in no other test."""

        @classmethod
        def name(cls) -> str:
            return "pulsar-again"

    for _ in range(2):  # at first in ours alone, then where its maker has one of that name
        with spark_session() as ours:
            assert SparkSession.getActiveSession() is ours, "Spark looks sources up there"
            ours.dataSource.register(Again)
        assert SparkSession.getActiveSession() is spark
        spark.dataSource.register(Again)
    assert spark.read.format(Again.name()).load().columns == MESSAGES.names


def test_a_light_session_compiles_nothing_and_only_on_this_machine() -> None:
    name = "spark.sql.codegen.factoryMode"
    light = SparkSettings(light=True)
    assert (light.at, light.configuration[name]) == ("local[*]", "NO_CODEGEN")
    assert light.configuration["spark.driver.extraJavaOptions"].startswith(JAVA_OPTIONS)
    assert name not in SparkSettings().configuration
    assert name not in SparkSettings("spark://cluster:7077", light=True).configuration
    submitted = SparkSettings(submitted=True, light=True)
    assert (submitted.at, submitted.configuration) == (None, {})


def test_a_light_session_has_as_much_room_for_code_as_any(spark: SparkSession) -> None:
    """Where there is none left, a query waits for ever."""
    jvm: Any = spark._jvm
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    assert sum(one.getUsage().getMax() for one in pools if "Code" in one.getName()) >= 240_000_000


@pytest.mark.parametrize("light", [False, True])
def test_a_collector_that_the_user_names_is_the_only_one(light: bool) -> None:
    java, own = "spark.driver.extraJavaOptions", "-XX:+UseSerialGC" if light else "-XX:+UseParallelGC"
    assert own in SparkSettings(light=light).configuration[java].split()
    named = {java: "-Da=b -XX:+UseG1GC"}
    assert SparkSettings(light=light, extra=named).configuration[java].count("-XX:+Use") == 1
    said = SparkSettings(light=light, environ={"JAVA_TOOL_OPTIONS": "-XX:+UseZGC"}).configuration[java]
    assert "-XX:+Use" not in said, "Java refuses two"
    assert SparkSettings("spark://cluster:7077").configuration[java] == JAVA_OPTIONS, "a cluster's is its owner's"


def test_what_a_landing_holds_says_whether_a_light_session_is_enough(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path), "trade", None)
    assert landing.is_small()
    for batch, rows in enumerate((FEW, 1)):
        landing.commit(LandingCommit("r", 1, batch, {"events": TableFiles(rows)}))
        assert landing.is_small() is (batch == 0)


@pytest.mark.parametrize("table", [MESSAGES, *TABLES, *COUNTED, COMMITS], ids=lambda table: table.name)
def test_a_table_means_the_same_to_arrow_and_spark(table: Table) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    of_arrow = from_arrow_schema(table.arrow())
    assert of_arrow.simpleString() == table.spark().simpleString()
    assert [column.kind for column in table.columns] == [field.dataType.simpleString() for field in table.spark()]
    assert table.arrow().empty_table().num_rows == 0
    assert isinstance(table.arrow(), pa.Schema)
    assert len(set(table.names)) == len(table.names)
    assert all(column.about for column in table.columns)


def test_a_small_table_is_part_of_the_plan_and_a_list_is_not(spark: SparkSession) -> None:
    columns = "name string, at bigint, there boolean, acknowledged array<struct<ledger:bigint,first:bigint>>"
    rows = [("a", 1, True, [{"ledger": 7, "first": 0}]), ("b", None, False, None)]
    names = ("name", "at", "there", "acknowledged")
    for given in (rows, [dict(zip(reversed(names), reversed(row), strict=True)) for row in rows], []):
        made = small_table(spark, given, columns)
        assert [row.asDict(recursive=True) for row in made.collect()] == [
            dict(zip(names, row, strict=True)) for row in (rows if given else [])
        ]
        assert "LocalTableScan" in _plan(made)
    assert "LocalTableScan" not in _plan(spark.createDataFrame(rows, columns))


def test_the_way_into_a_store_is_the_environment_s() -> None:
    environ = {
        "AWS_DEFAULT_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "https://minio:9000", "AWS_SECRET_ACCESS_KEY": "secret",
        "HOME": "/root",
    }  # fmt: skip
    assert not [name for name in SparkSettings().configuration if "s3a" in name]
    style = "spark.hadoop.fs.s3a.path.style.access"
    given = SparkSettings(extra={style: "false"}, environ=environ).configuration
    assert (given["spark.hadoop.fs.s3a.endpoint.region"], given[style]) == ("eu-central-1", "false")
    local, submitted = (SparkSettings(submitted=one, environ=environ) for one in (False, True))
    assert local.configuration[style] == "true"
    assert (local.environment, submitted.environment) == ({}, {}), "inherited, or Spark's business"
    cluster = SparkSettings("spark://cluster:7077", environ=environ)
    assert cluster.environment == {name: value for name, value in environ.items() if name != "HOME"}
    assert "secret" not in cluster.configuration.values(), "settings stand in the list of processes"
    assert "secret" not in repr(cluster)


def test_settings_are_spark_s_and_leave_alone_what_answers_rest_on() -> None:
    java = "spark.driver.extraJavaOptions"
    found = configuration_of(["spark.executor.memory = 4g", f"{java}=-Da=b"])
    assert found == {"spark.executor.memory": "4g", java: "-Da=b"}
    assert SparkSettings("spark://cluster:7077", extra=found).configuration[java] == f"{JAVA_OPTIONS} -Da=b"
    with pytest.raises(UsageError) as told:
        configuration_of(["fs.s3a.secret.key=hidden", "spark.executor.cores", "spark.sql.session.timeZone=Asia/Tokyo"])
    assert str(told.value).count("K578") == 3
    assert "hidden" not in str(told.value), "a value may be a secret"


def test_beside_spark_submit_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    told = run_main("pipeline", "rollup", "trade.yaml", "--conf", "spark.executor.memory=4g")
    assert (told.code, "[K578]" in told.err) == (64, True)


@pytest.mark.parametrize("scheme", ["s3a", "s3"])
def test_a_store_that_spark_has_no_connector_for_is_told(scheme: str, spark: SparkSession) -> None:
    with pytest.raises(UsageError, match=f"K579.*{scheme}:// is unknown"), spark_session() as session:
        session.read.parquet(f"{scheme}://kodo/landing")


def _plan(table: DataFrame) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        table.explain()
    return said.getvalue()

"""`kodo-consumer outbox`: what it prints, what it says about a database that is not as it must be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_consumer.outbox.table import DIALECTS, TABLE, schema_sql
from sqlalchemy import create_engine, inspect, text

from tests.unit.consumer.outbox.conftest import Run
from tests.unit.consumer.outbox_setting import Setting


@pytest.fixture
def setting(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    url = f"sqlite:///{tmp_path}/app.db"
    (tmp_path / "kodo-consumer.toml").write_text(f'outbox_url = "{url}"\n', encoding="utf-8")
    found = Setting(url, tmp_path)
    monkeypatch.setattr("kodo_consumer.outbox.outbox_store.database_now", found.database_now)
    yield found
    found.engine.dispose()


def test_rows_are_listed_held_and_pushed(setting: Setting, run: Run) -> None:
    late = setting.add(biz_code="refund", key="k\x1b[31m")
    setting.clock.advance(120)
    other = setting.add("orders", delay="1h")
    assert run("hold", "--biz-code", "refund")[:2] == (0, "1 row is held: `kodo-consumer outbox push` sends them\n")
    _, out, _ = run("list")
    first, *rows = out.splitlines()
    assert first == "to_send 2, held 1, retrying 0, late 0"
    assert rows[0] == f"{late}  to_send  ledger  held  key k\\x1b[31m  biz_code refund"
    assert rows[1].startswith(f"{other}  to_send  orders  2")
    assert run("push", late)[1] == "1 row will be sent\n"
    assert run("list", "--topic", "ledger")[1].endswith("Z (due)  key k\\x1b[31m  biz_code refund\n")
    assert (
        run("push", "--all", "--rate", "1/s", "--limit", "2")[1]
        == "2 rows will be sent (--limit: others may be left), over 2 s\n"
    )
    setting.add("nowhere", b"secret")
    setting.turn(setting.relay())
    _, out, _ = run("list", "--status", "failed")
    assert "\n  K702 error unknown ground topic: t.yaml has orders, ledger, not 'nowhere'\n" in out or "K702" in out
    found = json.loads(run("list", "--format", "json")[1])
    assert found["counts"]["failed"] == 1
    assert [row["id"] for row in found["rows"]] == sorted(setting.rows())
    assert "secret" not in json.dumps(found)


def test_nothing_is_pushed_or_held_by_accident(setting: Setting, run: Run) -> None:
    setting.add()
    for command in ("push", "hold"):
        code, _, err = run(command)
        assert (code, "no rows named [K725]" in err) == (64, True)
    assert run("push", "--all", "--rate", "fast")[0] == 64
    assert run("push", "--all", "--rate", "0/s")[0] == 64
    assert run("list", "--status", "nonsense")[0] == 64


def test_the_table_is_made_from_what_schema_prints(run: Run, tmp_path: Path, database_url: str) -> None:
    dialect = database_url.split(":", maxsplit=1)[0].split("+", maxsplit=1)[0]
    _, out, _ = run("schema", "--dialect", dialect)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        for statement in out.split(";\n"):
            if statement.strip():
                connection.execute(text(statement))
    columns = {column["name"] for column in inspect(engine).get_columns("kodo_outbox")}
    assert columns == set(TABLE.columns.keys())
    (tmp_path / "kodo-consumer.toml").write_text(f'outbox_url = "{database_url}"\n', encoding="utf-8")
    assert run("list") == (0, "held 0, retrying 0, late 0\n", "")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE kodo_outbox DROP COLUMN last_error"))
        connection.execute(text("ALTER TABLE kodo_outbox DROP COLUMN retry_count"))
    code, _, err = run("list")
    assert (code, "outbox table lacks columns [K723]" in err) == (1, True)
    assert "kodo_outbox lacks retry_count, last_error" in err
    added = [line.strip() for line in err.splitlines() if "ALTER TABLE" in line]
    with engine.begin() as connection:
        for statement in added:
            connection.execute(text(statement))
    assert run("list")[0] == 0
    engine.dispose()


def test_the_schema_is_written_for_both_databases() -> None:
    for dialect in DIALECTS:
        sql = schema_sql(dialect)
        assert sql.count("CREATE INDEX") == 3
        assert "\t" not in sql
        assert all(line == line.rstrip() for line in sql.splitlines())


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ("", 64, "no database for the outbox [K720]"),
        ('outbox_url = "sqlite:///empty.db"', 1, "outbox table not found [K722]"),
        ('outbox_url = "nonsense"', 1, "database cannot be used [K721]"),
        ('outbox_url = "oracle://x/y"', 1, "database cannot be used [K721]"),
        ('outbox_url = "mysql://x/y"', 1, "database cannot be used [K721]"),
        ('outbox_url = "sqlite:////nowhere/at/all.db"', 1, "there is no such file"),
        ('outbox_url = "sqlite:///empty.db?timeout=soon"', 1, "timeout=soon: could not convert"),
        ('outbox_url = "sqlite:///empty.db?detect_types=99999999999"', 1, "Python int too large"),
        ('outbox_url = "postgresql+psycopg://u:hunter2@127.0.0.1:1/db"', 1, "database cannot be used [K721]"),
        ("outbox_backoff = 7", 1, "cannot read settings [K708]"),
        ('outbox_backoff = {pay = ["soon"]}', 1, "outbox_backoff"),
        ("outbox_attempts = 0", 1, "outbox_attempts: 0 is less than 1"),
    ],
)
def test_what_is_wrong_with_the_database_is_said(run: Run, tmp_path: Path, settings: str, code: int, said: str) -> None:
    (tmp_path / "kodo-consumer.toml").write_text(settings, encoding="utf-8")
    (tmp_path / "empty.db").touch()
    found, out, err = run("list")
    assert "\\t" not in err
    assert (found, out) == (code, "")
    assert said in " ".join(err.split())
    assert "hunter2" not in err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://app:s3cret@127.0.0.1:1/db",
        "postgresql+psycopg://app@127.0.0.1:1/db?password=s3cret",
        "postgresql+psycopg:///db?host=127.0.0.1&port=1&user=app&password=s3cret&sslpassword=s3cret-too",
        "postgresql+psycopg://app@127.0.0.1:1/db?passfile=s3cret&sslkey=s3cret&anything=s3cret",
        "postgresql+psycopg://app:pass@s3cret@127.0.0.1:1/db",
        "mysql://app:s3cret@h/db", "postgresql://app:s3cret@h:notaport/db", "app:s3cret@h/db",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [["list"], ["push", "--all"], ["hold", "--all"]])
def test_no_secret_of_an_address_is_printed(run: Run, tmp_path: Path, url: str, command: list[str]) -> None:
    (tmp_path / "kodo-consumer.toml").write_text(f'outbox_url = "{url}"', encoding="utf-8")
    (tmp_path / "empty.db").touch()
    code, out, err = run(*command)
    assert (code, out) == (1, "")
    assert "[K72" in err
    assert "s3cret" not in err


def test_a_mistyped_path_makes_no_database(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kodo-consumer.toml").write_text('outbox_url = "sqlite:///ap.db"', encoding="utf-8")
    found, _, err = run("list")
    assert found == 1
    assert "database cannot be used [K721]" in err
    assert "ap.db: there is no such file" in err
    assert not (tmp_path / "ap.db").exists()


def test_a_file_may_be_named_by_a_uri_of_sqlite(setting: Setting, run: Run, tmp_path: Path) -> None:
    name = setting.add()
    for mode, code in (("ro", 1), ("rw", 0)):
        url = f"sqlite:///file:{tmp_path}/app.db?mode={mode}&uri=true"
        (tmp_path / "kodo-consumer.toml").write_text(f'outbox_url = "{url}"', encoding="utf-8")
        assert name in run("list")[1]
        assert run("push", name)[0] == code
    url = f"sqlite:///file:{tmp_path}/ap.db?mode=rw&uri=true"
    (tmp_path / "kodo-consumer.toml").write_text(f'outbox_url = "{url}"', encoding="utf-8")
    assert "unable to open database file" in run("list")[2]


def test_a_relay_needs_a_topology_and_a_cluster(setting: Setting, run: Run, tmp_path: Path) -> None:
    assert run("run")[0] == 64
    assert "no cluster named [K503]" in run("run", str(tmp_path / "t.yaml"))[2]


def test_a_relay_that_must_trace_and_cannot_says_so_at_its_start(
    setting: Setting, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It marked every row as failed."""
    for name, scheme in (("ADMIN", "http"), ("BROKER", "pulsar")):
        monkeypatch.setenv(f"KODOCTL_{name}_URL", f"{scheme}://127.0.0.1:1")
    monkeypatch.setenv("KODO_CONSUMER_TRACES", "on")
    code, out, err = run("run", str(tmp_path / "t.yaml"), "--until-empty")
    assert (code, out) == (64, "")
    assert "no traces can be made [K762]" in err

"""What the workers' store remembers as done, asked from outside the consumer: SQLite and PostgreSQL, and whatever is no store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kodo_consumer.adapters.stores.done_store import DoneStoreClient
from kodo_consumer.adapters.stores.factory import StorePlace, parse_store
from kodo_consumer.core.values.store import Exchange, name_of
from kodo_consumer.policy_builder import policy_of

from kodoctl.cli.letters.recall_commands import open_done_store as asked_for
from kodoctl.errors import KodoctlError
from kodoctl.pulsar.connection.secret import Secret
from kodoctl.topology.load import load_topology
from tests.unit.recall.letters import family

NAME = "kodo/trade/orders:billing"


def _worked(url: str, subscription: str, *done: str) -> None:
    """As a worker leaves it."""
    store = StorePlace(parse_store(url)).open(subscription)
    store.create()
    store.exchange(Exchange(done=[name_of(one) for one in done], starting=["started"]))
    store.close()


def test_what_a_worker_did_is_known_and_nothing_else(database_url: str) -> None:
    long = "x" * 300
    _worked(database_url, NAME, "5:1:0:-1", long, "it's ü")
    _worked(database_url, "kodo/trade/orders:shipping", "5:2:0:-1")
    with DoneStoreClient(Secret(database_url), NAME) as done:
        assert done(["5:1:0:-1", "5:2:0:-1", "started", long, "it's ü"]) == {"5:1:0:-1", long, "it's ü"}
        assert done([]) == frozenset()
        many = [f"n{number}" for number in range(1_200)]
        assert done([*many, "5:1:0:-1"]) == {"5:1:0:-1"}
        _worked(database_url, NAME, "n7")
        assert done(many) == {"n7"}


def test_recall_and_worker_call_a_subscription_the_same(tmp_path: Path) -> None:
    found = family(tmp_path)
    (lane, *_) = policy_of(load_topology(str(tmp_path / "trade.yaml")), "orders", "billing").lanes
    assert found.named_in_full == lane.subscription == NAME


@pytest.mark.parametrize(
    ("store", "code", "said"),
    [
        ("memory", "K740", "memory is forgotten with its worker"),
        ("mysql://h/canary", "K740", "mysql is no store"),
        ("sqlite:///nowhere.db", "K741", "there is no such file"),
        ("sqlite:///empty.db", "K741", "no such table: kodo_done; is it the `store` of the workers?"),
        ("sqlite:///file:empty.db?mode=rw&uri=true", "K741", "no such table: kodo_done"),
        ("postgresql://u:canary@127.0.0.1:1/x", "K741", "127.0.0.1"),
    ],
)
def test_a_store_that_cannot_be_asked_is_told_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, code: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.db").touch()
    with DoneStoreClient(Secret(store), NAME) as done, pytest.raises(KodoctlError) as caught:
        done(["a"])
    assert (caught.value.diagnostics[0].code, said in str(caught.value)) == (code, True), str(caught.value)
    assert "canary" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".db")] == ["empty.db"], "nothing is made"


def test_a_driver_that_is_not_installed_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with (
        DoneStoreClient(Secret("postgresql://u:canary@h/x"), NAME) as done,
        pytest.raises(KodoctlError, match=r"K740.*needs psycopg: pip install '\.\[postgres\]'") as caught,
    ):
        done(["a"])
    assert "canary" not in str(caught.value)


def test_a_plan_without_the_extra_of_stores_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from kodoctl.cli.letters.recall_commands import open_done_store\n"
        "from kodoctl.errors import UsageError\n"
        "try: open_done_store('sqlite:///kodo.db', 'kodo/trade/orders:billing').__enter__()\n"
        "except UsageError as problem: print(problem)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("K721 error database cannot be used: sqlalchemy is missing: pip install"), (
        shown.stdout
    )


def test_the_stores_are_imported_when_one_is_asked() -> None:
    program = (
        "import sys, kodoctl.cli.letters.recall_commands, kodoctl.cli.common.extension_points; "
        "print([name for name in ('kodo_consumer', 'sqlalchemy') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_a_wrong_store_is_told_before_any_letter_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = family(tmp_path)
    with (
        pytest.raises(KodoctlError, match="there is no such file"),
        asked_for("sqlite:///nowhere.db", found.named_in_full),
    ):
        pytest.fail("it was taken for a store")
    with asked_for("sqlite:///nowhere.db", found.named_in_full, again=True) as done:
        assert done is None

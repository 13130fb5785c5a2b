"""What `kodo-consumer check` calls complete, a worker can start: what the broker refuses at a start, the check names, and
both say what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kodoctl.errors import KodoctlError
from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.brokers.workspace import run_consumer
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
JSON = {"type": "JSON", "schema": '{"type": "record", "name": "O", "fields": []}', "properties": {}}


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    found = Setting(broker, tenant, tmp_path)
    found.declare("states: [retrying], dead_letter: false")
    return found


def _check(setting: Setting) -> tuple[int, str, str]:
    place = ["--admin-url", setting.broker.admin_url, "--broker-url", setting.broker.broker_url]
    found = run_consumer("check", str(setting.file), *place)
    return found.code, found.out, " ".join(found.err.split())


def _posted(setting: Setting, policy: str, value: Any, suffix: str = "") -> None:
    path = f"{setting.topic(suffix).replace('://', '/')}/{policy}"
    assert setting.broker.admin("POST", path, value).ok
    eventually(lambda: setting.broker.admin("GET", path).json() == value)


@contextmanager
def _foreign_schema(setting: Setting) -> Iterator[None]:
    schema = setting.topic().replace("persistent://", "schemas/")
    assert setting.broker.admin("POST", f"{schema}/schema", JSON).ok
    _posted(setting, "schemaValidationEnforced", value=True)
    yield


@contextmanager
def _all_producers(setting: Setting) -> Iterator[None]:
    _posted(setting, "maxProducers", 1)
    with setting.producer():
        yield


@contextmanager
def _other_types(setting: Setting) -> Iterator[None]:
    _posted(setting, "subscriptionTypesEnabled", ["Failover"])
    yield


@contextmanager
def _terminated(setting: Setting) -> Iterator[None]:
    path = setting.topic("-s-RETRYING").replace("://", "/")
    assert setting.broker.admin("POST", f"{path}/terminate/partitions").ok
    yield


@pytest.mark.parametrize(
    ("where", "policy", "named"),
    [
        ("topic", "maxConsumers", "`max_consumers` is 1"),
        ("topic", "maxConsumersPerSubscription", "`max_consumers_per_subscription` is 1"),
        ("namespace", "maxConsumersPerTopic", "`max_consumers` is 1"),
        ("namespace", "maxConsumersPerSubscription", "`max_consumers_per_subscription` is 1"),
    ],
)
def test_a_limit_that_leaves_no_room_for_one_more_worker_is_told(
    setting: Setting, where: str, policy: str, named: str
) -> None:
    if where == "topic":
        _posted(setting, policy, 1)
    else:
        space = "/".join(setting.topic().removeprefix("persistent://").split("/")[:2])
        assert setting.broker.admin("POST", f"namespaces/{space}/{policy}", 1).ok
    assert "K713" not in _check(setting)[2]
    with setting.worker(lambda _: None):
        eventually(lambda: named in _check(setting)[2], within=120)
        status, said, told = _check(setting)
    assert (status, said) == (0, "J s: complete\n")
    assert "[K713]" in told
    assert "and as many are connected: one more worker reads nothing until one of them ends" in told


@pytest.mark.parametrize(
    ("refusal", "code", "advice"),
    [
        (_foreign_schema, "K714", "declare `payload`, or set `schema_validation: false`"),
        (_all_producers, "K714", "as many producers are connected as `max_producers` allows"),
        (_other_types, "K713", "`subscriptionTypesEnabled`"),
        (_terminated, "K714", "it was terminated, and takes no message any more"),
    ],
)
def test_what_a_start_would_be_refused_the_check_names_with_the_same_advice(
    setting: Setting, refusal: Callable[[Setting], Any], code: str, advice: str
) -> None:
    assert _check(setting)[:2] == (0, "J s: complete\n")
    with refusal(setting):
        status, said, told = _check(setting)
        assert (status, said.partition(" refused")[0][:-2]) == (1, "J s:"), told
        assert f"[{code}]" in told
        assert advice in told
        with pytest.raises(KodoctlError, match=code) as caught, setting.worker(lambda _: None):
            pass
        assert advice in str(caught.value)

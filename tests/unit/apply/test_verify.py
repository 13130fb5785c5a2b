"""What an apply wrote is looked at before the apply counts it as done."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.apply.source_writer import SourceWriter
from kodoctl.apply.verify import Verifier
from kodoctl.plan.changes import ChangeContext, Create
from kodoctl.plan.schedule import Step
from kodoctl.pulsar.admin import confirmed_write
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import GrantResource, TopicResource
from tests.samples.inventories import HERE, empty
from tests.services.servers import answer_json, serving

ABOUT = ChangeContext("trade")


def test_a_grant_is_looked_at_behind_changes_of_other_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 0.0)
    grant = GrantResource(HERE, "ann", frozenset({"produce"}))
    topic, granting = Step(Create(TopicResource(TopicName(HERE, "J"), 1, {}), ABOUT)), Step(Create(grant, ABOUT))
    unused: Any = None
    with serving(lambda _: answer_json({"auth_policies": {"namespace_auth": {}}})) as server:
        problems = Verifier(HttpAdmin(Connection(server.url)), unused, unused, SourceWriter({}, empty())).verify(
            [topic, granting]
        )
    assert problems == [(granting, "written produce, the broker shows nothing")]

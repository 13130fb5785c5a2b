"""What the control plane finds by name is there, and is what its users take it for."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import AbstractContextManager

from kodo_consumer.adapters.stores.done_store import DoneStoreClient
from kodo_pipeline.recall.landed_messages import lost_messages

from kodoctl.cli.common.extension_points import DONE_STORE, LOST_MESSAGES, load
from kodoctl.protocol.signing import Signer
from kodoctl.pulsar.connection.secret import Secret
from kodoctl.recall.cluster import RecallCluster
from kodoctl.recall.plan.recall_plan import RecallPlan
from kodoctl.recall.plan.selection import Done
from kodoctl.recall.send.dead_letter_partitions import MessageSource
from tests.source_roots import PACKAGES, ROOT

DONE: Callable[[Secret, str], AbstractContextManager[Done]] = DoneStoreClient
LOST: Callable[[RecallPlan, RecallCluster, Signer | None], MessageSource] = lost_messages
TARGET = re.compile(r"kodo_(consumer|pipeline)[\w.]*:\w+")


def test_an_extension_point_is_of_the_type_that_its_user_expects() -> None:
    assert load(DONE_STORE) is DONE
    assert load(LOST_MESSAGES) is LOST


def test_names_of_other_parts_stand_in_one_list_and_in_the_table_of_commands() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGES["kodoctl"].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and TARGET.fullmatch(node.value)
    }
    assert found == {"kodoctl/cli/common/extension_points.py", "kodoctl/cli/application.py"}

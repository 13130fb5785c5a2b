"""What is sent as Avro, read by Apache Avro for Java, whose jars come with the broker."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.core.payloads.codec import Payloads

from kodoctl.dev import jars, versions
from kodoctl.dev.progress import quiet
from tests.brokers.broker import CACHE, VERSION
from tests.unit.consumer.test_payload_answers import AVRO_TAKEN, HELD_BY_BYTES, record


def echoed(rows: list[tuple[Any, bytes]]) -> list[str]:
    """Records of these schemas as Apache Avro for Java has read and written them; `! why` where it could not."""
    found = jars.ensure(CACHE, versions.exact(VERSION), os.environ, quiet)
    source = Path(__file__).parents[1] / "samples" / "AvroEcho.java"
    lines = [
        " ".join(base64.b64encode(one).decode() for one in (json.dumps(schema).encode(), data)) for schema, data in rows
    ]
    command = ["java", "-cp", ":".join(map(str, found)), str(source)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True, timeout=240)
    return done.stdout.splitlines()


@pytest.mark.full
def test_another_implementation_reads_what_is_sent_and_refuses_what_is_refused() -> None:
    schemas = [record("Root", {"name": "v", "type": kind}) for kind, _, _ in AVRO_TAKEN]
    sent = [
        Payloads("avro", schema).encode({"v": value}) for schema, (_, value, _) in zip(schemas, AVRO_TAKEN, strict=True)
    ]
    wide = [(record("Root", {"name": "v", "type": kind}), data()) for kind, data in HELD_BY_BYTES[:4]]
    answers = echoed([*zip(schemas, sent, strict=True), *wide])
    assert answers[: len(sent)] == [base64.b64encode(data).decode() for data in sent]
    assert [answer[:2] for answer in answers[len(sent) :]] == ["AA", "! ", "! ", "! "], (
        "2^31 is read as 0, the rest not at all"
    )

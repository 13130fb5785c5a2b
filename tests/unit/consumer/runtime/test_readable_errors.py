"""Errors of public calls: without the frames of our modules, and with the file in the command that helps."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from kodo_consumer import Consumer
from kodo_consumer.runtime.readable_errors import readable

from kodoctl.errors import ClusterError, error
from tests.unit.consumer.topologies import write


def test_the_advised_command_names_the_file_where_it_is_known() -> None:
    problem = ClusterError(error("K710", "topic not found", "a: `kodoctl apply FILE` creates it"))
    assert "`kodoctl apply shop.yaml` creates it" in str(readable(problem, "shop.yaml"))
    assert readable(problem, None) is problem


def test_a_start_that_fails_shows_no_frames_of_ours(tmp_path: Path) -> None:
    consumer = Consumer.load(
        write(tmp_path, "  J: {subscriptions: {s: {}}}\n"), admin_url="http://127.0.0.1:1", environ={}
    )
    consumer.handler(lambda message: None)
    with pytest.raises(ClusterError) as raised:
        consumer.start()
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [frame.name for frame in frames] == ["test_a_start_that_fails_shows_no_frames_of_ours", "start"]
    assert raised.value.__suppress_context__

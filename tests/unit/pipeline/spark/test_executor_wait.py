"""What a command says while a cluster has no room for it."""

from __future__ import annotations

from kodo_pipeline.spark.spark_progress import PATIENCE, ExecutorWait


def test_a_short_wait_is_not_told() -> None:
    waiting = ExecutorWait("spark://m:7077", "2g")
    said = [waiting.look(at, stands=at < PATIENCE) for at in (0.0, 5.0, PATIENCE - 1, PATIENCE, 100.0)]
    assert said == [""] * 5
    assert waiting.look(200.0, stands=True) == "", "a wait of its own"


def test_a_long_one_is_told_each_minute_and_so_is_its_end() -> None:
    waiting = ExecutorWait("spark://m:7077", "2g")
    told = {at: word for at in range(100, 260) if (word := waiting.look(float(at), stands=at < 200))}
    assert sorted(told) == [115, 175, 200]
    assert told[115].startswith("Waiting for spark://m:7077: no executor has registered in 15 s.")
    assert "2g of memory" in told[115]
    assert "in 75 s" in told[175]
    assert told[200] == "Executor available on spark://m:7077 after 100 s, continuing."

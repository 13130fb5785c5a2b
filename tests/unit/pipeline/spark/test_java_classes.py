"""What Java is asked for once. Without Java."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kodo_pipeline.spark.java_classes import JavaClassMembers, keep_java_classes


class Functions:
    """A class of Java that counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return lambda *values: [name, *values]


def test_a_member_is_asked_for_once_and_called_each_time() -> None:
    java = Functions()
    found = JavaClassMembers(java)
    assert found.when(1) == found.when(1) == ["when", 1]
    assert found.when(1) is not found.when(1)
    assert java.asked == ["when"]


def test_columns_of_names_and_of_plain_values_are_made_once() -> None:
    found = JavaClassMembers(Functions())
    assert found.col("lane") is found.col("lane")
    assert found.lit(1) is found.lit(1)
    assert [found.lit(True), found.lit(1), found.lit("1"), found.lit(None)] == [
        ["lit", True], ["lit", 1], ["lit", "1"], ["lit", None],
    ]  # fmt: skip
    assert found.lit(True) is not found.lit(1)
    assert found.lit(0.0) is not found.lit(0.0)  # equal to -0.0, and another value
    assert found.lit(values := [1]) == ["lit", values]


def test_classes_are_kept_where_pyspark_looks_for_them() -> None:
    class View:
        def __getattr__(self, name: str) -> Any:
            return Functions()

    view = View()
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=view))
    keep_java_classes(session)
    functions, window = view.functions, getattr(view, "org.apache.spark.sql.expressions.Window")
    assert {type(functions), type(window)} == {JavaClassMembers}
    assert functions.col("n") is view.functions.col("n")
    keep_java_classes(session)
    assert view.functions is functions

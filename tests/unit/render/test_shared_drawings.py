"""Graphs that differ only in their labels share one drawing, and never show a wrong name."""

from __future__ import annotations

from kodoctl.render.shared_drawings import shape_of, texts_between


def dot(name: str, more: str = "", state: str = "ready") -> str:
    return f'digraph t {{ subgraph c {{ label="{name}"; n0 [label="{name}-L1", fillcolor="red"{more}]; n1 [label="{state}"] }} }}'


def svg(*texts: str) -> str:
    return "".join(f'<text x="1">{text}</text>' for text in texts)


def test_labels_of_the_same_width_have_one_shape_and_others_not() -> None:
    first = shape_of(dot("orders-000001"))
    assert first.key == shape_of(dot("orders-999999")).key
    assert first.key != shape_of(dot("orders-000001-much-longer")).key
    assert first.key != shape_of(dot("orders-000001", ", style=dashed")).key
    assert first.key != shape_of(dot("ORDERS-WWWWWW")).key
    assert first.labels == ("orders-000001", "orders-000001-L1", "ready")


def test_lines_and_escapes_of_a_label_are_those_of_the_drawing() -> None:
    assert shape_of(r'a [label="x \"y\"\nz\\ &amp;amp; w"]').labels == ('x "y"', "z\\ &amp; w")


def test_the_texts_that_differ_are_replaced() -> None:
    first, second = shape_of(dot("a-1")).labels, shape_of(dot("b-2")).labels
    drawn = svg("a&#45;1", "a&#45;1&#45;L1", "ready")
    assert texts_between(first, second, drawn) == {"a-1": "b-2", "a-1-L1": "b-2-L1"}
    assert texts_between(first, first, drawn) == {}


def test_a_text_that_would_stand_for_two_is_not_shared() -> None:
    first, second = shape_of(dot("ready")).labels, shape_of(dot("stock")).labels
    assert texts_between(first, second, svg("ready", "ready&#45;L1", "ready")) is None


def test_a_text_that_the_drawing_has_in_another_form_is_not_shared() -> None:
    assert texts_between(("a  b",), ("c  d",), svg("a &#160;b")) is None
    assert texts_between(("a",), ("b",), "") is None

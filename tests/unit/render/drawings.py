"""A chart as tests look at it: drawn, or the test fails."""

from __future__ import annotations

from typing import Any

from kodo_pipeline.charts.charts import Paint, Style, svg


def drawing(paint: Paint[Any], document: Any, style: Style) -> str:
    """One chart as the text of its SVG document."""
    drawn = svg(paint, document, style)
    assert drawn is not None, "there was nothing to draw"
    return drawn

"""Drawings in a page: shapes, texts and links into the catalogue, and nothing else."""

from __future__ import annotations

from kodoctl.render.inline_svg import inline_svg

HEAD = '<svg width="{width}" height="9pt" viewBox="0 0 9 9" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'


def drawn(inside: str, width: str = "10pt", label: str = "Flow") -> str:
    return inline_svg(f"{HEAD.format(width=width)}{inside}</svg>", label)


def test_shapes_and_texts_stay() -> None:
    path = '<path d="M0" fill="none" stroke="red" stroke-dasharray="5,2"></path>'
    assert path in drawn(f'<g transform="scale(1)">{path}</g>')
    assert '<text x="1">a &amp; b</text>' in drawn('<text x="1" font-family="F">a &amp; b</text>')
    assert "<text></text>" in drawn("<text/>")


def test_nothing_that_runs_or_loads_stays() -> None:
    hostile = (
        '<script>alert(1)</script><image href="https://x"/><style>a{}</style><title>t</title>'
        '<foreignObject><p onclick="x()">p</p></foreignObject><g onload="alert(2)" style="x:y"/>'
    )
    shown = drawn(hostile)
    assert shown.endswith('viewBox="0 0 9 9" width="10pt" height="9pt"><g></g></svg>')
    assert drawn("", label='"><script>').startswith(
        '<svg class="drawing" role="group" aria-label="&quot;&gt;&lt;script&gt;"'
    )


def test_links_lead_to_pages_of_the_catalogue_only() -> None:
    for link in ("trade.html", "topologies/trade.html", "trade.html#topic-orders.sub-billing"):
        assert f'<a href="{link}"><text>x</text></a>' in drawn(f'<a xlink:href="{link}"><text>x</text></a>')
    for link in ("", "https://x/y.html", "javascript:alert(1)", "//x.html", "../x.html", "x.html#a&quot;b"):
        shown = drawn(f'<a xlink:href="{link}"><text>x</text></a>')
        assert "<a" not in shown
        assert "<text>x</text>" in shown


def test_the_ground_of_a_drawing_is_that_of_the_page() -> None:
    assert "polygon" not in drawn('<polygon fill="white" stroke="transparent" points="0,0"/>')
    assert "polygon" in drawn('<polygon fill="white" stroke="black" points="0,0"/>')


def test_a_wide_drawing_is_scrolled() -> None:
    assert 'class="drawing"' in drawn("", "1100pt")
    assert 'class="drawing wide"' in drawn("", "1101pt")


def test_texts_of_a_shared_drawing_are_replaced_and_escaped() -> None:
    inside = '<g><a xlink:href="x.html"><text>orders</text></a><text>ready</text></g>'
    shown = inline_svg(f"{HEAD.format(width='9pt')}{inside}</svg>", "Lanes", {"orders": "a<b"})
    assert "<text>a&lt;b</text>" in shown
    assert "<text>ready</text>" in shown

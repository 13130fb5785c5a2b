"""Figures as people read them, in what plans say of live data."""

from __future__ import annotations


def size_text(number: int) -> str:
    """Bytes: `1.6KiB`. Exact sizes are in the evidence."""
    amount, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f}".removesuffix(".0") + unit


def age_text(ms: int) -> str:
    """Milliseconds in the largest unit that fits: `3 h`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms // size} {unit}"
    return "0 s"


def many(number: int, noun: str, plural: str = "") -> str:
    """`1 consumer`, `2,000 consumers`; `plural` where an s does not do."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"

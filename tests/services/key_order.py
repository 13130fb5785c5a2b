"""Order by key: what was seen of the messages of a key before an earlier one of the same key."""

from __future__ import annotations

from collections.abc import Container, Iterable


def overtaken(seen: Iterable[tuple[str, int]], unsure: Container[int] = ()) -> list[tuple[int, int]]:
    """Pairs of numbers of one key, the later of which was seen first: (later, earlier). `seen`: key and number, in their order;
    only the first sight of a number counts, for a copy may come at any time. `unsure`: numbers whose sender was told that
    there is no receipt, so that their place is anybody's.
    """
    known: set[int] = set()
    latest: dict[str, int] = {}
    found = []
    for key, number in seen:
        if number in known or number in unsure:
            continue
        known.add(number)
        if number < latest.get(key, number):
            found.append((latest[key], number))
        latest[key] = max(number, latest.get(key, number))
    return found

"""Flow maps (`{a: 1, b: 2}`) with their keys in canonical order: entries trade places, all else stays as written."""

from __future__ import annotations

from itertools import accumulate

from kodoctl.topology.fmt.tree import Item, KeysAt, Place, read_tree
from kodoctl.topology.yaml.comments import find_comments


def reorder_flows(text: str, keys_at: KeysAt) -> str:
    """The text with every flow map in order."""
    return _Flows(text, keys_at).whole()


class _Flows:
    def __init__(self, text: str, keys_at: KeysAt) -> None:
        self.text, self.keys_at = text, keys_at
        self.starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.comments = [self.offset((one.line - 1, one.column - 1)) for one in find_comments(text)]

    def whole(self) -> str:
        root = read_tree(self.text)
        return self.text[: self.offset(root.start)] + self.item(root) + self.text[self.offset(root.end) :]

    def offset(self, place: Place) -> int:
        return self.starts[place[0]] + place[1]

    def item(self, item: Item) -> str:
        """The text of an item with the flow maps in it reordered."""
        begin, end = self.offset(item.start), self.offset(item.end)
        if not item.entries:
            return self.text[begin:end]
        spans = [(self.offset(entry.start), self.offset(entry.value.end)) for entry in item.entries]
        texts = [
            self.text[start : self.offset(entry.value.start)] + self.item(entry.value)
            for (start, _), entry in zip(spans, item.entries, strict=True)
        ]
        if item.flow and not any(begin < comment < end for comment in self.comments):
            order = {id(entry): text for entry, text in zip(item.entries, texts, strict=True)}
            texts = [order[id(entry)] for entry in item.in_order(self.keys_at)]
        between = zip([begin, *(stop for _, stop in spans)], [*(start for start, _ in spans), end], strict=True)
        gaps = [self.text[start:stop] for start, stop in between]
        return gaps[0] + "".join(text + gap for text, gap in zip(texts, gaps[1:], strict=True))

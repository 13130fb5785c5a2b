"""One layout for every topology file: keys in the order of the models, two spaces a level; everything else stays.

It works on the lines of the file. A round trip through a YAML library (ruamel) ties each comment to the value *before*
it and would leave it behind when keys move; it also rewrites flow maps and block texts, and loses the comments in flow
maps and at the end of a document. Here an entry moves with the comment lines above it. The result is parsed again: if
data changed, a comment is lost or a second pass would change more, the file is refused.
"""

from __future__ import annotations

import re
from itertools import accumulate

from kodoctl.topology.fmt.block_style import layout
from kodoctl.topology.fmt.tree import CannotFormatError, Item, KeysAt, Place, read_tree
from kodoctl.topology.json_schema.file_schema import topology_schema
from kodoctl.topology.yaml.comments import find_comments
from kodoctl.topology.yaml.nodes import parse
from kodoctl.topology.yaml.schema_hints import SchemaHints


def format_text(text: str) -> str:
    """Returns the text in canonical layout; the same text if it has that layout already. All line ends become CRLF if
    one of them is. Raises CannotFormatError if the text cannot be changed safely.

    The text must be a topology file without findings.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    before = text.replace("\r\n", "\n")
    if re.search("[\r\x85\u2028\u2029]", before):
        raise CannotFormatError("it has line breaks that editors do not agree on (CR, NEL, LS or PS)")
    after = _arrange(before)
    if changes := _changes(before, after):
        raise CannotFormatError(changes[0])
    return after.replace("\n", newline)


def _arrange(text: str) -> str:
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    keys_at = SchemaHints(topology_schema()).canonical_keys
    in_flows = reorder_flows(text.removeprefix(mark), keys_at)
    return mark + layout(in_flows, read_tree(in_flows), keys_at)


def _changes(before: str, after: str) -> list[str]:
    """Reasons why the new layout `after` must not replace `before`; [] if it may."""
    old, new = parse(before.encode(), "before")[0], parse(after.encode(), "after")[0]
    if old is None or new is None:
        return ["an alias would come before its anchor: move the anchor up"]
    kept = {
        "its data would change": old.plain() == new.plain(),
        "a comment would be lost": _comments(before) == _comments(after),
        "a second pass would change it again": _arrange(after) == after,
    }
    return [change for change, holds in kept.items() if not holds]


def _comments(text: str) -> list[str]:
    return sorted(comment.text for comment in find_comments(text.removeprefix("\ufeff")))


def reorder_flows(text: str, keys_at: KeysAt) -> str:
    """The text with the keys of every flow map in canonical order. A flow map that contains a comment stays. `keys_at`:
    returns the keys of the map at a path in that order.
    """
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

"""Layout of block maps and lists: canonical order and indentation. Each entry moves with the comment lines above it.

Lines that belong to an entry of a collection at column C: its own, the comment lines after them that are indented
deeper than C, and the comment and blank lines above it. Comment lines at the end of a collection stay there.
"""

from __future__ import annotations

from dataclasses import dataclass

from kodoctl.topology.fmt.tree import CannotFormatError, FormatEntry, Item, KeysAt

INDENT = 2


@dataclass
class _EntryLines:
    """An entry with its lines: comments and blank lines above it, and its own, from its key to the end of its value."""

    entry: FormatEntry
    above: list[str]
    own: list[str]
    first: int  # the line of the text that `own` begins with


def layout(text: str, root: Item, keys_at: KeysAt) -> str:
    """The text with its block collections in canonical order, indented by two spaces a level; lines before the first
    and after the last entry stay. The text ends with one line end. `root`: tree of `text`; `keys_at`: returns the keys
    of the map at a path in canonical order. Raises CannotFormatError if two entries begin on one line.
    """
    lines = text.split("\n")
    if root.is_block:
        whole = _Layout(lines, keys_at)
        first = whole.first_line(root, root.entries[0], whole.column(root))
        last = _last_line(root, lines)
        head, foot = _strip_lines(lines[:first]), _strip_lines(lines[last + 1 :])
        lines = [*head, *whole.collection(root, first, last + 1, 0, divided=bool(head and head[-1])), *foot]
    return "\n".join(lines).rstrip("\n") + "\n"


class _Layout:
    def __init__(self, lines: list[str], keys_at: KeysAt) -> None:
        self.lines, self.keys_at = lines, keys_at

    def collection(self, item: Item, first: int, stop: int, target: int, *, divided: bool = False) -> list[str]:
        """Lines `first` to `stop` (exclusive), which contain only `item`, with its entries in order at column `target`.

        `divided`: there is text right above, so that a new first entry keeps its blank line.
        """
        column = self.column(item)
        parts, below = self.split(item, first, stop, column)
        of_entry = {id(part.entry): part for part in parts}
        ordered = [of_entry[id(entry)] for entry in item.in_order(self.keys_at)]
        if ordered[0] is not parts[0] and not divided:  # blank lines divide entries: nothing stands above the first
            blank = next((n for n, line in enumerate(ordered[0].above) if line), len(ordered[0].above))
            parts[0].above[:0], ordered[0].above[:blank] = ordered[0].above[:blank], []
        result: list[str] = []
        for part in ordered:
            result += _shift(part.above, target - column, column)
            result += self.entry(item, part, column, target)
        return [*result, *_shift(below, target - column, column)]

    def column(self, item: Item) -> int:
        """Column (from 0) of a block collection: that of its first key, or of its dashes."""
        line, column = item.entries[0].start
        if not item.is_list:
            return column
        line, column = item.start
        if self.lines[line][column] == "-":
            return column
        following = next(text for text in self.lines[line + 1 :] if text.lstrip().startswith("-"))
        return following.index("-")  # an anchor stood before the list

    def split(self, item: Item, first: int, stop: int, column: int) -> tuple[list[_EntryLines], list[str]]:
        """(entries of a collection with their lines, comment lines after the last entry)."""
        parts: list[_EntryLines] = []
        begin = first
        for entry in item.entries:
            start = self.first_line(item, entry, column)
            last = _last_line(entry.value, self.lines, at_least=start)
            above = _strip_lines(self.lines[begin:start])
            if parts:
                tail = _tail(above, column)
                parts[-1].own += above[:tail]
                above = above[tail:]
            parts.append(_EntryLines(entry, above, self.lines[start : last + 1], start))
            begin = last + 1
        below = _strip_lines(self.lines[begin:stop])
        tail = _tail(below, column)
        parts[-1].own += below[:tail]
        return parts, below[tail:]

    def first_line(self, item: Item, entry: FormatEntry, column: int) -> int:
        """Line (from 0) on which an entry begins: that of its key, or of its dash."""
        line = entry.start[0]
        while item.is_list and (self.lines[line][column : column + 1] != "-" or self.lines[line][:column].strip(" -")):
            line -= 1
        return line

    def entry(self, parent: Item, part: _EntryLines, column: int, target: int) -> list[str]:
        """Returns an entry's own lines, moved from `column` to column `target`; block collections in its value are laid
        out as well, in canonical order. Lines above the entry are left out. Raises CannotFormatError if another entry
        begins on its line.
        """
        value, head = part.entry.value, part.own[0]
        if head[:column].strip(" -"):
            raise CannotFormatError(f"line {part.first + 1} holds more than a key and its value")
        if value.is_block and parent.is_list and value.entries[0].start[0] == part.first:
            return self.item_with_dash(part, target)
        here = value.start[0] == part.first
        head = f"- {head[value.start[1] :]}" if parent.is_list and here else head[column:]
        if value.is_block or value.end[0] == part.first or not here:
            head = head.rstrip()
        if value.is_block:
            nested = self.collection(value, part.first + 1, part.first + len(part.own), target + INDENT)
        else:
            nested = _shift(part.own[1:], target - column, 0)
        return [" " * target + head, *nested]

    def item_with_dash(self, part: _EntryLines, target: int) -> list[str]:
        """Lines of a list entry `- key: …`, a map whose first key is on the line of the dash."""
        value = part.entry.value
        column = self.column(value)
        saved = self.lines[part.first]
        self.lines[part.first] = " " * column + saved[column:]
        nested = self.collection(value, part.first, part.first + len(part.own), target + INDENT)
        self.lines[part.first] = saved
        index = next(n for n, line in enumerate(nested) if line and not line.lstrip().startswith("#"))
        above = _shift(nested[:index], -INDENT, 0)  # comments of the new first key now stand above the dash
        return [*above, f"{' ' * target}-{nested[index][target + 1 :]}", *nested[index + 1 :]]


def _last_line(item: Item, lines: list[str], at_least: int = 0) -> int:
    """Last line (from 0) with a part of `item`. A block text ends, for the parser, where the next line begins."""
    line, column = item.end
    last = line - 1 if column == 0 else line
    while last > at_least and not lines[last]:
        last -= 1
    return max(last, at_least)


def _tail(gap: list[str], column: int) -> int:
    """Number of lines of `gap` that belong to the entry before: up to the last comment indented deeper than `column`."""
    count = 0
    for number, line in enumerate(gap, 1):
        if line and _indent(line) <= column:
            break
        if line:
            count = number
    return count


def _strip_lines(lines: list[str]) -> list[str]:
    return [line.rstrip() for line in lines]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shift(lines: list[str], by: int, column: int) -> list[str]:
    """Lines moved by `by` columns, negative: to the left. Lines indented less than `column` stay."""
    indents = [(line, _indent(line)) for line in lines]
    return [
        line if not line or indent < column else " " * max(0, indent + by) + line[indent:] for line, indent in indents
    ]

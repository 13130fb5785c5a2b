"""Tree of a YAML text for the formatter: beginning and end of every value. Aliases are leaves and stay as written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # the stubs forget to re-export it

Place = tuple[int, int]  # line and column, both from 0
Path = tuple[str | int, ...]
KeysAt = Callable[[Path], list[str]]  # the keys of the map at a path in the order they should stand


class CannotFormatError(Exception):
    """The formatter does not change this text; the message gives the reason."""


@dataclass
class Item:
    """A value: a collection with its entries, or a leaf (a scalar or an alias). `start`, `end`: (line, column), from 0,
    of its first character and after its last one; `flow`: True for a collection in brackets and for a leaf, False for a
    collection that is written by indentation.
    """

    start: Place
    end: Place
    path: Path
    flow: bool = True
    is_list: bool = False
    entries: list[FormatEntry] = field(default_factory=list)

    @property
    def is_block(self) -> bool:
        """True for a collection that is written by indentation, without brackets."""
        return not self.flow

    def in_order(self, keys_at: KeysAt) -> list[FormatEntry]:
        """The entries in canonical order. A list and a map whose keys are names of the user keep their order.
        `keys_at`: returns the keys of the map at a path in canonical order; [] for names of the user.
        """
        order = [] if self.is_list else keys_at(self.path)
        places = {key: place for place, key in enumerate(order)}
        return sorted(self.entries, key=lambda entry: places.get(entry.key, len(order)))


@dataclass
class FormatEntry:
    """One entry of a collection. `start`: (line, column), from 0, of its key; in a list of its value, and `key` is ""
    then.
    """

    key: str
    start: Place
    value: Item


def read_tree(text: str) -> Item:
    """Tree of the only document of a text that has no findings. Raises CannotFormatError for an empty text."""
    parser = CParser(text)
    events = iter(parser.get_event, None)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            return _item(next(events), events, ())
    raise CannotFormatError("it is empty")


def _item(event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> Item:
    start, end = _place(event.start_mark), _place(event.end_mark)
    if not isinstance(event, yaml.CollectionStartEvent):
        return Item(start, end, path)
    item = Item(start, end, path, flow=bool(event.flow_style), is_list=isinstance(event, yaml.SequenceStartEvent))
    while not isinstance(event := next(events), yaml.CollectionEndEvent):
        begin, key, step = _place(event.start_mark), "", len(item.entries)
        if isinstance(event, yaml.ScalarEvent) and not item.is_list:
            key, event = event.value, next(events)
            item.entries.append(FormatEntry(key, begin, _item(event, events, (*path, key))))
        else:
            item.entries.append(FormatEntry(key, begin, _item(event, events, (*path, step))))
    item.end = _place(event.end_mark) if item.flow else max((entry.value.end for entry in item.entries), default=end)
    return item


def _place(mark: yaml.Mark | Any) -> Place:
    return mark.line, mark.column

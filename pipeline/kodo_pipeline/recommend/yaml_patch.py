"""Editor of the routes in the text of a topology file, which keeps comments and layout. Pure.

Edits are made at positions that kodoctl.topology.fmt.tree finds, so all other text stays as it is. A route is managed
by kodoctl if it names tenants by the topic's `fair_by` with `in`, or keys with `key IN (…)`; all others belong to the
user.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import yaml

from kodoctl.topology.fmt.tree import FormatEntry, Item, Path, read_tree
from kodoctl.topology.json_schema.file_schema import topology_schema
from kodoctl.topology.model.subscription import RouteCondition
from kodoctl.topology.model.topology import KEY
from kodoctl.topology.names import RouteMoment
from kodoctl.topology.route_conditions import as_property, key_test_of, share_of
from kodoctl.topology.yaml.schema_hints import SchemaHints

if TYPE_CHECKING:
    from kodoctl.topology.model.subscription import Route

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_LINE_ENDS: Final = "\n\r\x85\u2028\u2029"
_YAML_LINE: Final = re.compile(f"[^{_LINE_ENDS}]*(?:\r\n|[{_LINE_ENDS}])|[^{_LINE_ENDS}]+")  # as libyaml counts lines
_SPACES: Final = re.compile(" *")
_COMMENT: Final = re.compile(f"#[^{_LINE_ENDS}]*")
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NO_END: Final = "\\ No newline at end of file\n"


class CannotPatchError(Exception):
    """The file cannot be edited, or a patch does not fit. The text names the place."""


@dataclass(frozen=True, slots=True)
class ManagedRoute:
    """A route that kodoctl manages. `index`: index in the list of routes, -1: not in the file yet; `tenants`: tenants
    that it moves; `to`: the level.
    """

    index: int
    tenants: tuple[str, ...]
    to: str


def managed_routes(routes: Sequence[Route], fair_by: str | None, ladder: Sequence[str]) -> list[ManagedRoute]:
    """Finds the routes that kodoctl manages: at dispatch, they move all messages of tenants, named by `fair_by` with
    `in`, to a level of `ladder`.
    """
    return [
        ManagedRoute(at, tuple(as_property(value) for value in when.in_), route.to.value)
        for at, route in enumerate(routes)
        if (when := _test_of(route, fair_by)) is not None and when.in_ is not None and route.to.value in ladder
    ]


def _test_of(route: Route, fair_by: str | None) -> RouteCondition | None:
    """Condition on the tenant, if the route tests it for every message at dispatch; None for any other route. If keys
    are the tenants, the file has the condition as text: `key IN ('a', 'b')`.
    """
    when = key_test_of(route.when) if fair_by == KEY and isinstance(route.when, str) else route.when
    plain = route.at == (RouteMoment.DISPATCH,) and share_of(route) == 1
    return when if plain and isinstance(when, RouteCondition) and when.property == fair_by else None


def foreign_tenants(routes: Sequence[Route], fair_by: str | None, ladder: Sequence[str]) -> frozenset[str]:
    """Tenants that the user's own routes name by `fair_by`. Only routes that apply to all messages at dispatch are
    examined.
    """
    known = {one.index for one in managed_routes(routes, fair_by, ladder)}
    named = [_test_of(route, fair_by) for at, route in enumerate(routes) if at not in known]
    values = [
        value
        for one in named
        if one is not None
        for value in (one.in_ or ()) + ((one.equals,) if one.equals is not None else ())
    ]
    return frozenset(as_property(value) for value in values)


def move_tenants(
    before: Sequence[ManagedRoute], places: Mapping[str, str | None]
) -> tuple[list[ManagedRoute], list[ManagedRoute]]:
    """Changes managed routes so that tenants go to new levels. Returns (routes after the change, routes to append).

    `places`: new level by tenant, None: no route. The first list has one item for each of `before`; a route without
    tenants in it is to be removed.
    """
    kept = [
        ManagedRoute(one.index, tuple(name for name in one.tenants if name not in places), one.to) for one in before
    ]
    appended: list[ManagedRoute] = []
    for level in dict.fromkeys(level for level in places.values() if level):
        names = tuple(name for name, to in places.items() if to == level)
        same = next((at for at, one in enumerate(kept) if one.to == level), None)
        free = next((at for at, one in enumerate(kept) if not one.tenants), None)
        at = same if same is not None else free
        if at is None:
            appended.append(ManagedRoute(-1, names, level))
        else:
            kept[at] = ManagedRoute(kept[at].index, (*(kept[at].tenants), *names), level)
    return kept, appended


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Edit of a text: the characters from `start` to before `end` are replaced by `text`."""

    start: int
    end: int
    text: str


class Text:
    """A YAML text with its parsed tree. Methods record edits, and `result` carries them out. Raises CannotPatchError if
    the text is no YAML, CannotFormatError if it is empty.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self._starts = [0]
        for line in _YAML_LINE.findall(text):
            self._starts.append(self._starts[-1] + len(line))
        try:
            self.tree = read_tree(text)
        except yaml.YAMLError as problem:
            raise CannotPatchError(f"it is no YAML: {problem}") from None
        self.edits: list[TextEdit] = []

    def find(self, path: Path) -> Item | None:
        """Item at the path, a sequence of keys and indexes; None if there is none."""
        item = self.tree
        for step in path:
            entry = _entry(item, step)
            if entry is None:
                return None
            item = entry.value
        return item

    def result(self) -> str:
        """Returns the text with every recorded edit made."""
        text = self.text
        ordered = sorted(
            self.edits, key=lambda one: (one.start, one.end)
        )  # stable: texts for one place keep their order
        for one in reversed(ordered):
            text = text[: one.start] + one.text + text[one.end :]
        return text

    def replace(self, item: Item, text: str) -> None:
        """Records an edit that replaces the item by `text`."""
        self.edits.append(TextEdit(self._offset(item.start), self._offset(item.end), text))

    def put(self, path: Path, key: str, value: str) -> None:
        """Records an edit that sets the key at `path` to a value on one line, whether the key exists or not. Raises
        CannotPatchError if the present value is written over several lines, or if the key is new and `path` has no
        keys.
        """
        there = self.find((*path, key))
        if there is None:
            self.set_key(path, key, [value])
        elif there.flow:
            self.replace(there, value)
        else:
            raise CannotPatchError(f"`{key}` is written over several lines")

    def set_key(self, path: Path, key: str, value: Sequence[str]) -> None:
        """Records an edit that adds a key at `path`. `value`: one line, or lines that begin with `- ` and are written
        below the key, indented. Raises CannotPatchError if `path` has no keys.
        """
        owner = self.find(path)
        if owner is None or not owner.entries:
            raise CannotPatchError(f"`{path[-1]}` has no keys yet")
        if owner.flow:
            if value[0].startswith("- "):
                value = [f"[{', '.join(line.removeprefix('- ') for line in value)}]"]
            self._add_in_brackets(owner, f"{key}: {value[0]}")
            return
        indent = " " * owner.entries[0].start[1]  # an anchor of the owner stands elsewhere
        several = value[0].startswith("- ")
        lines = (
            [f"{indent}{key}:", *(f"{indent}  {line}" for line in value)] if several else [f"{indent}{key}: {value[0]}"]
        )
        order = SchemaHints(topology_schema()).canonical_keys(path)
        before = set(order[: order.index(key)]) if key in order else set()
        above = [entry for entry in owner.entries if entry.key in before]
        if above:
            self._insert_below(_last_line(above[-1].value), lines)
        else:
            self._insert_below(owner.entries[0].start[0] - 1, lines)

    def append(self, path: Path, line: str) -> None:
        """Records an edit that adds an entry, such as `{…}`, to the end of the list at `path`, which must exist. Raises
        CannotPatchError if the file has an alias there, or a value that is no list.
        """
        owner = self.find(path)
        assert owner is not None
        if not owner.is_list:
            raise CannotPatchError(f"`{path[-1]}` is an alias, or no list")
        if owner.flow:
            self._add_in_brackets(owner, line)
        else:
            spaces = _SPACES.match(self.text, self._starts[owner.entries[0].start[0]])
            assert spaces is not None
            indent = min(owner.start[1], len(spaces[0]))  # an anchor stands on the line above
            self._insert_below(_last_line(owner), [f"{' ' * indent}- {line}"])

    def remove(self, path: Path, indexes: set[int]) -> None:
        """Records edits that remove entries of the list at `path`, which must exist, or its key if no entry is left.
        Raises CannotPatchError if the mapping that has the key would then be empty.
        """
        owner = self.find(path)
        assert owner is not None
        if len(indexes) < len(owner.entries):
            self._remove(owner, indexes)
        else:
            above = self.find(path[:-1])
            assert above is not None
            self._remove(above, {at for at, entry in enumerate(above.entries) if entry.key == path[-1]})

    def _remove(self, owner: Item, indexes: set[int]) -> None:
        if len(indexes) == len(owner.entries):
            raise CannotPatchError("nothing else would be left beside the routes")
        for at in sorted(indexes):
            entry = owner.entries[at]
            if not owner.flow:
                self.edits.append(TextEdit(self._starts[entry.start[0]], self._starts[_last_line(entry.value) + 1], ""))
            elif any(before not in indexes for before in range(at)):
                before = max(one for one in range(at) if one not in indexes or one == at - 1)
                self.edits.append(
                    TextEdit(self._offset(owner.entries[before].value.end), self._offset(entry.value.end), "")
                )
            else:
                self.edits.append(TextEdit(self._offset(entry.start), self._offset(owner.entries[at + 1].start), ""))

    def _add_in_brackets(self, owner: Item, text: str) -> None:
        """Records an edit that adds an entry before the closing bracket. The last entry may have a comma after it."""
        at = self._offset(owner.end) - 1
        since = self._offset(owner.entries[-1].value.end) if owner.entries else at
        needs_comma = bool(owner.entries) and "," not in _COMMENT.sub("", self.text[since:at])
        if needs_comma or any(one.start == at for one in self.edits):
            text = f", {text}"
        elif self.text[at - 1] == ",":
            text = f" {text}"
        self.edits.append(TextEdit(at, at, text))

    def _insert_below(self, line: int, lines: Sequence[str]) -> None:
        at = self._starts[line + 1]
        open_end = at > 0 and self.text[at - 1] not in _LINE_ENDS
        text = self.newline.join(lines)
        self.edits.append(TextEdit(at, at, f"{self.newline}{text}" if open_end else f"{text}{self.newline}"))

    def _offset(self, place: tuple[int, int]) -> int:
        return self._starts[place[0]] + place[1]


def _entry(item: Item, step: str | int) -> FormatEntry | None:
    if isinstance(step, int):
        return item.entries[step] if item.is_list and step < len(item.entries) else None
    return next((entry for entry in item.entries if entry.key == step and not item.is_list), None)


def _last_line(item: Item) -> int:
    line, column = item.end
    return line if column else line - 1


def rewrite_routes(
    text: str,
    path: Path,
    fair_by: str,
    before: Sequence[ManagedRoute],
    places: Mapping[str, str | None],
    adds: Sequence[tuple[Path, str, str]] = (),
) -> str:
    """Returns the text of the topology file, with routes that send tenants of the subscription at `path` to new levels.
    `fair_by`: property with the tenant; `before`: present managed routes; `places`: new level by tenant, None: no route
    (other tenants keep theirs); `adds`: (path of a topic, key, value) of keys to set, such as `backup: true`. Raises
    CannotPatchError.
    """
    edited = Text(text)
    kept, appended = move_tenants(before, places)
    routes: Path = (*path, "routes")
    for old, new in zip(before, kept, strict=True):
        if new.tenants and new != old:
            _rewrite(edited, (*routes, old.index), fair_by, old, new)
    if gone := {one.index for one in kept if not one.tenants}:
        edited.remove(routes, gone)
    if appended:
        added = [_route(fair_by, one) for one in appended]
        if edited.find(routes) is None:
            edited.set_key(path, "routes", [f"- {line}" for line in added])
        else:
            for line in added:
                edited.append(routes, line)
    for topic, key, value in adds:
        edited.put(topic, key, value)
    return edited.result()


def _rewrite(edited: Text, path: Path, fair_by: str, old: ManagedRoute, new: ManagedRoute) -> None:
    whom: tuple[tuple[str, ...], str] = (("when", "in"), _names(new.tenants))
    if fair_by == KEY:
        whom = (("when",), yaml_scalar(key_condition(new.tenants)))
    for step, changed, value in (
        (whom[0], old.tenants != new.tenants, whom[1]),
        (("to",), old.to != new.to, new.to),
    ):
        item = edited.find((*path, *step))
        if item is None:
            raise CannotPatchError(f"route {old.index + 1} is an alias, or stands elsewhere")
        if changed:
            edited.replace(item, value)


def _route(fair_by: str, one: ManagedRoute) -> str:
    if fair_by == KEY:
        return f"{{when: {yaml_scalar(key_condition(one.tenants))}, to: {one.to}}}"
    return f"{{when: {{property: {yaml_scalar(fair_by)}, in: {_names(one.tenants)}}}, to: {one.to}}}"


def key_condition(keys: Sequence[str]) -> str:
    """Condition of a route that applies to messages with these keys."""
    quoted = ", ".join("'{}'".format(key.replace("\\", "\\\\").replace("'", "\\'")) for key in keys)
    return f"key IN ({quoted})"


def _names(tenants: Sequence[str]) -> str:
    return f"[{', '.join(yaml_scalar(name) for name in tenants)}]"


def yaml_scalar(text: str) -> str:
    """Returns a text as a YAML scalar in flow style, on one line, quoted if necessary. Characters that YAML reads as
    the end of a line are escaped.
    """
    style = '"' if any(end in text for end in _LINE_ENDS) else None  # other styles would write several lines
    dumped = yaml.safe_dump([text], default_flow_style=True, default_style=style, width=10**9, allow_unicode=True)
    return dumped.strip()[1:-1]


def unified_diff(name: str, before: str, after: str) -> str:
    """Unified diff of a file, for `git apply`; "" if the texts are equal. `name`: path of the file from the root of its
    repository.
    """
    return "".join(_diff(name, before, after))


def _diff(name: str, before: str, after: str) -> Iterator[str]:
    old, new = _LINE.findall(before), _LINE.findall(after)
    for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n{_NO_END}"


def apply_diff(text: str, diff: str) -> str:
    """Applies a unified diff of one file to its text, and returns the new text. Lines outside of hunks are ignored, and
    so is the name of the file. Raises CannotPatchError if the diff was made of another text, or has no hunk.
    """
    old, made, at = _LINE.findall(text), list[str](), 0
    lines = _LINE.findall(diff)
    number = 0
    while number < len(lines):
        head = _HUNK.match(lines[number])
        number += 1
        if head is None:
            continue
        begin, gone, new = int(head[1]), int(head[2] or 1), int(head[3] or 1)
        begin -= gone > 0  # a hunk that only adds names the line before
        made += old[at:begin]
        at = begin
        hunk, number = _hunk(lines, number, gone, new)
        if [one[1:] for one in hunk if one[0] in " -"] != old[at : at + gone]:
            raise CannotPatchError(f"line {begin + 1} is not as the patch has it")
        made += [one[1:] for one in hunk if one[0] in " +"]
        at += gone
    if not any(map(_HUNK.match, lines)):
        raise CannotPatchError("there is no patch in it")
    return "".join([*made, *old[at:]])


def _hunk(lines: Sequence[str], number: int, gone: int, new: int) -> tuple[list[str], int]:
    """Returns (lines of the hunk, index of the line after it)."""
    hunk: list[str] = []
    while number < len(lines) and (gone or new or lines[number] == _NO_END):
        line = lines[number]
        number += 1
        if line == _NO_END:
            hunk[-1:] = [one.removesuffix("\n") for one in hunk[-1:]]
            continue
        gone -= line[0] in " -"
        new -= line[0] in " +"
        hunk.append(line)
    return hunk, number

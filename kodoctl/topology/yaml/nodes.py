"""YAML text with positions -> a tree of nodes, safe against hostile files.

One pass over libyaml's event stream checks depth, size, aliases, tags, duplicate and merge keys *before* anything is
built from them: libyaml's composer crashes the process on 100,000 levels, its event stream does not (measured), and
one pass over events is three times faster than composing. Scalars resolve by YAML 1.2's core schema (`no` is a
string).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn, Protocol

import yaml
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # the stubs forget to re-export it

from kodoctl.errors import Diagnostic, Where, error

MAX_BYTES: Final = 8 << 20
MAX_DEPTH: Final = 64  # levels of maps and lists, those that aliases stand for included
MAX_NODES: Final = 600_000  # values without keys: twice what 5,000 richly declared ground topics need
MAX_ALIASED: Final = 100_000  # values that aliases stand for, together
MAX_ITEMS: Final = 20_000  # of one list or map
MAX_FINDINGS: Final = 200  # of one file; nobody reads more

Scalar = str | int | float | bool | None
Plain = Scalar | list["Plain"] | dict[str, "Plain"]

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_INT = re.compile(r"[-+]?[0-9]{1,20}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?", re.ASCII)
_WORDS: Final[dict[str, Scalar]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"),
}  # fmt: skip
Path = tuple[str | int, ...]
"""Keys of maps and indices of lists, from the root of the file."""


class Node:
    """A value with its place; a value in a map also has the place of its key. Lines and columns count from 1.
    `end_line`, `end_column`: the place after the last character; `size`: number of values in it, itself included;
    `depth`: levels of maps and lists in it, itself included, 0 for a scalar. Nodes are not changed once the tree is
    built.
    """

    __slots__ = ("column", "depth", "end_column", "end_line", "file", "key_column", "key_line", "line", "size", "value")

    def __init__(
        self,
        value: Scalar | list[Node] | dict[str, Node],
        file: str,
        line: int,
        column: int,
        end: tuple[int, int] | None = None,
        size: int = 1,
        depth: int = 0,
    ) -> None:
        self.value = value
        self.file = file
        self.line = self.key_line = line
        self.column = self.key_column = column
        self.end_line, self.end_column = end or (line, column)
        self.size = size
        self.depth = depth

    @property
    def where(self) -> Where:
        """Place of the value."""
        return Where(self.file, self.line, self.column)

    @property
    def key_where(self) -> Where:
        """Place of the value's key; in a list, of the value."""
        return Where(self.file, self.key_line, self.key_column)

    def children(self) -> Iterator[Node]:
        """Yields the values in this map or list, in the order of the file."""
        if isinstance(self.value, dict):
            yield from self.value.values()
        elif isinstance(self.value, list):
            yield from self.value

    def members(self, *path: str) -> dict[str, Node]:
        """Key -> node of the map at `path` below this node; {} if there is no map."""
        node, walked = node_at(self, path)
        return node.value if walked == path and isinstance(node.value, dict) else {}

    def plain(self) -> Plain:
        """The value as plain Python values, without places."""
        value = self.value
        if isinstance(value, dict):
            return {key: child.plain() for key, child in value.items()}
        if isinstance(value, list):
            return [child.plain() for child in value]
        return value

    def twin(self) -> Node:
        """A copy of this node that shares its children. The place of the key is not copied: it is that of the value
        until the caller sets it, so that an alias gets the place of its own key, and the anchored node keeps its own.
        """
        end = (self.end_line, self.end_column)
        return Node(self.value, self.file, self.line, self.column, end, self.size, self.depth)


class _EventMark(Protocol):
    line: int
    column: int


def _place(mark: _EventMark | None) -> tuple[int, int]:
    """(line, column) from 1; (0, 0) without a mark, which libyaml always gives, unlike its type stubs."""
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


class _HopelessError(Exception):
    """Parsing cannot continue; the finding is already in the list."""


def parse(data: bytes, file: str) -> tuple[Node | None, list[Diagnostic]]:
    """Returns (root node of the document, findings). The root is None if the text cannot be parsed to its end: it is
    empty, no UTF-8, no YAML or more than one document, has a control character, is beyond a limit of this module, or
    has 200 findings (MAX_FINDINGS).
    There may be findings with a root, too. `file`: its name in findings and places. Raises nothing for any bytes.
    """
    if len(data) > MAX_BYTES:
        size = f"{len(data) / (1 << 20):.1f} MiB"
        detail = f"{size}, at most 8 MiB: split it into several files with names of their own"
        return None, [error("K009", "file too large", detail, Where(file))]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        before = problem.object[: problem.start]  # without a byte order mark, unlike `data`
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode()) + 1
        detail = f"byte 0x{problem.object[problem.start]:02x} is not UTF-8: save the file as UTF-8"
        return None, [error("K012", "not UTF-8 text", detail, Where(file, line, column))]
    if match := _CONTROL.search(text):
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - (text.rfind("\n", 0, match.start()) + 1) + 1
        detail = f"U+{ord(match[0]):04X} is not allowed in YAML: remove it"
        return None, [error("K012", "control character", detail, Where(file, line, column))]
    builder = _Builder(text, file)
    return builder.build(), builder.findings


class _Builder:
    """Builds nodes from parser events with its own stack, so that deep nesting needs no recursion."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.parser = CParser(text)
        self.file = file
        self.findings: list[Diagnostic] = []
        self.anchors: dict[str, Node] = {}
        self.open_anchors: set[str] = set()
        self.nodes = 0
        self.aliased = 0

    def build(self) -> Node | None:
        """Root node of the only document; None if there is no document, or if the text cannot be parsed to its end.
        Adds all faults to `findings`, also when it returns a root. Call it once.
        """
        try:
            root = self._document()
        except _HopelessError:
            return None
        except yaml.MarkedYAMLError as problem:
            from kodoctl.topology.yaml.error_hints import yaml_error_hint

            place, detail = yaml_error_hint(problem, self.text)
            self.findings.append(error("K001", "not YAML", detail, Where(self.file, *place)))
            return None
        return root

    def _document(self) -> Node | None:
        root: Node | None = None
        while not isinstance(event := self._event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._hopeless(
                        event, "K014", "more than one document", "one file holds one document: remove the '---'"
                    )
                root = self._node(self._event())
        if root is None:
            self.findings.append(error("K001", "empty file", "`kodoctl init` writes an example", Where(self.file)))
        return root

    def _event(self) -> Any:
        """The next event, of a type of yaml.events; typed as Any, because checks of its type cost a third of the
        parsing.
        """
        return self.parser.get_event()

    def _node(self, event: Any) -> Node:
        """The node that begins with `event`, read to its end."""
        root = self._begin(event)
        if not isinstance(event, yaml.CollectionStartEvent):
            return root
        next_event = self.parser.get_event
        stack: list[tuple[Node, str | None]] = [(root, event.anchor)]
        while stack:
            parent, anchor = stack[-1]
            event = next_event()
            if isinstance(event, yaml.CollectionEndEvent):
                _end_collection(parent, event)
                self._close(parent, anchor)
                stack.pop()
                if stack:
                    stack[-1][0].size += parent.size
                    stack[-1][0].depth = max(stack[-1][0].depth, parent.depth + 1)
                continue
            key = None
            if type(parent.value) is dict:
                key = self._key(event)
                event = next_event()
            child = self._begin(event)
            self._attach(parent, key, child)
            if child.depth:
                if len(stack) + child.depth > MAX_DEPTH:
                    self._hopeless(event, "K010", "nested too deeply", f"more than {MAX_DEPTH} levels")
                parent.depth = max(parent.depth, child.depth + 1)
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append((child, event.anchor))
            else:
                parent.size += child.size
        return root

    def _begin(self, event: Any) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None:
            self._refuse_tag(event)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self._hopeless(event, "K008", "too many values", f"more than {MAX_NODES:,}: split the file")
        start = event.start_mark
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, start.line + 1, start.column + 1)
        if event.anchor:
            self.open_anchors.add(event.anchor)
        value: dict[str, Node] | list[Node] = {} if isinstance(event, yaml.MappingStartEvent) else []
        return Node(value, self.file, start.line + 1, start.column + 1, depth=1)

    def _scalar(self, event: Any, line: int, column: int) -> Node:
        if event.style == '"':
            self._refuse_control(event)
        node = Node(_resolve(event.value) if event.implicit[0] else event.value, self.file, line, column)
        end = event.end_mark
        node.end_line, node.end_column = end.line + 1, end.column + 1
        if node.end_column == 1 and node.end_line > line:  # a block text ends before the next line begins
            node.end_line -= 1
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _refuse_tag(self, event: Any) -> None:
        detail = f"{event.tag}: remove it, and quote the value to make it a text"
        self._note(event, "K013", "tags are not allowed", detail)

    def _refuse_control(self, event: Any) -> None:
        """Reports a control character in a text, which could change the display of a terminal."""
        if match := _CONTROL.search(event.value):
            detail = f"the text holds U+{ord(match[0]):04X}, written as an escape: remove it"
            self._note(event, "K012", "control character", detail)

    def _alias(self, event: Any) -> Node:
        name = event.anchor
        if name in self.open_anchors or name not in self.anchors:
            why = "it would contain itself" if name in self.open_anchors else "no such anchor before this place"
            self._hopeless(event, "K008", "alias that cannot be resolved", f"*{name}: {why}")
        node = self.anchors[name]
        self.aliased += node.size
        if self.aliased > MAX_ALIASED:
            detail = f"the aliases of this file stand for more than {MAX_ALIASED:,} values: write them out, or use `defaults`"
            self._hopeless(event, "K008", "aliases beyond the budget", detail)
        return node.twin()

    def _key(self, event: Any) -> Any:
        if not isinstance(event, yaml.ScalarEvent):
            self._hopeless(event, "K001", "a key that is not a text", "lists, maps and aliases cannot be keys")
        if event.tag is not None:
            self._refuse_tag(event)
        if event.anchor:
            self._scalar(event, *_place(event.start_mark))  # for the aliases of the key's text
        elif event.style == '"':
            self._refuse_control(event)
        if "\n" in event.value:
            self._note(event, "K001", "a key of several lines", "write it on one line, without \\n")
        return event

    def _attach(self, parent: Node, key: Any, child: Node) -> None:
        siblings: Any = parent.value
        if len(siblings) >= MAX_ITEMS:
            detail = f"more than {MAX_ITEMS:,} in one list or map: split the file"
            self.findings.append(error("K008", "too many values", detail, child.where))
            raise _HopelessError
        if key is None:
            siblings.append(child)
            return
        text = key.value
        if text == "<<" and key.implicit[0]:
            self._note(key, "K011", "merge keys are not allowed", "write the keys out, or use `defaults`")
        elif text in siblings:
            first = siblings[text].key_line
            self._note(key, "K002", "duplicate key", f"{text!r} stands on line {first} already: keep one of the two")
        else:
            start = key.start_mark
            child.key_line, child.key_column = start.line + 1, start.column + 1
            siblings[text] = child

    def _close(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self.open_anchors.discard(anchor)
            self.anchors[anchor] = node

    def _note(self, event: yaml.Event, code: str, summary: str, detail: str) -> None:
        self.findings.append(error(code, summary, detail, Where(self.file, *_place(event.start_mark))))
        if len(self.findings) >= MAX_FINDINGS:
            raise _HopelessError

    def _hopeless(self, event: yaml.Event, code: str, summary: str, detail: str) -> NoReturn:
        self._note(event, code, summary, detail)
        raise _HopelessError


def _end_collection(node: Node, event: yaml.Event) -> None:
    """Sets the end of a collection: that of its bracket, or of the last child of a block collection, because libyaml's
    mark is already at the next token.
    """
    start, end = _place(event.start_mark), _place(event.end_mark)
    if start != end:
        node.end_line, node.end_column = end
    elif node.value:
        children: Any = node.value
        last: Node = children[-1] if isinstance(children, list) else next(reversed(children.values()))
        # an alias has the place of its anchor, which is above
        node.end_line, node.end_column = max((last.end_line, last.end_column), (last.key_line, last.key_column))


def _resolve(text: str) -> Scalar:
    """Python value of a plain scalar by YAML 1.2's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-.0123456789":
        if _INT.fullmatch(text):
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def node_at(root: Node, path: Path) -> tuple[Node, Path]:
    """Returns (the deepest node that exists along `path`, the part of the path that leads to it): the whole path if
    there is a node at it.
    """
    node = root
    walked: list[str | int] = []
    for step in path:
        match node.value:
            case dict() as children if isinstance(step, str) and step in children:
                node = children[step]
            case list() as items if isinstance(step, int) and step < len(items):
                node = items[step]
            case _:
                break
        walked.append(step)
    return node, tuple(walked)

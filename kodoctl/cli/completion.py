"""Values that a shell completes: contexts, environments, topics, subscriptions, namespaces, instances, ids of applies.

Imported only when a shell completes a line. A source that cannot be read is left out without a word, because a shell
shows no errors.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kodoctl.topology.yaml.nodes import Node

_SAFE: Final = re.compile(r"[\w./=@+-]+")
"""Values that a shell takes as they are. Others, such as `*`, would be expanded by bash."""
_FILES: Final = ("paths", "path", "topology", "file")
"""Names of parameters whose values are topology files."""
_JOURNAL_S: Final = 3.0  # seconds in which a cluster has to answer a shell
_Ids = Callable[[Iterable[dict[str, Any]], str], Iterable[str]]


def completer(command: str, parameter: Any) -> Callable[[Any, Any, str], list[str]] | None:
    """Returns the function by which typer completes the values of a parameter; None if no values are known. `command`:
    words of the command with those before it, such as `kodoctl dev up`.
    """
    option = max(parameter.opts, key=len)
    source = _BY_COMMAND.get((command.split()[1], option)) or _BY_OPTION.get(option)
    if source is None:
        return None

    def complete(line: Any, _: Any, incomplete: str) -> list[str]:
        found: set[str] = set()
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            found.update(source(line.params))
        return sorted(value for value in found if value.startswith(incomplete) and _SAFE.fullmatch(value))

    return complete


def _contexts(_: Mapping[str, Any]) -> Iterable[str]:
    from kodoctl.pulsar.connection.connection import read_contexts

    return read_contexts(os.environ, Path.cwd()).by_name


def _instances(_: Mapping[str, Any]) -> Iterable[str]:
    from kodoctl.cli.dev.dev_commands import homes
    from kodoctl.dev.instance import all_instances

    return [instance.name for instance in all_instances(homes())]


def _roots(given: Mapping[str, Any]) -> Iterator[Node]:
    """Yields the nodes of each topology file that the line names, else of those in the default folder."""
    from kodoctl.topology.yaml.nodes import MAX_BYTES, parse

    typed = [given.get(name) for name in _FILES]
    named = [text for value in typed if value for text in ([value] if isinstance(value, str) else value)]
    for place in map(Path, named or ["topologies"]):
        for file in sorted(one for one in place.rglob("*.y*ml")) if place.is_dir() else [place]:
            with contextlib.suppress(OSError), file.open("rb") as stream:
                root, _ = parse(stream.read(MAX_BYTES), str(file))
                if root is not None:
                    yield root


def _environments(given: Mapping[str, Any]) -> Iterator[str]:
    for root in _roots(given):
        yield from ("base", *root.members("environments")) if root.members("environments") else ()


def _topics(given: Mapping[str, Any]) -> Iterator[str]:
    for root in _roots(given):
        yield from root.members("topics")


def _subscriptions(given: Mapping[str, Any]) -> Iterator[str]:
    named = given.get("topic")
    for root in _roots(given):
        for topic in root.members("topics"):
            if not named or topic in named:
                yield from root.members("topics", topic, "subscriptions")


def _places(given: Mapping[str, Any]) -> Iterator[tuple[str, Node]]:
    """Yields (TENANT/NAMESPACE, root) of each file that names both: a file of team rules, for example, names none."""
    for root in _roots(given):
        head = root.members()
        if {"tenant", "namespace"} <= head.keys():
            yield f"{head['tenant'].value}/{head['namespace'].value}", root


def _namespaces(given: Mapping[str, Any]) -> Iterator[str]:
    for place, _ in _places(given):
        yield place


def _full_topics(given: Mapping[str, Any]) -> Iterator[str]:
    if given.get("topology"):  # then a topic is named as in the file
        yield from _topics(given)
        return
    for place, root in _places({}):
        yield from (f"{place}/{name}" for name in root.members("topics"))


def _applies(given: Mapping[str, Any]) -> list[str]:
    """`last`, and the ids of applies in the journals."""
    from kodoctl.plan.history import read_history

    return _journal_ids(given, lambda entries, _: [one.id for one in read_history(entries).applies])


def _replays(given: Mapping[str, Any]) -> list[str]:
    """`last`, and the runs of replays in the journals."""
    from kodoctl.recall.plan.replay_history import read_replays

    return _journal_ids(given, lambda entries, space: list(read_replays(entries, space)))


def _journal_ids(given: Mapping[str, Any], ids: _Ids) -> list[str]:
    """`last`, and the ids that `ids` reads from the journals of the namespace that the line names, else of those of the
    files, if the cluster answers in time.
    """
    found = ["last"]
    spaces = [given["namespace"]] if given.get("namespace") else list(_namespaces(given))
    reading = threading.Thread(target=_read_ids, args=(given, spaces, ids, found), daemon=True)
    reading.start()
    reading.join(_JOURNAL_S)
    return list(found)


def _read_ids(given: Mapping[str, Any], spaces: Iterable[str], ids: _Ids, found: list[str]) -> None:
    """Adds the ids in the journals of the namespaces `spaces` to `found`. A journal that cannot be read is left out."""
    from dataclasses import fields

    from kodoctl.cli.common.command_target import TargetOptions, parse_namespace
    from kodoctl.plan.history import parse
    from kodoctl.pulsar.control.journal import read_journal

    flags = {one.name: given.get(one.name) for one in fields(TargetOptions)}
    contexts = flags["context"]
    first = contexts if isinstance(contexts, str | None) else next(iter(contexts), None)
    with contextlib.suppress(Exception), TargetOptions(**{**flags, "context": first}).session() as session:
        for space in spaces:
            with contextlib.suppress(Exception):
                entries = read_journal(session.admin, session.client, parse_namespace(space))
                found.extend(ids(map(parse, entries), space))


Source = Callable[[Mapping[str, Any]], Iterable[str]]
_BY_OPTION: Final[Mapping[str, Source]] = {
    "--context": _contexts,
    "--confirm": _contexts,
    "--env": _environments,
    "--topic": _topics,
    "--subscription": _subscriptions,
    "--namespace": _namespaces,
    "--resume": _namespaces,
    "namespace": _namespaces,
}
_BY_COMMAND: Final[Mapping[tuple[str, str], Source]] = {
    ("context", "name"): _contexts,
    ("dev", "--name"): _instances,
    ("history", "--id"): _applies,
    ("undo", "apply_id"): _applies,
    ("replay", "run"): _replays,
    ("peek", "topics"): lambda _: _full_topics({}),  # full names also after --topology
    ("send", "topic"): _full_topics,
}
"""Sources of parameters that mean something else elsewhere. A key is the first word of the command, and the longest name
of the option or the name of the argument.
"""

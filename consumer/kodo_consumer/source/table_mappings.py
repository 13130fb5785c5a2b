"""Tables of a source as the log names them: by number, with names and columns of the time of each change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kodo_consumer.source.positions import Position
from kodo_consumer.source.row_mapping import NO_MESSAGE, RowMapping
from kodoctl.errors import UsageError, error
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from kodo_consumer.core.values.send_target import SendTarget
    from kodo_consumer.source.database import SourceDatabase
    from kodo_consumer.source.pgoutput import Relation, RowChange
    from kodoctl.errors import Diagnostic
    from kodoctl.topology.change_sources import ChangeSource, TableMapping

log = logging.getLogger("kodo.source")


class TableMappings:
    """Mappings of the tables that one reading of the log has met. `queries`: a connection for statements; `target_of`:
    returns the send target of a ground topic; its errors pass. Methods raise UsageError (K791) where they say so. An
    error of a statement becomes a DatabaseError where it leaves the context of the connection.
    """

    def __init__(
        self, source: ChangeSource, database: SourceDatabase, queries: Any, target_of: Callable[[str], SendTarget]
    ) -> None:
        self._tables: dict[str, TableMapping] = {table.name: table for table in source.tables}
        self._database, self._queries, self._target_of = database, queries, target_of
        self._mappings: dict[int, tuple[RowMapping, Relation]] = {}
        self._strangers: dict[int, str] = {}  # published tables that the file does not have, by number
        self._uneven: set[int] = set()  # tables with a partition that logs less than they say

    def on_relation(self, relation: Relation) -> str:
        """Takes a table in as it is from this place of the log on. Returns its name in the file; "": the file does not
        have it. Raises UsageError (K791) if a column that the file names, or the message key, is gone.
        """
        table = self._tables.get(relation.name)
        if table is None:  # renamed later than this change
            table = self._tables.get(self._database.present_name(self._queries, relation))
        if table is None:
            self._on_partition(relation)
            self._mappings.pop(relation.id, None)
            self._strangers[relation.id] = relation.name
            return ""
        if relation.id in self._uneven:
            key = self._database.primary_key(self._queries, table, relation)
            logged = tuple(column._replace(is_key=column.name in key) for column in relation.columns)
            relation = relation._replace(identity="d", columns=logged)
        self._mappings[relation.id] = self._mapping(table, relation), relation
        return table.name

    def of(self, change: RowChange) -> tuple[RowMapping, str, RowChange] | None:
        """Returns the mapping of a change's table, the table's name in the log, and the change with the columns that
        can be relied on; None: the file does not have this table.
        """
        if (found := self._mappings.get(change.relation)) is None:
            return None
        mapping, relation = found
        return mapping, relation.name, change._replace(only_key=True) if relation.id in self._uneven else change

    def name_of(self, relation: int) -> str:
        """Name of a table in the log; "": the file does not have it."""
        return self._mappings[relation][1].name if relation in self._mappings else ""

    def on_stranger(self, relation: int, lsn: int) -> None:
        """Logs the first change of a published table that the file does not have; does nothing for later ones. Raises
        UsageError if it may be a table of the file that was renamed. `lsn`: position of its commit.
        """
        name = self._strangers.pop(relation, "")
        if not name:
            return
        if missing := self._database.unpublished(self._queries):
            detail = (
                f"{name} is published and not in the file, and {', '.join(missing)} is not published: if it was renamed,"
                " write its new name in the file and start again. Nothing is lost, the slot keeps its position"
            )
            raise UsageError(at(error("K791", NO_MESSAGE, detail), name, Position(lsn, 0)))
        log.warning("%s is published, and not in the file: its changes are left out", one_line(name))

    def _on_partition(self, partition: Relation) -> None:
        """Notes a partition that logs less of an old row than its table says: the server sends NULL for what is not
        logged, so that of old rows the primary key alone is to be relied on.
        """
        root = self._mappings.get(self._database.root_of(self._queries, partition))
        if root is not None and root[1].identity == "f" != partition.identity:
            log.warning(
                "%s has another replica identity than its table %s: of old rows only the primary key is used",
                one_line(partition.name),
                root[1].name,
            )
            self._uneven.add(root[1].id)
            self.on_relation(root[1])

    def _mapping(self, table: TableMapping, relation: Relation) -> RowMapping:
        target = None if table.spec.outbox is not None else self._target_of(str(table.spec.topic))
        fetch = partial(self._database.fetch, self._queries)
        key = self._database.primary_key(self._queries, table, relation)
        return RowMapping(table, relation, key, target, fetch)


def at(finding: Diagnostic, table: str, position: Position) -> Diagnostic:
    """Returns the finding with the table and the position of its change in the detail."""
    return error(finding.code, finding.summary, f"{table} at {position}: {finding.detail}")

"""The inbox of an application: the way from a subscription to its handler leads through a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Engine

from kodo_consumer.adapters.stores.database_url import names_no_file
from kodo_consumer.adapters.stores.sql_tables import create_missing
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Duration, UnitError
from kodo_consumer.inbox.inbox_broker import InboxBroker
from kodo_consumer.inbox.inbox_intake import InboxIntake
from kodo_consumer.inbox.inbox_records import InboxRecords
from kodo_consumer.inbox.inbox_rows import lacking
from kodo_consumer.inbox.inbox_store import InboxStore
from kodo_consumer.inbox.table import TABLE
from kodo_consumer.outbox.outbox_store import CONNECT_ERRORS, engine_of, unusable
from kodo_consumer.outbox.table import DIALECTS
from kodoctl.errors import KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Broker
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Policy


class Inbox:
    """Inbox in one database, for `@consumer.handler(inbox=…)` of any number of consumers.

    `database`: an address as of SQLAlchemy, or an engine; nothing connects yet. `claim`: time, such as `1m` and at
    least `5s`, after which others take over the rows of a worker that does not renew its claims any more, because it
    died for example. `keep`: time for which done rows are kept, so that repeats of a message are recognised. Raises
    KodoctlError for an address that cannot be used, UsageError for a text that is no time or too short.
    """

    def __init__(self, database: str | Engine, *, claim: str = "1m", keep: str = "7d") -> None:
        self._engine = database if isinstance(database, Engine) else engine_of(database)
        self._claim, self._keep = _time("claim", claim, 5_000), _time("keep", keep, 0)

    def close(self) -> None:
        """Closes the pooled connections of the database, also those of an engine that was passed in. Later calls open
        new ones.
        """
        self._engine.dispose()

    def create_table(self) -> None:
        """Creates the table and its indexes unless the table exists, which then does not change. Several processes may
        call it at once. Raises KodoctlError if the database refuses or does not answer.
        """
        try:
            create_missing(self._engine, TABLE.metadata)
        except CONNECT_ERRORS as problem:
            raise unusable(self._engine.url, problem) from None

    def counts(self, subscription: str) -> dict[str, int]:
        """Returns the number of rows of a subscription, by its full name `tenant/namespace/topic:subscription`:
        `waiting` (to do, and no worker has it), `claimed` and `done`. Raises KodoctlError if the database does not
        answer or lacks the table.
        """
        try:
            return InboxStore(self._engine, subscription, self._claim).counts()
        except CONNECT_ERRORS as problem:
            raise unusable(self._engine.url, problem) from None

    def open(self, broker: Broker, policy: Policy, clock: Clock | None = None) -> InboxBroker:
        """Returns a broker around `broker`: its lanes store the messages of the topics in this inbox, and deliver the
        rows of the inbox. `policy`: of the subscription to which the rows belong. `clock`: for a test that calls `turn`
        of the broker itself; None: a thread does so. Raises KodoctlError as `check` does.
        """
        self.check()
        waits = policy.audit is not None and policy.audit.wait
        records = InboxRecords(policy, clock or SystemClock()) if waits else None
        store = self._store(policy)
        intake = InboxIntake(store, policy.tenant, records)
        return InboxBroker(broker, store, keep=self._keep, intake=intake, clock=clock)

    def check(self) -> None:
        """Raises KodoctlError if the database lacks the table or columns of it, does not answer, is neither SQLite nor
        PostgreSQL, or is an SQLite address without a file, in memory for example, where rows end with the process.
        """
        name = self._engine.dialect.name
        if name not in DIALECTS:
            raise UsageError(error("K743", "not a database for stores", f"{name}: SQLite and PostgreSQL are"))
        if names_no_file(self._engine.url):
            detail = (
                "a database in memory ends with the process, and messages that were acknowledged with it: name a file"
            )
            raise UsageError(error("K771", "inbox cannot be used", detail))
        try:
            detail = lacking(self._engine)
        except CONNECT_ERRORS as problem:
            raise unusable(self._engine.url, problem) from None
        if detail:
            raise KodoctlError(error("K771", "inbox cannot be used", detail))

    def _store(self, policy: Policy) -> InboxStore:
        return InboxStore(self._engine, policy.lanes[0].subscription, self._claim)


def _time(name: str, text: str, least: int) -> int:
    """Milliseconds of a text such as "1m". Raises UsageError if it is none, or less than `least` ms."""
    try:
        found = int(Duration.parse(text))
    except UnitError as problem:
        raise UsageError(error("K771", "inbox cannot be used", f"{name}: {problem}")) from None
    if found < least:
        raise UsageError(error("K771", "inbox cannot be used", f"{name}: {text} is less than {least // 1000}s"))
    return found

# adapter: reads a database
"""Reader of the workers' idempotency store: finds the messages that are done. It writes nothing to the store.

The commands on dead letters load it by its name (`kodoctl.cli.common.extension_points`), so commands without a store
start without its imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kodo_consumer.adapters.stores.database_url import missing_file
from kodo_consumer.adapters.stores.factory import StorePlace, parse_store
from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.core.values.store import StoreDownError, name_of
from kodoctl.errors import KodoctlError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.secret import Secret

_CANNOT_OPEN: Final = "store cannot be opened"
_CANNOT_ASK: Final = "store cannot be asked"


class DoneStoreClient:
    """Reader of the store of one subscription: a context manager that connects at the first call and closes at the end
    of the block. `store`: the workers' setting, which may have a password: no error shows it. `subscription`: full
    name, such as `kodo/trade/orders:billing`.
    """

    def __init__(self, store: Secret, subscription: str) -> None:
        self._secret, self._subscription = store, subscription
        self._opened: tuple[StorePlace, SqlStore] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def __call__(self, identities: Sequence[str]) -> frozenset[str]:
        """Returns those of `identities` (message ids) that workers or `message.once` recorded as done. Raises
        KodoctlError if the store cannot be opened or is `memory` (K740), or if it cannot be read or its SQLite file is
        missing (K741).
        """
        if self._opened is None:
            self._opened = self._open()
        place, store = self._opened
        names = {identity: name_of(identity) for identity in identities}
        try:
            known = store.done_among(list(names.values()))
        except StoreDownError as problem:
            detail = f"{place}: {problem}; is it the `store` of the workers?"
            raise KodoctlError(error("K741", _CANNOT_ASK, detail)) from None
        return frozenset(identity for identity, name in names.items() if name in known)

    def _open(self) -> tuple[StorePlace, SqlStore]:
        """Opens the store. Raises KodoctlError: the setting is no store or is `memory` (K740), or SQLite's file does
        not exist (K741).
        """
        try:
            place = StorePlace(parse_store(self._secret.reveal()))
        except ValueError as problem:
            raise KodoctlError(error("K740", _CANNOT_OPEN, str(problem))) from None
        if str(place) == "memory":
            detail = "memory is forgotten with its worker: nobody else can ask it"
            raise KodoctlError(error("K740", _CANNOT_OPEN, detail))
        if missing_file(place.url):
            detail = f"{place}: there is no such file; a relative path counts from here"
            raise KodoctlError(error("K741", _CANNOT_ASK, detail))
        store = place.open(self._subscription)
        assert isinstance(store, SqlStore)
        return place, store

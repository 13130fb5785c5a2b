"""Query for done messages in the store of the workers: a helper process that answers from standard input to output.

`python -m kodo_consumer.done_query` is for programs that may not import this package. The first line asks: {store,
subscription}, the subscription named in full; each other one is a list of identities, answered on one line by the
list of those that are done. An answer {"fault": [code, summary, detail]} is the last one. Nothing is written to the
store.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kodo_consumer.adapters.stores.factory import StorePlace, parse_store
from kodo_consumer.core.store import StoreDownError, name_of
from kodoctl.errors import KodoctlError, error

_CANNOT_ASK: Final = "store cannot be asked"


class DoneQuery:
    """Done messages of one subscription in one store."""

    def __init__(self, text: str, subscription: str) -> None:
        """`text`: the workers' setting `store`. Raises KodoctlError for what is no store, or keeps nothing."""
        try:
            place = StorePlace(parse_store(text))
        except ValueError as problem:
            raise KodoctlError(error("K740", "store cannot be opened", str(problem))) from None
        if str(place) == "memory":
            detail = "memory is forgotten with its worker: nobody else can ask it"
            raise KodoctlError(error("K740", "store cannot be opened", detail))
        if place.url.get_backend_name() == "sqlite" and not Path(place.url.database or "").is_file():
            detail = f"{place}: there is no such file; a relative path counts from here"
            raise KodoctlError(error("K741", _CANNOT_ASK, detail))
        from kodo_consumer.adapters.stores.sql_store import SqlStore

        store = place.open(subscription)
        assert isinstance(store, SqlStore)
        self._place, self._store = place, store

    def done(self, identities: Sequence[str]) -> list[str]:
        """Those of them that are, in this order. Raises KodoctlError."""
        names = {identity: name_of(identity) for identity in identities}
        try:
            known = self._store.done_among(list(names.values()))
        except StoreDownError as problem:
            detail = f"{self._place}: {problem}; is it the `store` of the workers?"
            raise KodoctlError(error("K741", _CANNOT_ASK, detail)) from None
        return [identity for identity, name in names.items() if name in known]

    def close(self) -> None:
        """Lets go of connections."""
        self._store.close()


def answers(lines: Iterator[str]) -> Iterator[list[str] | dict[str, Any]]:
    """An answer to each line but the first."""
    known = None
    try:
        known = DoneQuery(**_asked(next(lines)))
        for line in lines:
            yield known.done(json.loads(line))
    except KodoctlError as problem:
        one = problem.diagnostics[0]
        yield {"fault": [one.code, one.summary, one.detail]}
    finally:
        if known is not None:
            known.close()


def _asked(line: str) -> dict[str, str]:
    request = json.loads(line)
    return {"text": request["store"], "subscription": request["subscription"]}


def main(source: Iterable[str], target: Any) -> None:
    """From a stream of lines to a stream of lines."""
    for answer in answers(iter(source)):
        target.write(json.dumps(answer) + "\n")
        target.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)

"""Classes of Java that pyspark needs for each column of a query: each, and each of its members, is looked up once.

pyspark asks Java for the class, then for its member, before each call, and releases each column: four requests for a
name in a list of columns, of which an audit has thousands. A column of Java's never changes: those of names and of
plain values are made once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_CLASSES: Final = (
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.expressions.Window",
    "PythonUtils",
)
"""As pyspark names them. It makes no object of one of them."""
_KEPT: Final = frozenset({"col", "lit", "expr"})
_PLAIN: Final = (str, int, type(None))
_MOST: Final = 4096  # columns: values come from anywhere


class JavaClassMembers:
    """A class of Java of which each member is asked for once."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        """The member; kept as an attribute, which Python then finds by itself."""
        member = getattr(self._found, name)
        setattr(self, name, _keeping(member) if name in _KEPT else member)
        return getattr(self, name)


def keep_java_classes(session: SparkSession) -> None:
    """Has pyspark look these classes up once, as long as its process lives."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - pyspark looks them up there and nowhere else
    for name in _CLASSES:
        if name not in vars(jvm):
            setattr(jvm, name, JavaClassMembers(getattr(jvm, name)))


def _keeping(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @lru_cache(maxsize=_MOST, typed=True)
    def cached_value(value: Any) -> Any:
        return make(value)

    return lambda value: cached_value(value) if isinstance(value, _PLAIN) else make(value)

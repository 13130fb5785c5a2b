"""Cache of the Java classes that pyspark needs for each column of a query, so that each class and each of its members
is looked up once.

Before each call pyspark asks Java for the class, then for its member, and it releases each column afterwards: four
requests for a name in a list of columns, of which an audit has thousands. A column object of Java never changes, so
those of names and of plain values are kept.
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
"""Names of the classes in pyspark, which makes no object of any of them."""
_KEPT: Final = frozenset({"col", "lit", "expr"})
_PLAIN: Final = (str, int, type(None))
_MOST: Final = 4096  # columns: values come from anywhere


class JavaClassMembers:
    """A Java class that keeps each member once it is looked up, and the results of `col`, `lit` and `expr` for plain
    values.
    """

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        """Looks the member up and keeps it as an attribute, so that Python does not call this method for it again."""
        member = getattr(self._found, name)
        setattr(self, name, _keeping(member) if name in _KEPT else member)
        return getattr(self, name)


def keep_java_classes(session: SparkSession) -> None:
    """Installs a cache (JavaClassMembers) in this process, for the Java classes that pyspark's column functions use.
    Does nothing if it is installed already for the session's Java process.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - pyspark looks them up there and nowhere else
    for name in _CLASSES:
        if name not in vars(jvm):
            setattr(jvm, name, JavaClassMembers(getattr(jvm, name)))


def _keeping(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @lru_cache(maxsize=_MOST, typed=True)
    def cached_value(value: Any) -> Any:
        return make(value)

    return lambda value: cached_value(value) if isinstance(value, _PLAIN) else make(value)

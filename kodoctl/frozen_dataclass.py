"""The decorator `dataclass` for frozen classes, faster than that of the standard library.

Before Python 3.13, the standard library compiles each method of a dataclass on its own: 0.3 ms a class, and `lint` of a
small file imports forty. Here only `__init__` is compiled, and the other methods are closures over the fields: a
quarter of the time, from Python 3.13 on a half. The classes behave alike, and type checkers see the standard library's
decorator. The standard library takes the classes for ones that are not frozen: `__dataclass_params__` says so, and a
frozen dataclass of the standard library cannot inherit from one of them.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections.abc import Callable, Sequence
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # other modules import it from here
else:

    def dataclass(*, frozen: bool, slots: bool = False, order: bool = False) -> Callable[[type], type]:
        """Decorator that makes a frozen dataclass. The arguments are those of `dataclasses.dataclass`; `frozen` is
        always True. No field is an InitVar.
        """
        assert frozen

        def make(cls: type) -> type:
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
            fields = dataclasses.fields(made)
            methods = {
                "__init__": _init(made, {field.name: field for field in fields if field.init}),
                "__repr__": _repr([field.name for field in fields if field.repr]),
                "__setattr__": _refuse_to_set,
                "__delattr__": _refuse_to_delete,
                **_comparisons([field.name for field in fields if field.compare], order=order),
                **({"__getstate__": _get_state, "__setstate__": _set_state} if slots else {}),
            }
            for name, method in methods.items():
                if vars(cls).get(name) is None:  # not written by hand
                    setattr(made, name, method)
            return made

        return make


def _init(cls: type, fields: dict[str, dataclasses.Field[Any]]) -> Callable[..., None]:
    """Compiles `__init__`: a function of its own for each class, because it runs more often than the others."""
    missing = dataclasses.MISSING
    factories = {name: field.default_factory for name, field in fields.items() if field.default_factory is not missing}
    defaults = {name: field.default for name, field in fields.items() if field.default is not missing}
    defaults |= dict.fromkeys(factories, missing)
    by_position = [name for name, field in fields.items() if not field.kw_only]
    by_name = [name for name, field in fields.items() if field.kw_only]
    values = {name: f"make_{name}() if {name} is missing else {name}" if name in factories else name for name in fields}
    lines = [f"set_field(self, {name!r}, {value})" for name, value in values.items()]
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    parameters = ", ".join(["self", *by_position, *(["*", *by_name] if by_name else [])])
    outer = ", ".join(["set_field", "missing", *(f"make_{name}" for name in factories)])
    body = "; ".join(lines) or "pass"
    namespace: dict[str, Any] = {}
    source = f"def outer({outer}):\n def __init__({parameters}): {body}\n return __init__"
    exec(source, vars(sys.modules[cls.__module__]), namespace)  # noqa: S102  # names of fields, from our own source
    init: Callable[..., None] = namespace["outer"](object.__setattr__, missing, *factories.values())
    init.__defaults__ = tuple(defaults[name] for name in by_position if name in defaults)
    init.__kwdefaults__ = {name: defaults[name] for name in by_name if name in defaults}
    init.__annotations__ = {**{name: field.type for name, field in fields.items()}, "return": None}
    return init


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def show(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return show


def _comparisons(names: Sequence[str], *, order: bool) -> dict[str, Callable[..., Any]]:
    values: Callable[[Any], Any] = (
        operator.attrgetter(*names) if len(names) > 1 else lambda self: tuple([getattr(self, name) for name in names])
    )

    def equals(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def ordering(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        return lambda self, other: (
            compare(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented
        )

    methods = (operator.lt, operator.le, operator.gt, operator.ge) if order else ()
    return {
        "__eq__": equals,
        "__hash__": lambda self: hash(values(self)),
        **{f"__{compare.__name__}__": ordering(compare) for compare in methods},
    }


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    """State for pickle and copies, which otherwise assign to slots."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)

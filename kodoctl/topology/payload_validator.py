"""Validator of JSON payloads: a schema is compiled once, and payloads of any sender are validated against it.

The cost of a validation is bounded for any schema and payload: patterns run in linear time, nothing is fetched, and
verdicts are cached where a schema contains itself. Numbers are compared as decimals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urljoin

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MAX_CHAIN: Final = 100
"""Schemas that may lead to one another for one value: each takes stack, at every level of a payload."""
MAX_CHECKS: Final = 10_000
"""Schemas that one value may be validated against, all repetitions counted."""
_LARGEST_PLACE_SEARCH: Final = 100_000  # schemas of a file, references written out, in which a place is looked for
_MAX_PLACE: Final = 80  # characters of a place in a payload: keys are the sender's
_TOO_LARGE: Final = 2**26  # bytes of a compiled pattern; the engine takes up to 10 MiB
_SHOWN: Final = 200  # characters of a pattern or an error
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLES: Final = ("not", "if", "then", "else")
_MAPS: Final = ("dependentSchemas", "dependencies")
_ONE_WAY: Final = frozenset({"properties", "items", "prefixItems", "additionalItems", "additionalProperties"})
_SEVERAL_WAYS: Final = frozenset({
    *_LISTS, *_SINGLES, *_MAPS, "$dynamicRef", "$recursiveRef", "patternProperties", "propertyNames", "contains",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_NOT_LINEAR: Final = (
    (("(?=", "(?!"), "it looks ahead: say it with a second pattern under `allOf`, or under `not`"),
    (("(?<=", "(?<!"), "it looks behind: match what stands before as well, or say it under `not`"),
    (("(?>", "*+", "++", "?+", "}+"), "it keeps what it has matched: leave that out, nothing is tried twice anyway"),
    (("\\k<", "(?P=", *(f"\\{digit}" for digit in range(1, 10))), "it refers back to a group: say it without"),
    (("\\Z",), "the end of a text is `$`"),
)


class UnusableSchemaError(ValueError):
    """Payloads cannot be validated against a schema: it is invalid, or a validation could take too long. The text gives
    the reason and, where they are known, the place and a correction.
    """


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first rule of a schema that a payload breaks. `place`: where in the payload, such as `$.items[0]`; `rule`:
    name of the keyword, or a reason why the payload cannot be validated; both "" if finding them could take too long.
    It has no value of the payload, because reasons travel with dead letters; but `place` has keys of the payload as the
    sender wrote them, control characters included, 80 characters in all.
    """

    place: str = ""
    rule: str = ""

    def __str__(self) -> str:
        return f" at {self.place}: {self.rule}" if self.rule else ""


class PayloadValidator:
    """A compiled schema. It does not check formats and encodings, which are annotations in the newer drafts."""

    def __init__(self, schema: Any) -> None:
        """Compiles the schema. Raises UnusableSchemaError."""
        self._schema = schema
        if not isinstance(schema, Mapping | bool):
            raise UnusableSchemaError("not valid JSON Schema: it should be an object")
        if why := _Shape(schema).why_unbounded():
            raise UnusableSchemaError(why)
        self._compiled = _compile_schema(schema)

    def __reduce__(self) -> tuple[type[PayloadValidator], tuple[Any]]:
        return PayloadValidator, (self._schema,)  # in another process it is compiled again

    def misfit(self, value: Any) -> Misfit | None:
        """Validates a payload that `kodoctl.protocol.json_payload` parsed. Returns the first error, with empty texts if
        finding its place and rule could take too long; None: the payload is valid. Raises nothing for a payload that
        the engine cannot judge: it is a `Misfit`, too.
        """
        from jsonschema_rs import ValidationError

        try:
            if self._compiled.is_valid(value):
                return None
            if self._is_searchable:
                self._compiled.validate(value)
        except ValidationError as problem:
            return Misfit(_place(problem.instance_path), _rule(problem))
        except UnicodeEncodeError:
            return Misfit("$", "a text that is no Unicode")
        except ValueError as problem:  # a limit of the engine
            return Misfit("$", str(problem)[:_MAX_PLACE])
        return Misfit()

    @cached_property
    def _is_searchable(self) -> bool:
        """True if finding the first error takes bounded time: unlike verdicts, errors are not cached for each value."""
        return _Shape(self._schema).is_small or _is_one_way(self._schema)


def is_json_schema(schema: Any) -> bool:
    """True if `schema` is valid JSON Schema, even if payloads cannot be validated against its patterns. False for a
    schema that refers to another document, because nothing is fetched.
    """
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(schema, offline=True)
    except ValueError:
        return False
    return isinstance(schema, Mapping | bool)


def _compile_schema(schema: Any) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            schema,
            offline=True,
            validate_formats=False,
            pattern_options=jsonschema_rs.RegexOptions(),
            keywords=dict.fromkeys(("contentEncoding", "contentMediaType"), _Note),
        )
    except jsonschema_rs.ValidationError as problem:
        raise UnusableSchemaError(_why_unusable(schema, problem)) from None
    except ValueError as problem:
        raise UnusableSchemaError(f"not valid JSON Schema: {str(problem)[:_SHOWN]}") from None


class _Note:
    """A keyword that checks nothing."""

    def __init__(self, *_: Any) -> None: ...

    def validate(self, _: Any) -> None: ...


# ---- reasons


def _place(path: list[int | str]) -> str:
    return ("$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path))[:_MAX_PLACE]


def _rule(problem: ValidationError) -> str:
    """Name of the broken keyword, as the schema writes it."""
    return next((step for step in reversed(problem.schema_path) if isinstance(step, str)), problem.kind.name)


def _why_unusable(schema: Any, problem: ValidationError) -> str:
    path = problem.instance_path
    if problem.message.startswith("Unknown meta-schema"):
        return (
            f"its `$schema: {schema['$schema'][:_SHOWN]}` is no draft that is known: write"
            " https://json-schema.org/draft/2020-12/schema, or that of draft 2019-09, 7, 6 or 4"
        )
    if problem.kind.name == "$ref":
        return _why_not_followed(schema, problem.message)
    if problem.kind.name == "format" and ("pattern" in path[-1:] or "patternProperties" in path[-2:-1]):
        owner = path[:-1] if path[-1] == "pattern" else path
        pattern = _at(schema, path) if path[-1] == "pattern" else path[-1]
        return f"its pattern {str(pattern)[:_SHOWN]} at {_place(owner)} cannot be used: {_why_not_linear(str(pattern))}"
    return f"not valid JSON Schema: at {_place(path)}: {problem.message[:_SHOWN]}"


def _why_not_linear(pattern: str) -> str:
    import jsonschema_rs

    try:
        large = jsonschema_rs.RegexOptions(size_limit=_TOO_LARGE)
        jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=large)
    except jsonschema_rs.ValidationError:
        return next(
            (advice for signs, advice in _NOT_LINEAR if any(sign in pattern for sign in signs)),
            "it is no regular expression (ECMA 262)",
        )
    return "it is too large: lower the numbers in its `{}`, and limit lengths by `maxLength`"


def _why_not_followed(schema: Any, message: str) -> str:
    for path, keyword, reference in _references(schema, ()):
        file, _, target = reference.partition("#")
        if f"'{file or target}'" in message or reference in message:
            where = f"its `{keyword}: {reference[:_SHOWN]}` at {_place(list(path))}"
            if reference.startswith("#"):
                return f"{where} points at nothing in the file"
            return (
                f"{where} leads out of the file, and nothing is fetched: write what it means under `$defs`, and"
                " refer to that as `#/$defs/NAME`"
            )
    return f"not valid JSON Schema: {message[:_SHOWN]}"


def _references(value: Any, path: tuple[int | str, ...]) -> Iterator[tuple[tuple[int | str, ...], str, str]]:
    """Yields (path of the schema, keyword, target) of each reference."""
    for step, child in _members(value):
        if step in _REFERENCES and isinstance(child, str):
            yield path, str(step), child
        yield from _references(child, (*path, step))


def _members(value: Any) -> Iterator[tuple[int | str, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _at(value: Any, path: list[int | str]) -> Any:
    for step in path:
        value = value[step]
    return value


# ---- what a schema costs


class _Shape:
    """Costs of a schema and its subschemas. References are followed within the file."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._named: dict[str, Any] = {"": root}  # by address, without an empty fragment
        self._bases: dict[int, str] = {}  # of a map: address of the schema with an `$id` that the map lies in
        self._costs: dict[int, tuple[int, int]] = {}  # of a schema: its longest chain, its checks
        self._sizes: dict[int, int] = {}
        draft = root.get("$schema") if isinstance(root, Mapping) else None
        self._name(root, "", "id" if "draft-04" in str(draft) else "$id")

    def _name(self, value: Any, base: str, key: str) -> None:
        if isinstance(value, Mapping):
            if isinstance(value.get(key), str):
                address = _address(base, value[key])
                self._named.setdefault(address, value)
                base = address.partition("#")[0]
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(value.get(name), str):
                    self._named.setdefault(f"{base}#{value[name]}", value)
            self._bases[id(value)] = base
        for _, child in _members(value):
            self._name(child, base, key)

    def why_unbounded(self) -> str:
        """Reason why the validation of one value could take too long; "" if there is none."""
        for path, one in self._schemas(self._root, ()):
            place = _place(list(path))
            try:
                chain, checks = self._cost(one, frozenset())
            except RecursionError:
                chain, checks = MAX_CHAIN + 1, 0
            except _EndlessError:
                return f"its schema at {place} refers to itself for the same value: that says nothing"
            if chain > MAX_CHAIN:
                return f"its schema at {place} is a chain of more than {MAX_CHAIN} schemas for one value"
            if checks > MAX_CHECKS:
                return f"its schema at {place} has more than {MAX_CHECKS} schemas for one value"
        return ""

    @property
    def is_small(self) -> bool:
        """True if no schema contains itself, and there are few schemas even with all references written out."""
        try:
            return self._size(self._root, frozenset()) <= _LARGEST_PLACE_SEARCH
        except (_EndlessError, RecursionError):
            return False

    def _cost(self, schema: Any, around: frozenset[int]) -> tuple[int, int]:
        if not isinstance(schema, Mapping):
            return 1, 1
        if id(schema) in around:
            raise _EndlessError
        if id(schema) not in self._costs:
            costs = [self._cost(one, around | {id(schema)}) for one in self._same_value(schema)]
            chain = 1 + max((chain for chain, _ in costs), default=0)
            self._costs[id(schema)] = chain, 1 + sum(checks for _, checks in costs)
        return self._costs[id(schema)]

    def _same_value(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Subschemas that apply to the same value as `schema`."""
        for key in _REFERENCES:
            if (target := self._target(schema, key)) is not None:
                yield target
        for key in _LISTS:
            if isinstance(found := schema.get(key), list):
                yield from found
        yield from (schema[key] for key in _SINGLES if key in schema)
        for key in _MAPS:
            if isinstance(found := schema.get(key), Mapping):
                yield from found.values()

    def _size(self, value: Any, around: frozenset[int]) -> int:
        if not isinstance(value, Mapping | list):
            return 0
        if id(value) in around:
            raise _EndlessError
        if id(value) not in self._sizes:
            inner = [child for _, child in _members(value)]
            if isinstance(value, Mapping):
                if "$dynamicRef" in value or "$recursiveRef" in value:
                    raise _EndlessError
                inner.append(self._target(value, "$ref"))
            self._sizes[id(value)] = 1 + sum(self._size(child, around | {id(value)}) for child in inner)
        return self._sizes[id(value)]

    def _target(self, schema: Mapping[str, Any], key: str) -> Any:
        """The schema that `key` of `schema` (such as `$ref`) names, if it is in this document; else None."""
        reference = schema.get(key)
        if not isinstance(reference, str):
            return None
        address = _address(self._bases[id(schema)], reference)
        if address in self._named:
            return self._named[address]
        file, _, fragment = address.partition("#")
        if file not in self._named or not fragment.startswith("/"):
            return None
        target = self._named[file]
        for step in unquote(fragment[1:]).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(name) if isinstance(target, list) else name]
            except (LookupError, TypeError, ValueError):
                return None
        return target

    def _schemas(
        self, value: Any, path: tuple[int | str, ...]
    ) -> Iterator[tuple[tuple[int | str, ...], Mapping[str, Any]]]:
        """Yields (path, map) for all maps in a schema, also for maps that are no schemas."""
        if isinstance(value, Mapping):
            yield path, value
        for step, child in _members(value):
            yield from self._schemas(child, (*path, step))


class _EndlessError(Exception):
    """A schema contains itself."""


def _address(base: str, reference: str) -> str:
    """The address that a reference in a schema with the address `base` means, without an empty fragment."""
    try:
        joined = base + reference if reference.startswith("#") else urljoin(base, reference)
    except ValueError:
        joined = reference  # no address; the compiler says so
    return joined.removesuffix("#")


def _is_one_way(schema: Any) -> bool:
    """True if the schema leads to each value of a payload in only one way, so that each value is validated once even if
    the schema contains itself.
    """
    if isinstance(schema, list):
        return all(map(_is_one_way, schema))
    if not isinstance(schema, Mapping):
        return True
    if not _SEVERAL_WAYS.isdisjoint(schema) or ("$ref" in schema and not _ONE_WAY.isdisjoint(schema)):
        return False
    maps = [schema[key] for key in ("properties", "$defs", "definitions") if isinstance(schema.get(key), Mapping)]
    inner = [one for found in maps for one in found.values()] + [
        schema[key] for key in _ONE_WAY - {"properties"} if key in schema
    ]
    return all(map(_is_one_way, inner))

"""Payloads as values: JSON or Avro as the topology declares them, and the model that a handler's annotation names.

Reading a payload ends in a value or in InvalidPayloadError, which makes its message a dead letter; in Unavailable if
the broker does not answer about a schema. The text of InvalidPayloadError names the place and the rule, never the
value: reasons travel with dead letters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from io import BytesIO
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from kodo_consumer.core.payloads.avro_safety import empty_items, reader_of
from kodo_consumer.core.payloads.avro_values import Fit, MisfitError, fit_of
from kodo_consumer.core.values.exceptions import InvalidPayloadError, Unavailable
from kodo_consumer.message import Message, json_value
from kodoctl.errors import ClusterError
from kodoctl.topology.payload_validator import PayloadValidator

Kind = Literal["json", "avro"]
SchemaOf = Callable[[str], Mapping[str, Any] | None]
"""Returns the definition of a schema version such as `L1:3`; None: there is none. May raise ClusterError."""
_TEXTS: Final = (bytes, str)
_MAX_PLACE: Final = 80  # characters of a place in a payload: keys are the sender's


class Payloads:
    """Reads and checks the payloads of one ground topic. `schema`: the declared one, None if the file declares none.
    `model`: type in the handler's annotation, None if it has no annotation. `schema_of`: returns the definition of a
    schema version such as `L1:3`, for messages of older versions.

    Schema and model are compiled when first used. A pickled copy for another process has `kind` and `schema` only.
    """

    def __init__(
        self,
        kind: Kind = "json",
        schema: Mapping[str, Any] | None = None,
        model: Any = None,
        schema_of: SchemaOf | None = None,
    ) -> None:
        self.kind, self.schema, self.model = kind, schema, model
        self.schema_of = schema_of
        self._writers: dict[str, tuple[Callable[..., Any], Any]] = {}  # by schema version

    def with_model(self, model: Any, schema_of: SchemaOf | None = None) -> Payloads:
        """Returns a copy that reads payloads as `model`. `schema_of`: source of schema versions, None: that of this
        one.
        """
        return Payloads(self.kind, self.schema, model, schema_of or self.schema_of)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.kind, self.schema

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Payloads.__init__(self, *state)

    def prepare(self) -> None:
        """Compiles the model. Raises TypeError if payloads cannot be read as it."""
        from pydantic.errors import PydanticUserError

        try:
            _ = self._adapter if self.model is not None and self.model not in _TEXTS else None
        except PydanticUserError as problem:
            first = str(problem).partition("\n")[0]
            raise TypeError(f"payloads cannot be read as {self.model}: {first}") from None

    # ---- reading

    def json(self, data: bytes, schema: str = "") -> Any:
        """Returns the payload as plain values, checked against the declared schema: a JSON value, or an Avro topic's
        record. `schema`: version it was written with, "": the declared one. Raises InvalidPayloadError or Unavailable.
        """
        if self.kind == "avro":
            return self._record(data, schema)
        value = json_value(data)
        self(value)
        return value

    def value(self, data: bytes, schema: str = "") -> Any:
        """Returns the payload as the type in the handler's annotation. If there is no annotation, or if it is bytes or
        str, returns it as `json` does if a schema is declared, else as bytes (or as text for str). Raises
        InvalidPayloadError or Unavailable.
        """
        model = self.model
        if model is None or model in _TEXTS:
            if self.schema is not None:
                return self.json(data, schema)
            return _text(data) if model is str else data
        if self.kind == "avro":
            return self._as_model(self._adapter.validate_python, self._record(data, schema))
        if self.schema is not None:
            self.json(data)
            return self._as_model(self._adapter.validate_json, data)
        value = self._as_model(self._adapter.validate_json, data)
        json_value(data)  # what the model lets pass: NaN, a key twice
        return value

    def __call__(self, value: Any) -> None:
        """Checks a JSON value against the declared JSON schema, if there is one. Raises InvalidPayloadError."""
        misfit = None if self._validator is None else self._validator.misfit(value)
        if misfit is not None:
            raise InvalidPayloadError(f"payload breaks its schema{misfit}")

    def encode(self, value: Any) -> bytes:
        """Returns an Avro record as bytes; bytes are checked and stay as they are. Raises InvalidPayloadError for a
        value that the declared schema does not allow.
        """
        if isinstance(value, bytes):
            self._record(value, "")
            return value
        from fastavro import schemaless_writer

        out = BytesIO()
        try:
            schemaless_writer(out, self._reader, self._fit(value), strict_allow_default=True)
        except MisfitError as problem:
            raise InvalidPayloadError(f"payload does not fit its Avro schema at {problem}") from None
        except RecursionError:
            raise InvalidPayloadError("payload is nested too deeply for its Avro schema") from None
        except Exception as problem:  # noqa: BLE001  # its errors have no common base
            raise InvalidPayloadError(f"payload does not fit its Avro schema: {type(problem).__name__}") from None
        return out.getvalue()

    # ---- JSON

    @cached_property
    def _validator(self) -> PayloadValidator | None:
        return None if self.schema is None or self.kind == "avro" else PayloadValidator(self.schema)

    # ---- models

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter

        return TypeAdapter(self.model)

    def _as_model(self, validate: Callable[[Any], Any], data: Any) -> Any:
        from pydantic import ValidationError

        try:
            return validate(data)
        except ValidationError as problem:
            found = problem.errors(include_url=False, include_context=False, include_input=False)[0]
            name = getattr(self.model, "__name__", str(self.model))
            raise InvalidPayloadError(f"payload breaks {name} at {_place(found['loc'])}: {found['type']}") from None
        except RecursionError:
            raise InvalidPayloadError("payload is nested too deeply") from None

    # ---- Avro

    @cached_property
    def _parsed_schema(self) -> tuple[Any, Fit]:
        from fastavro import parse_schema

        names: dict[str, Any] = {}
        parsed: Any = parse_schema(dict(self.schema or {}), names)
        read_defaults(names)
        return parsed, fit_of(parsed, names)

    @property
    def _reader(self) -> Any:
        return self._parsed_schema[0]

    @property
    def _fit(self) -> Fit:
        return self._parsed_schema[1]

    def _record(self, data: bytes, version: str) -> Any:
        """Reads an Avro payload by the schema version it was written with, resolves it to the declared schema, and
        checks it. Raises InvalidPayloadError or Unavailable.
        """
        try:
            read, writer = self._writer(version)
        except UnsafeSchemaError as problem:
            raise InvalidPayloadError(str(problem)) from None
        stream = BytesIO(data)
        try:
            record = read(stream, writer, self._reader)
        except Exception as problem:  # noqa: BLE001  # whatever bytes of an attacker's choice bring about
            raise InvalidPayloadError(f"payload is not Avro of its schema: {type(problem).__name__}") from None
        if stream.tell() != len(data):
            raise InvalidPayloadError("payload is not Avro of its schema: bytes are left over")
        try:
            self._fit(record)
        except MisfitError as problem:
            raise InvalidPayloadError(f"payload does not fit its Avro schema at {problem}") from None
        except RecursionError:
            raise InvalidPayloadError("payload is nested too deeply for its Avro schema") from None
        return record

    def _writer(self, version: str) -> tuple[Callable[..., Any], Any]:
        """Returns reader and parsed definition of a schema version; without that version, those of the declared schema."""
        found = self._writers.get(version)
        if found is None:
            definition = self.definition(version)
            if version and not definition:  # nothing is kept of it: senders choose versions
                return self._writer("")
            found = self._writers[version] = safe_reader(definition or self.schema or {})
        return found

    def definition(self, version: str) -> Mapping[str, Any] | None:
        """Definition of a schema version; None: the declared schema applies, because `version` is "" or unknown. Raises
        Unavailable if the broker does not answer.
        """
        if not version or self.schema_of is None:
            return None
        try:
            return self.schema_of(version)
        except ClusterError:
            raise Unavailable("schemas of the broker") from None


class UnsafeSchemaError(ValueError):
    """Error of `safe_reader` for a schema that fastavro does not take, or with an array whose items take no bytes: a
    payload of ten bytes could claim any number of items, and so take any amount of memory.
    """


def safe_reader(definition: Mapping[str, Any]) -> tuple[Callable[..., Any], Any]:
    """Returns a reader of payloads of this schema, and the schema parsed. The reader takes a stream, that schema and
    the schema to resolve to. Raises UnsafeSchemaError.
    """
    from fastavro import parse_schema

    try:
        parsed = parse_schema(dict(definition))
        unsafe = empty_items(dict(definition))
    except Exception as problem:  # noqa: BLE001  # brokers store schemas that fastavro refuses, by errors of any kind
        raise UnsafeSchemaError(f"its Avro schema cannot be read: {type(problem).__name__}") from None
    if unsafe:
        raise UnsafeSchemaError(
            "its Avro schema has an array whose items take no bytes: ten bytes could claim any number"
        )
    return reader_of(definition), parsed


def payload_reader(kind: Kind, schema: Mapping[str, Any], schema_of: SchemaOf) -> Callable[[bytes, str], Any]:
    """Returns a function that reads a payload of a schema version ("": the declared `schema`) for people who look at
    it. It raises ValueError for a payload that is not of the schema, and if the broker does not give the version's
    schema. `schema_of`: returns the definition of a version such as `L1:3`; None: the declared schema applies.
    """
    payloads = Payloads(kind, schema, None, schema_of)

    def read(data: bytes, version: str) -> Any:
        try:
            return payloads.json(data, version)
        except (InvalidPayloadError, Unavailable) as problem:
            raise ValueError(str(problem)) from None

    return read


def model_of(function: Callable[..., Any]) -> Any:
    """Model in the annotation of a handler's first parameter: `Order` of `Message[Order]`, also in a list; None without
    such an annotation, and for `Message[Any]`.

    Raises TypeError when there is such an annotation and it cannot be read.
    """
    called = function if inspect.isroutine(function) else type(function).__call__
    try:
        parameter = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):
        return None
    if parameter is None or parameter.annotation is inspect.Parameter.empty:
        return None
    try:
        annotation = get_type_hints(called).get(parameter.name)
    except Exception as problem:  # noqa: BLE001  # an annotation may be any expression
        if "Message[" in str(parameter.annotation):
            raise TypeError(f"its annotation {parameter.annotation} cannot be read: {problem}") from None
        return None
    return _model_in(annotation)


def _model_in(annotation: Any) -> Any:
    if get_origin(annotation) is Message:
        (model,) = get_args(annotation)
        return None if model is Any else model
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model is not None), None)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidPayloadError("payload is not UTF-8 text") from None


def _place(parts: Iterable[int | str]) -> str:
    return ("$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts))[:_MAX_PLACE]


_NONE: Final = object()


def read_defaults(names: Mapping[str, Any]) -> None:
    """Replaces the defaults of all fields, in place, by values. `names`: named types of a schema parsed by fastavro."""
    for schema in names.values():
        for field in schema.get("fields", ()):
            if "default" in field:
                field["default"] = _default(field["type"], field["default"], names)


def _default(schema: Any, given: Any, names: Mapping[str, Any]) -> Any:
    """Returns the default `given` of a field as a value of `schema`; of a union, by its first branch that accepts it."""
    from fastavro.read import LOGICAL_READERS

    if isinstance(schema, list):
        return next((found for one in schema if (found := _branch_default(one, given, names)) is not _NONE), given)
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    match kind := schema["type"]:
        case "bytes" | "fixed" if isinstance(given, str):
            given = given.encode("latin-1")
        case "array" if isinstance(given, list):
            return [_default(schema["items"], one, names) for one in given]
        case "map" if isinstance(given, Mapping):
            return {key: _default(schema["values"], one, names) for key, one in given.items()}
        case "record" | "error" if isinstance(given, Mapping):
            return {
                field["name"]: _default(field["type"], given.get(field["name"], field.get("default")), names)
                for field in schema["fields"]
                if field["name"] in given or "default" in field
            }
    logical = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    is_raw = isinstance(given, str if kind == "string" else bytes if kind in ("bytes", "fixed") else int)
    return logical(given, schema, schema) if logical and is_raw else given


def _branch_default(schema: Any, given: Any, names: Mapping[str, Any]) -> Any:
    with suppress(ValueError, KeyError, TypeError, OverflowError):
        found = _default(schema, given, names)
        fit_of(schema, names)(found)
        return found
    return _NONE

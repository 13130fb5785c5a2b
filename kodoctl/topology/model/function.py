"""Pulsar Functions and connectors of Pulsar IO in the topology file: code that the cluster's function worker runs."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, WithJsonSchema

from kodoctl.topology.function_settings import HIDDEN, PULSAR_SETTINGS, hidden_names, settings_text
from kodoctl.topology.model.field_types import (
    FileModel,
    PositiveDuration,
    PositiveInt,
    PositiveNumber,
    SizeField,
    Text,
    optional_like,
    pattern_words,
    wrong_value,
)

_PACKAGE: Final = "^(builtin://.+|(function|sink|source)://[^/@]+/[^/@]+/[^/@]+(@[^/@]+)?|(https?|file)://.+)$"
_PACKAGE_WORDS: Final = (
    "Should be builtin://NAME, a package of the cluster such as sink://TENANT/NAMESPACE/NAME@VERSION, or an http, https"
    " or file URL."
)
_USER: Final = re.compile("https?://[^/]*@", re.IGNORECASE)
_SECRET_NAME: Final = re.compile("(^|[_-])(key|sig|signature|auth)$|token|secret|passw|credential", re.IGNORECASE)


def _has_credentials(address: str) -> bool:
    """True if an http or https address has a user, or a parameter whose name is that of a password or token."""
    if not re.match("https?://", address, re.IGNORECASE):
        return False
    names = (one.partition("=")[0] for one in re.split("[?&]", address)[1:] if "=" in one)
    return bool(_USER.match(address)) or any(map(_SECRET_NAME.search, names))


def _package(raw: Any) -> Any:
    """Returns the value unless it is a text that is no address of a package, or an address with credentials. The error
    does not repeat the value.
    """
    if isinstance(raw, str):
        if _has_credentials(raw):
            raise wrong_value("an address with a user, password or token does not belong into the file")
        if not re.fullmatch(_PACKAGE, raw):
            raise wrong_value(
                "should be builtin://NAME, a package of the cluster (function://TENANT/NAMESPACE/NAME@VERSION, or"
                " sink://, source://), or an http, https or file URL that the function worker reads"
            )
    return raw


def _json_values(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings. Refuses values that JSON does not have, such as infinity, and names without a value, which a
    worker drops.
    """
    import json  # most files declare no function

    try:
        json.dumps(values, allow_nan=False)
        settings_text(values)
    except (TypeError, ValueError, OverflowError) as problem:
        raise wrong_value(f"should hold texts, numbers, true, false, lists and maps: {problem}") from None
    if (name := _without_value(values)) is not None:
        raise wrong_value(f"{name!r} has no value, and the worker would drop it: leave it out")
    if (name := next(hidden_names(values), None)) is not None:
        raise wrong_value(f"{name!r} is {HIDDEN!r}, which kodoctl shows in place of a value: write the value")
    return values


def _without_value(value: Any) -> str | None:
    """A name in the settings that has no value; None if each has one."""
    if isinstance(value, dict):
        own = (str(name) for name, one in value.items() if one is None)
        return next(own, None) or _without_value(list(value.values()))
    if isinstance(value, list):
        return next((name for one in value if (name := _without_value(one)) is not None), None)
    return None


def _pulsar_settings(kind: str) -> AfterValidator:
    """Validator of `settings`: only names that Pulsar has for this kind, and that no other key stands for."""

    def check(values: dict[str, Any]) -> dict[str, Any]:
        known = PULSAR_SETTINGS[kind]
        for name in values:
            if name not in known:
                raise wrong_value(f"{name!r} is not one of {', '.join(sorted(known))}")
        return values

    return AfterValidator(check)


Package = Annotated[
    StrictStr,
    BeforeValidator(_package),
    WithJsonSchema({"type": "string", **pattern_words(_PACKAGE, _PACKAGE_WORDS)}),
]
Guarantees = Literal["at_least_once", "at_most_once", "effectively_once", "manual"]
Runtime = Literal["java", "python", "go"]


class PackageSpec(FileModel):
    """A version of a package, which an apply uploads from a file."""

    file: Text = Field(examples=["build/enrich-1.2.0.jar"])
    """Path of its content (a jar, a nar, or Python's .py, .zip or .whl), relative to this file. For good."""
    description: StrictStr = Field(default="", examples=["adds prices to orders"])
    """A text for people, written at the upload."""


class FunctionNeeds(FileModel):
    """Cores, memory and disk of one instance. Runtimes in threads of the worker ignore them."""

    cpu: PositiveNumber | None = optional_like(0.5)
    """Cores of one instance."""
    memory: SizeField | None = optional_like("512MiB")
    """Memory of one instance."""
    disk: SizeField | None = optional_like("1GiB")
    """Disk of one instance."""


def _reference(raw: Any) -> Any:
    """Returns the value if it is a map. The error does not repeat another value, which might be the secret."""
    if not isinstance(raw, dict):
        raise wrong_value("should name the place of the secret, such as {path: warehouse, key: password}")
    return raw


class SecretReference(FileModel):
    """The place of a secret, which the worker's secrets provider reads: never the secret."""

    path: Text = Field(examples=["warehouse"])
    """Name of the secret, such as that of a Kubernetes secret."""
    key: Text = Field(examples=["password"])
    """Key in it."""


class _WorkerCode(FileModel):
    description: StrictStr = Field(default="", examples=["adds prices to orders"])
    """A text for people."""
    package: Package = Field(examples=["function://kodo/trade/enrich@1.2.0"])
    """Address of its code: builtin://NAME, a package of the cluster as function://TENANT/NAMESPACE/NAME@VERSION (or sink://, source://), or an http, https or file URL."""
    class_name: Annotated[Text | None, Field(alias="class")] = optional_like("com.example.Enrich")
    """The class in the package; for Python the module too, as enrich.Enrich. Left out for Go, and where the package names it."""
    parallelism: PositiveInt = Field(default=1, examples=[2])
    """Number of its instances."""
    config: Annotated[dict[Text, Any], AfterValidator(_json_values)] = Field(
        default_factory=dict, examples=[{"currency": "EUR"}]
    )
    """Settings that its code reads. No secrets: Pulsar shows them to everybody who may read the function."""
    secrets: dict[Text, Annotated[SecretReference, BeforeValidator(_reference)]] | None = optional_like(
        {"password": {"path": "warehouse", "key": "password"}}
    )
    """Secrets that its code reads, by name, as references for the worker's secrets provider; left out: as they are."""
    resources: FunctionNeeds | None = optional_like({"cpu": 0.5, "memory": "512MiB"})
    """Limits of one instance; left out: as they are, at first the worker's defaults."""


class Function(_WorkerCode):
    """A Pulsar Function: code that reads topics, and writes to one, on the cluster's function worker."""

    runtime: Runtime = "java"
    """The language of its code. For good."""
    inputs: tuple[Text, ...] = Field(default=(), examples=[["orders"]])
    """Topics it reads: ground topics of this file (all their levels), or TENANT/NAMESPACE/TOPIC. For good."""
    inputs_pattern: Text | None = optional_like("persistent://kodo/trade/orders-.*")
    """Regular expression of further topics it reads, those of the future too. For good."""
    output: Text | None = optional_like("shipments")
    """Topic it writes to: a ground topic of this file, or TENANT/NAMESPACE/TOPIC. It can change, never go."""
    subscription: Text | None = optional_like("enrich")
    """Its subscription on the inputs; default: TENANT/NAMESPACE/NAME of the function, as Pulsar's. For good."""
    start: Literal["earliest", "latest"] = "earliest"
    """Position at which the subscription begins: used once, when the function is created."""
    guarantees: Guarantees = "at_least_once"
    """When a message counts as done. For good."""
    settings: Annotated[dict[Text, Any], AfterValidator(_json_values), _pulsar_settings("function")] = Field(
        default_factory=dict, examples=[{"retainOrdering": True, "timeoutMs": 30000}]
    )
    """Further settings, by the names and in the units of Pulsar's FunctionConfig; left out: as they are. docs/how-to/functions.md says which can change."""


class Sink(_WorkerCode):
    """A sink of Pulsar IO: a connector that reads topics, and writes to another system."""

    inputs: tuple[Text, ...] = Field(default=(), examples=[["orders"]])
    """Topics it reads: ground topics of this file (all their levels), or TENANT/NAMESPACE/TOPIC. For good."""
    inputs_pattern: Text | None = optional_like("persistent://kodo/trade/orders-.*")
    """Regular expression of further topics it reads, those of the future too. For good."""
    subscription: Text | None = optional_like("warehouse")
    """Its subscription on the inputs; default: TENANT/NAMESPACE/NAME of the sink, as Pulsar's. For good."""
    start: Literal["earliest", "latest"] = "earliest"
    """Position at which the subscription begins: used once, when the sink is created."""
    guarantees: Guarantees = "at_least_once"
    """When a message counts as done. For good."""
    retries: PositiveInt | None = optional_like(5)
    """Number of deliveries after the first one that failed, then a message goes to `dead_letter_topic`; left out: without end. For good."""
    dead_letter_topic: Text | None = optional_like("orders-failed")
    """Topic for messages after `retries`: a ground topic of this file, or TENANT/NAMESPACE/TOPIC; default: Pulsar's name. For good."""
    redelivery_delay: PositiveDuration | None = optional_like("10s")
    """Time until a failed message is delivered again; left out: Pulsar's minute. For good."""
    settings: Annotated[dict[Text, Any], AfterValidator(_json_values), _pulsar_settings("sink")] = Field(
        default_factory=dict, examples=[{"retainKeyOrdering": True}]
    )
    """Further settings, by the names and in the units of Pulsar's SinkConfig; left out: as they are. docs/how-to/functions.md says which can change."""


class IoSource(_WorkerCode):
    """A source of Pulsar IO: a connector that reads another system, and writes to a topic."""

    output: Text = Field(examples=["orders"])
    """Topic it writes to: a ground topic of this file, or TENANT/NAMESPACE/TOPIC."""
    guarantees: Literal["at_least_once", "at_most_once", "effectively_once"] = "at_least_once"
    """When a message counts as sent. For good."""
    settings: Annotated[dict[Text, Any], AfterValidator(_json_values), _pulsar_settings("io_source")] = Field(
        default_factory=dict, examples=[{"schemaType": "avro"}]
    )
    """Further settings, by the names and in the units of Pulsar's SourceConfig; left out: as they are. docs/how-to/functions.md says which can change."""

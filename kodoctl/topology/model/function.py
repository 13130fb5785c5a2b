"""Pulsar Functions in the topology file: code that the cluster's function worker runs between topics."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, WithJsonSchema

from kodoctl.topology.function_settings import settings_text
from kodoctl.topology.model.field_types import (
    FileModel,
    NotEmpty,
    PositiveInt,
    PositiveNumber,
    SizeField,
    Text,
    optional_like,
    pattern_words,
    wrong_value,
)

_PACKAGE: Final = "^(builtin|function|https?|file)://.+$"
_PACKAGE_WORDS: Final = (
    "Should be builtin://NAME, function://TENANT/NAMESPACE/NAME@VERSION, or an http, https or file URL."
)
_CREDENTIALS: Final = re.compile("^https?://[^/]*@")


def _package(raw: Any) -> Any:
    """The value, if it is the address of a package without credentials. The error does not repeat it then."""
    if isinstance(raw, str):
        if _CREDENTIALS.match(raw):
            raise wrong_value("an address with a user or password does not belong into the file")
        if not re.match(_PACKAGE, raw):
            raise wrong_value(
                "should be builtin://NAME, function://TENANT/NAMESPACE/NAME@VERSION (a package of the cluster),"
                " or an http, https or file URL that the function worker reads"
            )
    return raw


def _json_values(values: dict[str, Any]) -> dict[str, Any]:
    """The settings, if JSON has them, and the worker keeps them: YAML has dates as well, and a worker drops a name without
    a value.
    """
    import json  # most files declare no function

    try:
        json.dumps(values, allow_nan=False)
        settings_text(values)
    except (TypeError, ValueError, OverflowError) as problem:
        raise wrong_value(f"should hold texts, numbers, true, false, lists and maps: {problem}") from None
    if (name := _without_value(values)) is not None:
        raise wrong_value(f"{name!r} has no value, and the worker would drop it: leave it out")
    return values


def _without_value(value: Any) -> str | None:
    """A name in the settings that has no value; None if each has one."""
    if isinstance(value, dict):
        own = (str(name) for name, one in value.items() if one is None)
        return next(own, None) or _without_value(list(value.values()))
    if isinstance(value, list):
        return next((name for one in value if (name := _without_value(one)) is not None), None)
    return None


Package = Annotated[
    StrictStr,
    BeforeValidator(_package),
    WithJsonSchema({"type": "string", **pattern_words(_PACKAGE, _PACKAGE_WORDS)}),
]
Guarantees = Literal["at_least_once", "at_most_once", "effectively_once", "manual"]
Runtime = Literal["java", "python", "go"]


class FunctionNeeds(FileModel):
    """Cores, memory and disk of one instance of a function. Runtimes in threads of the worker ignore them."""

    cpu: PositiveNumber | None = optional_like(0.5)
    """Cores of one instance."""
    memory: SizeField | None = optional_like("512MiB")
    """Memory of one instance."""
    disk: SizeField | None = optional_like("1GiB")
    """Disk of one instance."""


class Function(FileModel):
    """A Pulsar Function: code that reads topics, and writes to one, on the cluster's function worker."""

    description: StrictStr = Field(default="", examples=["adds prices to orders"])
    """A text for people."""
    package: Package = Field(examples=["function://kodo/trade/enrich@1.2.0"])
    """Address of its code: builtin://NAME, function://TENANT/NAMESPACE/NAME@VERSION, or an http, https or file URL."""
    runtime: Runtime = "java"
    """The language of its code. For good."""
    class_name: Annotated[Text | None, Field(alias="class")] = optional_like("com.example.Enrich")
    """The class in the package; for Python the module too, as enrich.Enrich. Left out for Go, and where the package names it."""
    inputs: NotEmpty[Text] = Field(examples=[["orders"]])
    """Topics it reads: ground topics of this file (all their levels), or TENANT/NAMESPACE/TOPIC. For good."""
    output: Text | None = optional_like("shipments")
    """Topic it writes to: a ground topic of this file, or TENANT/NAMESPACE/TOPIC. It can change, never go."""
    subscription: Text | None = optional_like("enrich")
    """Its subscription on the inputs; default: TENANT/NAMESPACE/NAME of the function, as Pulsar's. For good."""
    start: Literal["earliest", "latest"] = "earliest"
    """Position at which the subscription begins: used once, when the function is created."""
    parallelism: PositiveInt = Field(default=1, examples=[2])
    """Number of its instances."""
    guarantees: Guarantees = "at_least_once"
    """When a message counts as done. For good."""
    config: Annotated[dict[Text, Any], AfterValidator(_json_values)] = Field(
        default_factory=dict, examples=[{"currency": "EUR"}]
    )
    """Settings that its code reads. No secrets: Pulsar shows them to everybody who may read the function."""
    resources: FunctionNeeds | None = optional_like({"cpu": 0.5, "memory": "512MiB"})
    """Limits of one instance; left out: as they are, at first the worker's defaults."""

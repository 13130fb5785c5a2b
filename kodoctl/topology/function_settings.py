# pure: every branch is tested
"""Settings of functions in one form, because a function worker stores all numbers as floating point; without values
that no file declares; and without values whose names say that they are secret, also in texts of errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

HIDDEN: Final = "(not shown)"
MASKED_KEYS: Final = frozenset({"config", "settings"})
"""Keys of a function or connector whose values may be secret: views show them by `without_secrets`."""
_BOTH: Final = {"logTopic": True, "runtimeFlags": True}
_READER: Final = {
    "timeoutMs": True, "cleanupSubscription": True, "inputSpecs": True, "retainOrdering": False,
    "retainKeyOrdering": False,
}  # fmt: skip
PULSAR_SETTINGS: Final[Mapping[str, Mapping[str, bool]]] = {
    "function": {
        **_BOTH, **_READER, "maxMessageRetries": True, "deadLetterTopic": True, "windowConfig": True,
        "producerConfig": True, "outputSchemaType": False, "outputSerdeClassName": False, "customSchemaOutputs": False,
        "maxPendingAsyncRequests": False,
        "exposePulsarAdminClientEnabled": False, "skipToLatest": False,
    },
    "sink": {
        **_BOTH, **_READER, "transformFunction": True, "transformFunctionClassName": True,
        "transformFunctionConfig": True,
    },
    "io_source": {
        **_BOTH, "schemaType": True, "serdeClassName": True, "producerConfig": True, "batchSourceConfig": True,
    },
}  # fmt: skip
"""Settings by Pulsar's names that the key `settings` takes, by kind; true: an update changes them."""
NOT_SHOWN: Final = frozenset({
    "maxPendingAsyncRequests", "exposePulsarAdminClientEnabled", "skipToLatest", "customSchemaOutputs", "inputSpecs",
    "transformFunction", "transformFunctionClassName", "transformFunctionConfig",
})  # fmt: skip
"""Settings that the worker shows to nobody, not always, or without some of their members."""
_SECRET: Final = re.compile("passw|passphrase|secret|token|credential|api_?-?key|private_?-?key", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"(://|:thin:)\S+(?=@)", re.IGNORECASE)  # of an address; `:thin:` is Oracle's
_NAMED_VALUE: Final = re.compile(
    rf"""((?:{_SECRET.pattern})[\w.-]*\\?["']?\s*[=:]\s*|\bbearer\s+)"""
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\"(?:(?!\\").)*\\"|[^\s&;]+)""",
    re.IGNORECASE | re.DOTALL,
)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Canonical JSON text of a function's settings. Numbers that the worker stores alike have the same text: 5 and 5.0,
    and whole numbers that differ beyond 53 bits.
    """
    import json  # most files declare no function

    return json.dumps(_stored(settings), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _stored(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _stored(one) for name, one in value.items()}
        case list():
            return [_stored(one) for one in value]
        case int() | float() if not isinstance(value, bool):
            return int(float(value)) if float(value).is_integer() else float(value)
        case _:
            return value


def only_declared(live: Any, declared: Any) -> Any:
    """Returns live settings in which HIDDEN replaces each value that may be a secret: each one that the declared
    settings do not have at the same place. Names, true and false stay.
    """
    match live:
        case Mapping():
            others = declared if isinstance(declared, Mapping) else {}
            return {name: only_declared(one, others.get(name)) for name, one in live.items()}
        case list():
            beside = declared if isinstance(declared, list) else []
            return [only_declared(one, beside[at] if at < len(beside) else None) for at, one in enumerate(live)]
        case _:
            shown = isinstance(live, bool) or (type(live) is type(declared) and live == declared)
            return live if shown else HIDDEN


def shown_settings(live: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the members of a live configuration that `shape` has, at any depth. A member that is missing in `live` is
    None; if the value in `shape` is false, zero or empty, it is that value, because Pulsar does not show such values.
    """
    return {name: _shown(live.get(name), value) for name, value in shape.items()}


def _shown(live: Any, shape: Any) -> Any:
    if isinstance(shape, Mapping):
        return shown_settings(live if isinstance(live, Mapping) else {}, shape)
    return shape if live is None and not shape else live


def with_recorded(shown: Any, recorded: Any) -> Any:
    """Shown settings with those of the last apply in place of None, at any depth."""
    if isinstance(shown, Mapping) and isinstance(recorded, Mapping):
        return {name: with_recorded(one, recorded.get(name)) for name, one in shown.items()}
    return recorded if shown is None else shown


def hidden_names(settings: Any, above: str = "") -> Iterator[str]:
    """Yields the place of each HIDDEN value in settings, as `db.password`."""
    match settings:
        case Mapping():
            for name, one in settings.items():
                yield from hidden_names(one, f"{above}.{name}" if above else str(name))
        case list():
            for number, one in enumerate(settings):
                yield from hidden_names(one, f"{above}[{number}]")
        case _ if settings == HIDDEN:
            yield above
        case _:
            pass


def is_secret_name(name: str) -> bool:
    """True if the name of a setting says that its value is secret: it contains "password", "token" or the like."""
    return _SECRET.search(name) is not None


def without_secrets(value: Any, name: str = "") -> Any:
    """Returns settings with `(not shown)` (HIDDEN) in place of each value except None, at any depth, whose name says
    that it is secret (`is_secret_name`). `name`: name of the setting whose value is given, "" for the settings as a
    whole.
    """
    if value is not None and is_secret_name(name):
        return HIDDEN
    match value:
        case Mapping():
            return {key: without_secrets(one, str(key)) for key, one in value.items()}
        case list():
            return [without_secrets(one) for one in value]
        case _:
            return value


def text_without_secrets(text: str) -> str:
    """Returns a text, such as an error, with `(not shown)` (HIDDEN) in place of user and password of each address, and
    of each value after a name that says that it is secret (`password=…`). A secret without address or name is not
    recognised.
    """
    return _NAMED_VALUE.sub(rf"\1{HIDDEN}", _USER_INFO.sub(rf"\1{HIDDEN}", text))

"""Editor of single settings of a subscription in the text of a topology file: slots, bulkheads and limits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kodo_pipeline.recommend.yaml_patch import CannotPatchError, Text, yaml_scalar
from kodoctl.topology.model.subscription import ConcurrencyLimit, HandlerSlots

if TYPE_CHECKING:
    from kodo_pipeline.recommend.slot_use import SettingChange
    from kodoctl.topology.fmt.tree import Path
    from kodoctl.topology.model.topology import Subscription

NEW_LIMIT = ("limits",)  # path of a change that adds a limit


def rewrite_setting(text: str, path: Path, change: SettingChange, total: int) -> str:
    """Returns the text of the topology file with a changed setting of the subscription at `path`. `total`: present
    number of the subscription's slots. Raises CannotPatchError if the file has the setting in a form that is not edited
    here.
    """
    edited = Text(text)
    if change.path == NEW_LIMIT:
        line = "{kind: concurrency, by: %s, limit: %d, scope: worker}" % (yaml_scalar(change.by), change.after)  # noqa: UP031
        if edited.find((*path, "limits")) is None:
            edited.set_key(path, "limits", [f"- {line}"])
        else:
            edited.append((*path, "limits"), line)
        return edited.result()
    if change.path[0] == "concurrency":
        _set_slots(edited, path, change, total)
    else:
        item = edited.find((*path, *change.path))
        if item is None:
            raise CannotPatchError(f"limit {change.path[1]} is an alias, or stands elsewhere")
        edited.replace(item, str(change.after))
    return edited.result()


def _set_slots(edited: Text, path: Path, change: SettingChange, total: int) -> None:
    steps = tuple(map(str, change.path))
    slots = edited.find((*path, "concurrency"))
    if slots is None or not slots.entries:
        whole = (
            str(change.after) if steps[1:] == ("total",) else f"{{total: {total}, {_flow(steps[1:], change.after)}}}"
        )
        if slots is None:
            edited.set_key(path, "concurrency", [whole])
        else:
            edited.replace(slots, whole)
        return
    depth = max(at for at in range(1, len(steps) + 1) if edited.find((*path, *steps[:at])) is not None)
    owner = edited.find((*path, *steps[:depth]))
    assert owner is not None
    if depth == len(steps):
        edited.replace(owner, str(change.after))
    elif owner.entries:
        edited.set_key((*path, *steps[:depth]), steps[depth], [_value(steps[depth + 1 :], change.after)])
    else:
        edited.replace(owner, _value(steps[depth:], change.after))


def _flow(steps: Sequence[str], value: int) -> str:
    """Keys and value in YAML's flow style, such as `retrying: {max: 8}`."""
    return f"{yaml_scalar(steps[0])}: {_value(steps[1:], value)}"


def _value(steps: Sequence[str], value: int) -> str:
    return f"{{{_flow(steps, value)}}}" if steps else str(value)


def with_setting(subscription: Subscription, data: dict[str, Any], change: SettingChange) -> None:
    """Makes the change in `data`, the dumped data of the subscription, in place. The patched file must have the same
    data.
    """
    if change.path[0] == "concurrency":
        raw = data["concurrency"]
        slots = raw if isinstance(raw, dict) else {"total": raw}
        at = slots
        for step in change.path[1:-1]:
            at[step] = at.get(step) or {}
            at = at[step]
        at[change.path[-1]] = change.after
        plain = change.path[1:] == ("total",) and not isinstance(subscription.concurrency, HandlerSlots)
        data["concurrency"] = (
            change.after if plain else HandlerSlots.model_validate(slots).model_dump(by_alias=True, mode="json")
        )
    elif change.path == NEW_LIMIT:
        limit = {"kind": "concurrency", "by": change.by, "limit": change.after, "scope": "worker"}
        data["limits"].append(ConcurrencyLimit.model_validate(limit).model_dump(by_alias=True, mode="json"))
    else:
        data["limits"][change.path[1]]["limit"] = change.after

# pure: every branch is tested
"""Replay plan: the acknowledged entries of a subscription's ready lanes that are to be delivered again, frozen with the
state of the cursors that they were chosen from. The plan is its JSON document; its seal shows edits.

A plan is carried out on the present acknowledgements, not on those of the plan: entries that were handled since stay
acknowledged, so that exactly the entries of the plan come again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodoctl import __version__
from kodoctl.documents.json_form import form, reason, seal_of
from kodoctl.documents.replay_document import ReplayPartition, ReplayPlanDocument
from kodoctl.errors import InvalidFileError, RefusedError, Where, error
from kodoctl.recall.plan.entry_runs import Runs, common, entry_count, from_rows, merged, move_for, without
from kodoctl.text.formatting import many
from kodoctl.topology.names import partition_name

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import Place

FORMAT_VERSION: Final = 1
HASH: Final = 12  # characters of the seal that people type
_MADE_BY: Final = "write one with `kodoctl replay plan --out FILE`"
Json = dict[str, Any]


def sealed(values: Mapping[str, Any]) -> ReplayPlanDocument:
    """Returns the document of a replay plan: `values`, with the format's version, kodoctl's version, the action, and
    the seal (a hash of all other values, by which an edited file is refused). Checks nothing.
    """
    document: Any = {"format_version": FORMAT_VERSION, "kodoctl_version": __version__, "action": "replay", **values}
    document["seal"] = seal_of(document)
    plan: ReplayPlanDocument = document
    return plan


def dumps(plan: ReplayPlanDocument) -> str:
    """Returns the text of a plan file: JSON with one line for each key."""
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in plan.items()) + "\n}\n"


def loads(text: str, file: str) -> ReplayPlanDocument:
    """Parses and checks the text of a replay plan file. `file`: its path, for errors. Raises RefusedError for a replay
    plan of another format, or one whose seal does not match, such as an edited one; InvalidFileError for any other
    fault.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _not_a_plan(_MADE_BY, file) from None
    return parse(document, file)


def parse(document: Any, file: str) -> ReplayPlanDocument:
    """Checks the JSON of a plan, and returns it. `file`: its source, for errors. Raises RefusedError for a replay plan
    of another format, or one whose seal does not match, such as an edited one; InvalidFileError for any other fault.
    """
    try:
        version, action = document["format_version"], document["action"]
    except (TypeError, KeyError):
        raise _not_a_plan(_MADE_BY, file) from None
    if action != "replay":
        raise _not_a_plan("it is a plan of dead or waiting messages: `kodoctl recall apply` or `waiting apply`", file)
    if version != FORMAT_VERSION:
        detail = f"it has format {version}, this kodoctl ({__version__}) reads {FORMAT_VERSION}"
        raise RefusedError(error("K593", "replay that cannot be carried out", detail, Where(file)))
    if document.get("seal") != seal_of(document):
        detail = "its content does not match its seal: it was edited or cut; plan again"
        raise RefusedError(error("K593", "replay that cannot be carried out", detail, Where(file)))
    try:
        plan: ReplayPlanDocument = form(ReplayPlanDocument).validate_python(document, strict=True, extra="forbid")
        for one in plan["partitions"]:
            from_rows(one["again"])
    except (ValueError, TypeError) as problem:
        raise _not_a_plan(reason(problem), file) from None
    return plan


def _not_a_plan(detail: str, file: str) -> InvalidFileError:
    return InvalidFileError(error("K592", "not a replay plan", detail, Where(file)))


def hash_of(plan: ReplayPlanDocument) -> str:
    """Short hash of a plan, for users to compare: the first 12 characters of its seal."""
    return plan["seal"][:HASH]


def part_of(partition: ReplayPartition) -> str:
    """Full name of a partition of a plan."""
    return partition_name(partition["topic"], partition["partition"])


class PartitionState(NamedTuple):
    """Present state of one partition: its `stored` entries, and those of them that the subscription has `acknowledged`
    as a whole.
    """

    stored: Runs
    acknowledged: Runs


class PartitionReplay(NamedTuple):
    """Steps of a replay in one partition: the cursor moves back to the entry `to`, which is the first one to come again
    (None: it has moved already, or may have, or nothing can come again), then the entries in `acknowledge` are
    acknowledged. After both, exactly the entries in `keep` are acknowledged, of all that are stored.
    """

    to: Place | None
    acknowledge: Runs
    keep: Runs


def replay_of(
    partition: ReplayPartition, before: Runs, now: PartitionState, *, has_moved: bool = False
) -> PartitionReplay:
    """Decides the steps of a replay in a partition, so that no acknowledged entries but those of the plan come again.
    Entries that were handled since the plan stay acknowledged. If any stored entry of the plan is not acknowledged now,
    the cursor counts as moved by an earlier attempt, even if the journal does not say so. No cursor moves if none of
    the plan's entries is stored any more.

    Args:
        before: the acknowledged entries before the first attempt at the plan; in a first attempt those of `now`.
        now: present state of the partition.
        has_moved: an earlier attempt may have moved the cursor, so that entries of the plan that are acknowledged now
            may have been handled again already.
    """
    again = from_rows(partition["again"])
    there = common(again, now.stored)
    if has_moved or not there or without(there, now.acknowledged):
        keep = merged([*common(without(before, again), now.stored), *now.acknowledged])
        return PartitionReplay(None, without(keep, now.acknowledged), keep)
    keep = common(without(merged([*before, *now.acknowledged]), again), now.stored)
    return PartitionReplay(*move_for(now.stored, keep), keep)


def undo_of(before: Runs, now: PartitionState) -> Runs:
    """Returns the entries to acknowledge so that all entries that were acknowledged before a replay (`before`), and are
    still stored, are acknowledged again. Entries that were handled since stay acknowledged.
    """
    return without(common(before, now.stored), now.acknowledged)


def why_stale(partition: ReplayPartition, partitions: int | None, now: PartitionState | None) -> str:
    """Reason why the plan cannot begin in a partition: no topic, other partitions, no subscription, or entries of the
    plan that are no longer stored or acknowledged; "" if it can. Other entries may have been acknowledged since.
    `partitions`: present number of partitions, 0 for a plain topic, None: the topic does not exist; `now` None: the
    partition does not have the subscription.
    """
    part, again = part_of(partition), from_rows(partition["again"])
    if partitions is None:
        return f"{part}: there is no such topic any more"
    if partitions != partition["partitions"]:
        return f"{partition['topic']}: {partition['partitions']:,} partitions when planned, {partitions:,} now"
    if now is None:
        return f"{part}: the subscription is not there any more"
    if gone := entry_count(without(again, now.stored)):
        return f"{part}: {many(gone, 'entry', 'entries')} of the plan {'is' if gone == 1 else 'are'} no longer stored"
    if open_ := entry_count(without(again, now.acknowledged)):
        what = many(open_, "entry", "entries")
        return f"{part}: {what} of the plan not acknowledged now: somebody moved the cursor back since"
    return ""

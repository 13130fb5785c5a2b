"""Facts of the file about a lane that the console names with its messages."""

from __future__ import annotations

import pytest

from kodoctl.cli.ui.message_reading import lane_tries
from kodoctl.ui.letter_causes import Tries
from tests.unit.topology.topology_files import expanded

BACKUP = Tries("kodo-attempts-retrying", 3, "the backup level")
DEAD = Tries("kodo-attempts-retrying", 3, "dead letters")
LAST = Tries("kodo-attempts-backup", 9, "dead letters")


@pytest.mark.parametrize(
    ("topic", "dead", "lane", "tries"),
    [
        ("backup: true", "true", "J-s-RETRYING", BACKUP),
        ("levels: [L1, B1]", "true", "J-s-RETRYING", BACKUP),
        ("levels: [L1, D1]\n    backup: true", "true", "J-D1-s-RETRYING", DEAD),
        ("levels: single", "true", "J-s-RETRYING", DEAD),
        ("levels: single", "false", "J-s-RETRYING", None),
        ("backup: true", "false", "J-s-RETRYING", BACKUP),
        ("backup: true", "true", "J-B1", LAST),
        ("backup: true", "false", "J-B1", None),
        ("backup: true", "true", "J", None),
        ("backup: true", "true", "J-s-DLQ", None),
    ],
)
def test_the_tries_of_a_lane_end_where_workers_move_its_messages(
    topic: str, dead: str, lane: str, tries: Tries | None
) -> None:
    found = expanded(
        f"topics:\n  J:\n    {topic}\n    subscriptions:\n      s:\n        states: [retrying]\n"
        f"        dead_letter: {dead}\n        retrying: {{delays: [1s], attempts: 3}}\n"
        "        backup: {delays: [1s], attempts: 9}\n"
    )
    (one,) = (one for one in found.topics if one.name.local == lane)
    spec = found.topology.spec.topics["J"]
    assert lane_tries(spec, one, "s") == tries
    assert lane_tries(spec, one, "unknown") is None

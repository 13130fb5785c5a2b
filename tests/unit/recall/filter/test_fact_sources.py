"""Sources of a condition: what a task of Spark gets of a letter, and that it is enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.recall.filter.condition import parse
from kodoctl.recall.filter.fields import FACTS, FactSources, sources_of
from kodoctl.recall.message.stored_message import DeadLetter, Position, tenant_of
from tests.unit.recall.filter.test_condition import LETTER, NOT_TRUE, TRUE
from tests.unit.recall.letters import NOW

BARE = DeadLetter("", Position(0, 0, 0), None, {})
BY = (None, "uid", "key")
OTHERS = (
    "kodo-id", "kodo-error", "kodo-error-stack", "kodo-recall", "kodo-origin-id", "kodo-origin-topic", "kodo-origin-time",
    "kodo-hop", "kodo-attempts-blocking", "kodo-attempts-backup", "kodo-postponed",
)  # fmt: skip
WHOLE = replace(LETTER, ordering_key="o", properties={**LETTER.properties, **dict.fromkeys(OTHERS, "7")})


def reduced(letter: DeadLetter, sources: FactSources, by: str | None) -> DeadLetter:
    """A letter of which nothing is left but the sources."""
    properties = {name: text for name, text in letter.properties.items() if name in sources.properties}
    kept = {name: getattr(letter, name) for name in sources.attributes}
    made = replace(BARE, **kept, properties=properties)
    return replace(made, tenant=tenant_of(by, properties, made.key))


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", FACTS)
def test_a_fact_is_the_same_without_what_is_no_source_of_it(name: str, by: str | None) -> None:
    letter = replace(WHOLE, tenant=tenant_of(by, WHOLE.properties, WHOLE.key))
    found = FACTS[name].read(letter)
    assert FACTS[name].read(reduced(letter, sources_of(parse(f"{name} is null", NOW).root, by), by)) == found
    assert found is not None


@pytest.mark.parametrize("text", [*TRUE, *NOT_TRUE])
def test_a_condition_chooses_the_same_without_what_is_no_source_of_it(text: str) -> None:
    letter, condition = replace(LETTER, tenant=tenant_of("uid", LETTER.properties, LETTER.key)), parse(text, NOW)
    assert condition.chooses(reduced(letter, sources_of(condition.root, "uid"), "uid")) is condition.chooses(letter)


def test_no_more_is_a_source_than_the_condition_reads() -> None:
    def of(text: str, by: str | None = "uid") -> tuple[set[str], set[str]]:
        attributes, properties = sources_of(parse(text, NOW).root, by)
        return set(attributes), set(properties)

    assert of("reason = 'x' and not properties['n'] > 1") == (set(), {"kodo-reason", "n"})
    assert of("payload.a[0] = 1 or payload_size > 2") == ({"payload"}, set())
    assert of("tenant in ('a')") == (set(), {"uid"})
    assert of("tenant = 'a'", "key") == ({"key"}, set())
    assert of("tenant = 'a'", None) == (set(), set())
    assert of("position = '1:2:3:-1' and published_at < now()") == ({"position", "publish_time"}, {"kodo-origin-time"})
    assert of("true") == (set(), set())

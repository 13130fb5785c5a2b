"""Levels of policies: the same before a plan is made, when its dangers are judged, and when it is carried out."""

from __future__ import annotations

from hypothesis import given

from kodoctl.plan.changes import Update
from kodoctl.plan.policy_levels import levels_of, namespace_changes
from kodoctl.topology.model.policies import from_json
from kodoctl.topology.resources import TopicResource
from tests.samples.inventories import HERE, applied, difference, empty, planned, topology, topology_texts, wanted
from tests.samples.profiles import examples


@given(topology_texts(), topology_texts())
@examples(25)
def test_the_changes_of_a_plan_say_the_levels_by_which_its_topics_were_compared(one: str, other: str) -> None:
    there = applied(wanted(other))
    changes = difference(wanted(one), there).changes
    by_plan = namespace_changes(changes)
    for change in changes:
        if isinstance(change, Update) and isinstance(change.after, TopicResource):
            levels = levels_of(change.after.name.namespace, there, by_plan)
            for field in change.policy_changes:
                assert field.effective_before == levels.effective(field.policy, field.before, after=False)
                assert field.effective_after == levels.effective(field.policy, field.after, after=True)


def test_a_namespace_that_is_created_counts_with_its_first_policies() -> None:
    plan = planned(wanted(topology("{J: {}}", "namespace_policies: {ttl: 9h}\n")), empty())
    levels = levels_of(HERE, empty(), namespace_changes(plan.changes))
    assert (levels.namespace_before, levels.namespace_after) == ({}, {"ttl": from_json("ttl", "9h")})


def test_a_policy_that_goes_and_a_namespace_that_stays() -> None:
    there = applied(wanted(topology("{J: {}}", "namespace_policies: {ttl: 9h}\n")))
    plan = planned(wanted(topology("{J: {}}")), there)
    [change] = namespace_changes(plan.changes)[HERE]
    assert (change.policy, change.before, change.after) == ("ttl", from_json("ttl", "9h"), None)
    gone, kept = levels_of(HERE, there, namespace_changes(plan.changes)), levels_of(HERE, there, {})
    assert (gone.namespace_after, kept.namespace_after) == ({}, there.namespace_policies[HERE])

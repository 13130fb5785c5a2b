"""K103, K106 to K108: routes that cannot be parsed, that never match, that overlap, or that lead in a circle."""

from __future__ import annotations

from collections.abc import Iterator

from kodoctl.errors import Severity
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.names import LEVELS_CONTRADICT


@rule("K106", Severity.ERROR, "a route condition that cannot be read")
def unreadable(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds route conditions in text that are not of the condition language, or too long."""
    if scope.routed:
        from kodoctl.topology.lint import route_checks

        yield from route_checks.unreadable(scope.routed)


@rule("K103", Severity.ERROR, LEVELS_CONTRADICT)
def dead_routes(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds routes for a moment (an entry of `at`, such as `retrying` or `backup`) that has no lane in the
    subscription, routes that cannot match in any of their lanes, and routes after a route that takes all their
    messages.
    """
    if scope.routed:
        from kodoctl.topology.lint import route_checks

        yield from route_checks.dead_routes(scope.routed)


@rule("K108", Severity.WARNING, "routes that overlap")
def overlapping(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds values in the list of a route that never matter, because an earlier route takes all messages with them."""
    if scope.routed:
        from kodoctl.topology.lint import route_checks

        yield from route_checks.overlapping(scope.routed)


@rule("K107", Severity.ERROR, "routes that lead in a circle")
def circles(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds routes that send a message from level to level back to a level where it was: one such circle at most for a
    subscription, and none if one of its conditions cannot be parsed. A circle that needs more than two routes whose
    conditions look at the message, and not at its lane alone, is not found.
    """
    if scope.routed:
        from kodoctl.topology.lint import route_checks

        yield from route_checks.circles(scope.routed)

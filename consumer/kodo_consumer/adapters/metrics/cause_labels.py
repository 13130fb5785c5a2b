"""Labels for causes of failures: the most frequent ones of many, so that a metric has few series."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from kodo_consumer.adapters.metrics.tenant_fairness import OTHER, Labels, label
from kodo_consumer.core.state.cause_counts import OTHER_CAUSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kodo_consumer.core.values.clock import Clock


class CauseLabels:
    """Labels of causes: at most `most` causes have their own label, all others share the label OTHER (see Labels). Any
    thread may call `totals`.
    """

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock, self._labels = clock, Labels(most)
        self._before: Counter[str] = Counter()
        self._lock = threading.Lock()

    def totals(self, counts: Mapping[str, int]) -> list[tuple[str, int]]:
        """(label, messages) of each cause that has a label, and of OTHER as the last. A cause counts from when it got
        its label; its earlier messages stay in OTHER. `counts`: messages by cause since the start. Each call also
        decides anew which causes have a label.
        """
        with self._lock:
            now = Counter(dict(counts))
            self._labels.count(now - self._before, self._clock.now())
            self._before = now
            named = dict(self._labels.totals)
            other = self._labels.other + named.pop(OTHER_CAUSES, 0)
            return [*((label(cause), count) for cause, count in named.items()), (OTHER, other)]

"""Difference between this machine's clock and a server's, by the `Date` header of one HTTP answer, which is cut to whole
seconds. For workers, whose waits depend on it, and for the pipeline, which judges by the cluster's clock.
"""

from __future__ import annotations


def clock_ahead(wall: int, server_time: int, took: float) -> float:
    """Ms by which this machine's clock is ahead of the server's for certain; negative: behind; 0: they may agree.
    `wall`: ms since the epoch by this machine's clock, right after the answer; `server_time`: the same by the server's;
    `took`: seconds from question to answer.
    """
    most = wall - server_time
    least = most - 1000 * took - 1000  # its second may have been nearly over
    return max(0.0, least) + min(0.0, most)
